"""A program that has more on the card than its model, in the mode "profile"."""
import torch

MIB = 1 << 18  # floats
before = torch.zeros(3 * MIB, device="cuda")
with torch.device("cuda"):
    in_context = torch.zeros(5 * MIB)
on_host = torch.zeros(7 * MIB)
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adagrad(model.parameters())
after = torch.zeros(9 * MIB, device="cuda")
average = [p.detach().clone() for p in model.parameters()]
for step in range(4):
    x, host = torch.randn(512, 1024).cuda(), torch.randn(512, 1024)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item() > 0)
