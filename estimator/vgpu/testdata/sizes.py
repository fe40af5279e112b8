"""Tensors of the card that are given for sizes: PyTorch's C++ reads them, where no function of Python sees it. sizes.py CASE"""
import math
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


def cast():
    """A whole number that the card makes of a float."""
    x.new_zeros((x * 100).abs().long().sum().item() % 4096, 1024)


def summed():
    """Of several floats, by way of a sum."""
    total = 0.0
    for part in x.abs().mean(-1)[0]:
        total += part.item()
    x.new_zeros(int(total * 100), 1024)


def averaged():
    """An average decides what is trained."""
    losses = [(model(x) - n).square().mean().item() for n in range(3)]
    if sum(losses) / len(losses) < 0.5:
        x.new_zeros(10000, 1024).square().sum()


def by_its_exponential():
    """The perplexity decides, which C computes of a loss."""
    if math.exp((model(x) - 1).square().mean().item()) < 1.6:
        x.new_zeros(10000, 1024).square().sum()


def of_a_tensor_on_the_host():
    """Numbers that a tensor on the host holds, of what was read."""
    losses = torch.tensor([(model(x) - n).square().mean().item() for n in range(3)])
    x.new_zeros(int(losses.mean() * 1000), 16384)


def of_an_array():
    """Numbers that an array on the host holds, of what was read."""
    import numpy

    losses = numpy.array([(model(x) - n).square().mean().item() for n in range(3)])
    x.new_zeros(int(losses.mean() * 1000), 16384)


def hard_ones():
    """The host picks the rows whose losses are above the mean."""
    losses = rows.square().mean(-1).detach().cpu().numpy()
    rows[torch.from_numpy(losses > losses.mean()).cuda()].repeat(1, 128).exp()


def sure_ones():
    """The host picks the rows of whose class the network is sure."""
    chances = torch.softmax(rows, -1).detach().cpu().numpy()
    rows[torch.from_numpy(chances.max(-1) > 0.95).cuda()].repeat(1, 128).exp()


def right_ones():
    """The card keeps the rows whose class the network finds, of labels that the program has."""
    labels = torch.arange(rows.shape[0]) % rows.shape[1]
    rows[rows.argmax(-1) == labels.cuda()].repeat(1, 128).exp()


def above_a_half():
    """A list of those that are likely."""
    chances = torch.sigmoid(rows[:, 0]).tolist()
    rows[[i for i, p in enumerate(chances) if p > 0.5]].repeat(1, 128).exp()


def voxels():
    """As many as the points are in."""
    cells = (rows * 10).floor().long()
    torch.unique(cells.sum(-1)).float().expand(16384, -1).exp()


def printed():
    """What is read is shown, kept and averaged, and decides nothing."""
    import numpy

    loss, scores = model(x).square().mean(), torch.softmax(rows, -1)
    history.append(float(loss))
    total = sum([loss.item(), loss.item()])
    print("%.3f %.3f" % (numpy.mean(history), total / 2), round(total, 3), f"{loss.item():.2f}", scores.detach().cpu().numpy().mean(), scores[0].tolist()[:2])
    print(loss, scores, f"{loss}", str(rows[0]), (rows > 1).sum())


history, rows = [], torch.randn(1024, 64, device="cuda").exp()
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    globals()[sys.argv[1]]()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
