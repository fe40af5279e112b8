"""Networks whose table of modules layers_test.go reads: layers.py CASE. Nothing in here knows that it is looked at."""
import os
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


class Tied(nn.Module):
    """An embedding whose weight is the last layer's, a block that is called three times, and a part that is never called."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.block = nn.Sequential(nn.Linear(16, 16), nn.GELU())
        self.scale = nn.Parameter(torch.ones(16))
        self.head = nn.Linear(16, 100, bias=False)
        self.head.weight = self.words.weight
        self.unused = nn.Linear(16, 4)
        for p in self.block.parameters():
            p.requires_grad_(False)

    def forward(self, words=None, labels=None):
        x = self.words(words)
        for _ in range(2):
            x = self.block(x)
        x = checkpoint(self.block, x, use_reentrant=False)
        return {"logits": self.head(x * self.scale), "hidden": (x,)}


def tied():
    model = Tied().to(DEVICE)
    words = torch.zeros(4, 7, dtype=torch.long, device=DEVICE)
    with torch.no_grad():  # a check before the training, with a batch of its own
        model(words=words[:1])
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(20):
        out = model(words=words)["logits"]
        nn.CrossEntropyLoss()(out.flatten(0, 1), words.flatten()).backward()
        optimizer.step()


def gan():
    generator = nn.Sequential(nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 3, 3, padding=1, groups=1), nn.Tanh()).to(DEVICE)
    discriminator = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(8 * 4 * 4, 1)).to(DEVICE).half().float()
    first, second = torch.optim.SGD(generator.parameters(), 0.1), torch.optim.RMSprop(discriminator.parameters())
    loss = nn.BCEWithLogitsLoss()
    for _ in range(20):
        real, noise = torch.rand(5, 3, 8, 8, device=DEVICE), torch.rand(5, 8, 4, 4, device=DEVICE)
        fake = generator(noise)
        second.zero_grad()
        (loss(discriminator(real), torch.ones(5, 1, device=DEVICE)) + loss(discriminator(fake.detach()), torch.zeros(5, 1, device=DEVICE))).backward()
        second.step()
        first.zero_grad()
        loss(discriminator(fake), torch.ones(5, 1, device=DEVICE)).backward()
        first.step()


def compiled():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(DEVICE)
    fast = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(20):
        fast(torch.rand(8, 32, device=DEVICE)).sum().backward()
        optimizer.step()


def parallel():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(DEVICE), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(20):
        model(torch.rand(8, 32, device=DEVICE)).sum().backward()
        optimizer.step()


globals()[sys.argv[1]]()
