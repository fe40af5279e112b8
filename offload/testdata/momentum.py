"""Wide layers with momentum, and a large buffer in the forward pass: of what could leave the card meanwhile, the optimizer's state is nearly all."""
import torch
from torch import nn

MIB = 1 << 20


class Scratch(nn.Module):
    def forward(self, x):
        buffer = torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
        del buffer
        return x


model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), Scratch(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(1024, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
