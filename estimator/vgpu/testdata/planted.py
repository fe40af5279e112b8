"""A fault of the Python layer's own in what looks at later steps: planted.py MODULE CLASS METHOD. The program beside it is an ordinary one."""
import importlib
import sys

import torch
from torch import nn


def fails(*args, **kwargs):
    raise KeyError("planted")


module, kind, method = sys.argv[1:]
setattr(getattr(importlib.import_module("gresize_vgpu." + module), kind), method, fails)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())


def step(x, y):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
    optimizer.step()


data = torch.utils.data.DataLoader([(torch.zeros(64), i % 10) for i in range(320)], 64)
for epoch in range(2):
    for x, y in data:
        step(x, y)
for i in range(10**7):
    step(torch.zeros(64, 64), torch.zeros(64, dtype=torch.int64))
    if i % 1000 == 7:
        print(i)
