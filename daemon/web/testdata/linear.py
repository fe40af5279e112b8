# The program behind the records: gresize estimate --gpu rtx3060 --bundle rtx3060.gresize -- python linear.py, and the same with a100-80
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 512)).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(8):
    loss = net(torch.randn(2048, 1024, device="cuda")).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
