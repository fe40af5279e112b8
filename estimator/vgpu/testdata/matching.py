"""A match statement, which older Pythons cannot read, chooses what a later step does: matching.py CASE."""
import sys

import torch
from torch import nn


def step(size):
    optimizer.zero_grad()
    model(torch.zeros(size, 512, device="cuda")).square().mean().backward()
    optimizer.step()


def a_case():
    for i in range(10**7):
        match i:
            case 20000:
                step(65536)
            case _:
                step(64)


model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
if __name__ == "__main__":
    globals()[sys.argv[1]]()
