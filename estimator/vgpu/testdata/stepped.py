"""A training whose operators are known: stepped.py BATCH [compiled]. One convolution, one layer under autocast, one product by hand, one value read."""
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.line = nn.Linear(2048, 10)
        self.turn = nn.Parameter(torch.zeros(10, 10))

    def forward(self, images):
        x = torch.relu(self.conv(images))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = self.line(x.flatten(1))
        return x.float() @ self.turn


def main():
    batch = int(sys.argv[1])
    net = Net().to("cuda")
    if sys.argv[2:] == ["compiled"]:
        torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(2, device="cuda"))
    optimizer = torch.optim.Adam(net.parameters())
    images = torch.zeros(batch, 3, 16, 16, device="cuda")
    for _ in range(20):
        loss = net(images).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


main()
