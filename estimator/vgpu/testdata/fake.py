"""Programs for fake_test.go: fake.py CASE. Nothing in here knows that its tensors have no content."""
import sys

import torch
from torch import nn

DEVICE = "cuda"


def whole():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)).to(DEVICE)
    data = torch.utils.data.TensorDataset(torch.randn(1024, 1024), torch.randint(0, 10, (1024,)))
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in torch.utils.data.DataLoader(data, 128, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
        loss.backward()
        optimizer.step()
        print(loss.item())


def tied():
    model = nn.ModuleDict({"words": nn.Embedding(1000, 64), "head": nn.Linear(64, 1000, bias=False)})
    model["head"].weight = model["words"].weight
    model.to(DEVICE)
    assert model["head"].weight is model["words"].weight
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(9):
        model["head"](model["words"](torch.zeros(2, dtype=torch.long, device=DEVICE))).sum().backward()
        optimizer.step()


def masked():
    x = torch.randn(100, device=DEVICE)
    print(x[x > 0].sum())


globals()[sys.argv[1]]()
