"""Programs that keep something of each step, or of some: kept.py CASE."""
import sys

import torch
from torch import nn

MANY = 10**6
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept = []


def step():
    optimizer.zero_grad()
    out = model(torch.zeros(64, 512, device="cuda"))
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    return out.detach(), loss.detach()


def losses():
    for epoch in range(2):
        for i in range(5000):
            kept.append(step()[1])


def losses_for_ever():
    while True:
        kept.append(step()[1])


def outputs():
    for i in range(MANY):
        kept.append(step()[0])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
