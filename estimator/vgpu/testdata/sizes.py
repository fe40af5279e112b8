"""Tensors of the card that are given for sizes: PyTorch's C++ reads them, where no function of Python sees it. sizes.py known | unknown | counted"""
import sys

import torch
import torch.nn.functional as F

lengths = torch.tensor([3, 5, 7]).cuda()
three, five, seven = lengths
x, flat = torch.randn(1, 5, 64, device="cuda"), torch.zeros(35, device="cuda")


def known():
    sizes = {
        "expand": (x.expand(three, -1, -1), (3, 5, 64)),
        "expand by a maximum": (torch.zeros(1, device="cuda").expand(lengths.max()), (7,)),
        "view": (flat.view(five, seven), (5, 7)),
        "reshape": (flat.reshape(five, -1), (5, 7)),
        "unflatten": (flat.unflatten(0, (five, seven)), (5, 7)),
        "as_strided": (flat.as_strided((three,), (1,)), (3,)),
        "zeros": (torch.zeros(three, five, device="cuda"), (3, 5)),
        "zeros of the host": (torch.zeros(three, 4), (3, 4)),
        "full": (torch.full((three, 4), 1.0, device="cuda"), (3, 4)),
        "new_zeros": (x.new_zeros(three, five), (3, 5)),
        "arange": (torch.arange(seven, device="cuda"), (7,)),
        "linspace": (torch.linspace(0, 1, seven, device="cuda"), (7,)),
        "eye": (torch.eye(seven, device="cuda"), (7, 7)),
        "randperm": (torch.randperm(seven, device="cuda"), (7,)),
        "randint": (torch.randint(0, seven, (three,), device="cuda"), (3,)),
        "slice": (x[:, three:five], (1, 2, 64)),
        "narrow": (x.narrow(1, 0, three), (1, 3, 64)),
        "repeat": (x.repeat(three, 1, 1), (3, 5, 64)),
        "topk": (x.topk(three, dim=1).values, (1, 3, 64)),
        "multinomial": (torch.multinomial(torch.ones(10, device="cuda"), three), (3,)),
        "pad": (F.pad(x, (0, three)), (1, 5, 67)),
        "interpolate": (F.interpolate(torch.zeros(1, 1, 4, 4, device="cuda"), size=(three, five)), (1, 1, 3, 5)),
        "one_hot": (F.one_hot(lengths, lengths.max() + 1), (3, 8)),
        "resize_": (torch.zeros(0, device="cuda").resize_(three), (3,)),
        "a mean": (torch.zeros(lengths.sum() // 3, device="cuda"), (5,)),
    }
    for name, (made, size) in sizes.items():
        if tuple(made.shape) != size:
            raise SystemExit("%s: %s and not %s" % (name, tuple(made.shape), size))


def unknown():
    """Every side has another size, of which each can be had."""
    found = torch.rand(4, device="cuda").argmax() + 1
    if not 1 <= x.expand(found, -1, -1).shape[0] <= 4:
        raise SystemExit("a class that is none")
    if not torch.zeros((x * 100).sum().long() % 50 + 1, 1024, 1024, device="cuda").numel():
        raise SystemExit("nothing was made")


def counted():
    """A whole number that is made of a float."""
    x.new_zeros(int(x.abs().mean().item() * 1000), 1024)


model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    {"known": known, "unknown": unknown, "counted": counted}[sys.argv[1]]()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
