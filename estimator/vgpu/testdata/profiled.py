"""Four square layers of 16 MiB each on a GPU, trained with Adam on a small batch."""
import torch

model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(4))).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    loss = model(torch.randn(8, 2048, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
