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


def default_device():
    """What is made where the program names no device is on the one that it set."""
    with torch.device("cuda"):
        made = [torch.arange(8), torch.zeros(8), torch.ones(8), torch.full((8,), 1.0), torch.tensor([1.0]), torch.randperm(8), torch.eye(8)]
    with torch.device("meta"):
        assert torch.zeros(8).is_meta
    assert all(t.is_cuda for t in made), [t.device for t in made]
    _steps(lambda model: model(torch.randn(8, 64, device="cuda") * made[1][0]))


def masks():
    """Masks of more floats than are followed of other origin: which attention is taken depends on them."""
    causal, size = nn.modules.transformer._detect_is_causal_mask, 200
    no = float("-inf")
    above = torch.ones(size, size, dtype=torch.bool, device="cuda").triu(1)
    assert causal(torch.triu(torch.full((size, size), no, device="cuda"), diagonal=1), None, size)
    assert causal(nn.Transformer.generate_square_subsequent_mask(size).to("cuda"), None, size)
    assert causal(torch.zeros(size, size, device="cuda").masked_fill_(above, no), None, size)
    assert causal(torch.zeros(size, size, device="cuda").masked_fill(torch.tril(torch.ones(size, size, device="cuda")) == 0, no), None, size)
    assert not causal(torch.zeros(size, size, device="cuda"), None, size)
    attended = torch.ones(64, 256, device="cuda")
    assert torch.all(attended == 1) and ((1.0 - attended[:, None, None, :]) == 0).all()
    row = attended[5]
    attended[3, 5:] = 0
    assert not torch.all(attended == 1) and attended.sum() == 64 * 256 - 251
    large = torch.zeros(2000, 2000, device="cuda").unsqueeze_(0)
    assert large.shape == (1, 2000, 2000) and row.numel() == 256
    _steps(lambda model: model(torch.randn(8, 64, device="cuda")))


def _steps(forward):
    model = nn.Linear(64, 64).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(8):
        forward(model).sum().backward()
        optimizer.step()


def _epochs(after):
    data = torch.utils.data.TensorDataset(torch.randn(3000, 3, 32, 32), torch.randint(0, 10, (3000,)))
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for images, labels in torch.utils.data.DataLoader(data, 8, shuffle=True, num_workers=1):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
        after(data, model)


def validates():
    """A loader with a larger batch that is made after the first epoch only."""

    def validate(data, model):
        model.eval()
        with torch.no_grad():
            for images, _ in torch.utils.data.DataLoader(data, 1024):
                model(images.cuda())
        torch.save(model.state_dict(), "/nonexistent/place")  # nothing is written after an epoch that was cut short

    _epochs(validate)


def fails_after_an_epoch():
    """What a program makes of an epoch that was cut short is no fault of its own."""

    def check(data, model):
        raise RuntimeError("this epoch had too few batches")

    _epochs(check)


def lingers_after_an_epoch():
    """What follows an epoch takes too long."""

    def wait(data, model):
        import time

        time.sleep(100)

    _epochs(wait)


def full_after_an_epoch():
    """What follows an epoch is too large for the card."""

    def fill(data, model):
        torch.empty(100 << 30, dtype=torch.uint8, device="cuda")

    _epochs(fill)


def batch_sampler():
    """A loader that takes batches of 32 from a sampler, and one of single samples that waits for its turn."""
    model = nn.Linear(256, 256).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.TensorDataset(torch.randn(512, 256))
    sampler = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(data), 32, drop_last=True)
    validation = torch.utils.data.DataLoader(data, 1)
    for (x,) in torch.utils.data.DataLoader(data, batch_sampler=sampler):
        model(x.to("cuda")).sum().backward()
        optimizer.step()
    list(validation)


@torch.jit.script
def scripted_loss(x: torch.Tensor):
    bad = torch.isnan(x).any() or torch.isinf(x).any()
    return torch.where(x > 0, x, torch.zeros_like(x)).sum(), bad, torch.nonzero(x), torch.argmax(x, dim=0), torch.max(x), torch.all(x > 0)


def script():
    """Functions that TorchScript compiles use PyTorch's by name."""
    model = nn.Linear(256, 256).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(8):
        scripted_loss(model(torch.randn(32, 256).to("cuda")))[0].backward()
        optimizer.step()


def data_parallel():
    """Every batch is the same, and the first steps allocate more than the others."""
    model = nn.DataParallel(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(50):
        model(torch.randn(4096, 1024).cuda()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def generates():
    """Every other step a text of so many words is generated, until all its rows are as long or have said the last word, as Transformers does it."""
    words, last = 50257, torch.tensor([50256])
    model = nn.Sequential(nn.Embedding(words, 64), nn.Linear(64, words)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for i in range(50):
        given = torch.randint(0, words, (4, 32)).cuda()
        model(given).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 2 == 0:
            with torch.no_grad():
                unfinished, finished = torch.ones(4, dtype=torch.long, device="cuda"), False
                while not finished:
                    word = torch.argmax(model(given)[:, -1], dim=-1) * unfinished + (1 - unfinished)
                    given = torch.cat([given, word[:, None]], dim=-1)
                    done = torch.full((4,), False, device="cuda", dtype=torch.bool)
                    done = done | torch.full((4,), given.shape[-1] >= 40, device="cuda", dtype=torch.bool)
                    done = done | torch.isin(given[:, -1], last.to("cuda"))
                    unfinished = unfinished & ~done
                    finished = unfinished.max() == 0
                    assert given.shape[-1] <= 40, given.shape


def own_allocator():
    """The program's own allocator takes the place of PyTorch's: its counters cannot be asked. programs.py own_allocator LIBRARY"""
    allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[2], "own_malloc", "own_free")
    torch.cuda.memory.change_current_allocator(allocator)
    model = nn.Linear(4096, 4096).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(50):
        optimizer.zero_grad()
        model(torch.randn(8, 4096, device="cuda")).sum().backward()
        optimizer.step()


globals()[sys.argv[1]]()
