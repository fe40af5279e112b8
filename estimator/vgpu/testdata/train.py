"""Small training jobs for torch_test.go: train.py CASE. Nothing in here knows that the GPU is virtual."""
import os
import sys

import torch
from torch import nn

DEVICE = "cuda"
cross_entropy = nn.CrossEntropyLoss()


def train(model, batch, loss_of, optimizer=None, scaler=None, autocast=None, steps=50):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=autocast or torch.float16, enabled=autocast is not None):
            loss = loss_of(model(x), y)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        print(loss.item())


def mlp():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)).to(DEVICE)
    train(model, lambda: (torch.randn(256, 1024, device=DEVICE), torch.randint(0, 10, (256,), device=DEVICE)), cross_entropy)


def cnn():
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).to(DEVICE, memory_format=torch.channels_last)
    dataset = torch.utils.data.TensorDataset(torch.randn(512, 3, 64, 64), torch.randint(0, 10, (512,)))
    loader = torch.utils.data.DataLoader(dataset, 64, num_workers=2, pin_memory=True)
    batches = iter([b for _ in range(7) for b in loader])

    def batch():
        x, y = next(batches)
        assert x.is_pinned()
        return x.to(DEVICE, memory_format=torch.channels_last, non_blocking=True), y.to(DEVICE, non_blocking=True)

    train(model, batch, cross_entropy, scaler=(getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler)(), autocast=torch.float16)


def transformer():
    layers = [nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4)]
    model = nn.Sequential(*layers, nn.Linear(512, 1000)).to(DEVICE)

    def batch():
        return torch.randn(8, 128, 512, device=DEVICE), torch.randint(0, 1000, (8 * 128,), device=DEVICE)

    train(model, batch, lambda out, y: cross_entropy(out.flatten(0, 1), y), autocast=torch.bfloat16)


def lstm():
    model = nn.LSTM(128, 256, 2, batch_first=True).to(DEVICE)
    train(model, lambda: (torch.randn(32, 100, 128, device=DEVICE), None), lambda out, y: out[0].mean())


def by_hand():
    """No optimizer object at all."""
    model = nn.Linear(256, 256).to(DEVICE)
    while True:
        model(torch.randn(32, 256, device=DEVICE)).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None


def too_large():
    torch.empty(100 << 30, dtype=torch.uint8, device=DEVICE)


def retry():
    """Cached blocks have to be given back before the third one fits."""
    a = torch.empty(15 << 30, dtype=torch.uint8, device=DEVICE)
    b = torch.empty(60 << 30, dtype=torch.uint8, device=DEVICE)
    del a
    c = torch.empty(17 << 30, dtype=torch.uint8, device=DEVICE)
    train(nn.Linear(64, 64).to(DEVICE), lambda: (torch.randn(8, 64, device=DEVICE), None), lambda out, y: out.mean())
    print(b.shape, c.shape)


def graphs():
    model = nn.Linear(64, 64).to(DEVICE)
    x = torch.randn(8, 64, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).sum().backward()
    graph.replay()
    # values that came from the host are still themselves
    assert torch.tensor([3, 1, 2]).to(DEVICE).tolist() == [3, 1, 2]
    torch.fft.rfft(torch.randn(64, 1024, device=DEVICE))
    a = torch.randn(64, 64, device=DEVICE)
    for f in (torch.linalg.qr, torch.linalg.svd, torch.linalg.eigh, torch.linalg.inv, torch.linalg.cholesky_ex):
        f(a)
    nn.CTCLoss(reduction="sum")(
        torch.randn(50, 8, 29, device=DEVICE).log_softmax(2), torch.randint(1, 29, (80,), dtype=torch.int32), (50,) * 8, (10,) * 8
    )


def decides():
    """The batch depends on the loss: what is zero here is not zero on a real card."""
    model = nn.Linear(256, 256).to(DEVICE)
    size = [32]

    def loss_of(out, y):
        loss = out.pow(2).mean()
        if loss.item() > 0.5:
            size[0] = 1 << 16
        return loss

    train(model, lambda: (torch.randn(size[0], 256, device=DEVICE), None), loss_of)


def masked():
    """As many rows as a mask has ones, which on a card without values is none."""
    model = nn.Linear(256, 256).to(DEVICE)

    def batch():
        x = torch.randn(1024, 256, device=DEVICE)
        return x[x.sum(1) > 0], None

    train(model, batch, lambda out, y: out.sum())


def killed_early():
    """As the kernel does it for want of host memory, before anything was counted."""
    torch.empty(1 << 30, device=DEVICE)
    os._exit(0)


def swallowed():
    """The program fails after some steps, as on values that no kernel computed."""
    model = nn.Linear(256, 256).to(DEVICE)
    torch.cuda.set_per_process_memory_fraction(0.5)
    train(model, lambda: (torch.randn(8, 256, device=DEVICE), None), lambda out, y: out.sum(), steps=3)
    raise ValueError("validation was never reached")


def guards():
    """Guards against NaN and printed values decide nothing in a healthy run; a second loader waits for its turn."""
    model = nn.Linear(256, 256).to(DEVICE)
    data = torch.utils.data.TensorDataset(torch.randn(512, 256), torch.zeros(512))
    loader = torch.utils.data.DataLoader(data, 32)
    validation = torch.utils.data.DataLoader(data, int(sys.argv[2]) if len(sys.argv) > 2 else 16)
    batches = iter([b for _ in range(7) for b in loader])

    def loss_of(out, y):
        loss = out.pow(2).mean()
        if torch.isnan(loss) or torch.isinf(out).any():
            raise SystemExit("diverged")
        print("%.3f %.3f %.3f" % (loss.item(), loss.item(), loss.item() + 1))
        return loss

    train(model, lambda: [t.to(DEVICE) for t in next(batches)], loss_of)
    list(validation)


globals()[sys.argv[1]]()
