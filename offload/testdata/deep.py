"""A deep and narrow network: what it keeps for the backward pass is most of what it needs."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(24))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(24576, 512, device="cuda")
for _ in range(30):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
