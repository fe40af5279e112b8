"""Small scripts, each with one habit of a public program that once went wrong here: programs.py CASE."""
import sys

import torch
from torch import nn


def second_device():
    """The current device is set once, and everything after it says just "cuda"."""
    torch.cuda.set_device(1)
    model = nn.Linear(64, 64).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(8):
        output = model(torch.randn(8, 64, device="cuda:1"))
        target = torch.zeros(8, dtype=torch.long).to("cuda")
        assert target.device == output.device, (target.device, output.device)
        nn.functional.cross_entropy(output, target).backward()
        optimizer.step()


globals()[sys.argv[1]]()
