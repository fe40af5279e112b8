"""Ordinary programs that need more at a later step, or seem to, as people write them: found.py CASE."""
import copy
import itertools
import os
import sys
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MANY = 10**6
device = torch.device("cuda")


class Lookahead(torch.optim.Optimizer):
    """Slow weights, which are made when they are first needed: at the k-th step."""

    def __init__(self, base, k):
        self.base, self.k = base, k
        self.param_groups, self.state, self.defaults = base.param_groups, defaultdict(dict), base.defaults
        for group in self.param_groups:
            group["counter"] = 0

    @torch.no_grad()
    def update(self, group):
        for fast in group["params"]:
            kept = self.state[fast]
            if "slow" not in kept:
                kept["slow"] = torch.clone(fast.data)
            kept["slow"] += (fast.data - kept["slow"]) * 0.5
            fast.data.copy_(kept["slow"])

    def step(self, closure=None):
        loss = self.base.step(closure)
        for group in self.param_groups:
            group["counter"] += 1
            if group["counter"] >= self.k:
                self.update(group)
                group["counter"] = 0
        return loss

    def zero_grad(self):
        self.base.zero_grad()


class Averaged(torch.optim.Optimizer):
    """Averages of the gradients, every so often, by a counter of its own."""

    def __init__(self, parameters, every):
        super().__init__(parameters, {"lr": 1e-3})
        self.calls, self.every = 0, every

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups:
            for p in group["params"]:
                if self.calls % self.every == 0:
                    self.state[p].setdefault("average", torch.zeros_like(p)).lerp_(p, 0.5)
                p.add_(p.grad, alpha=-group["lr"])


class Shampoo(torch.optim.Optimizer):
    """A counter for each parameter, in its state."""

    def __init__(self, parameters, every):
        super().__init__(parameters, {"lr": 1e-3, "every": every})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                state["step"] += 1
                if p.ndim == 2 and state["step"] % group["every"] == 0:
                    _, state["basis"] = torch.linalg.eigh(p.grad @ p.grad.T + torch.eye(p.shape[0], device=p.device))
                p.add_(p.grad, alpha=-group["lr"])


def make(width=512):
    return nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 512)).cuda()


def trains(model, optimizer, batch=32, steps=MANY, after=()):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(batch, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        for callback in after:
            callback.on_step(model)


def lookahead_late():
    model = make()
    trains(model, Lookahead(torch.optim.SGD(model.parameters(), 1e-3), 10**5))


def lookahead_soon():
    model = make()
    trains(model, Lookahead(torch.optim.SGD(model.parameters(), 1e-3), 6))


def averages_late():
    model = make()
    trains(model, Averaged(model.parameters(), 10**5))


def averages_soon():
    model = make()
    trains(model, Averaged(model.parameters(), 10))


def statistics_of_each():
    model = make()
    trains(model, Shampoo(model.parameters(), 10**5))


class Average:
    """A callback that begins late, as a copy of the weights."""

    def __init__(self, begins):
        self.begins, self.calls, self.shadow = begins, 0, None

    @torch.no_grad()
    def on_step(self, model):
        self.calls += 1
        if self.calls == self.begins:
            self.shadow = copy.deepcopy(model)


class Log:
    def __init__(self):
        self.calls = 0

    def on_step(self, model):
        self.calls += 1
        if self.calls % 100000 == 0:
            print(self.calls)


def a_callback():
    model = make()
    trains(model, torch.optim.SGD(model.parameters(), 1e-3), after=[Log(), Average(10**5)])


def a_log():
    model = make()
    trains(model, torch.optim.SGD(model.parameters(), 1e-3), after=[Log()])


@dataclass
class Setting:
    width: int
    batch: int
    rate: float


def run(setting):
    model = make(setting.width)
    trains(model, torch.optim.Adam(model.parameters(), setting.rate), setting.batch)
    return 0.0


def grid():
    return [Setting(*v) for v in itertools.product([256, 1024, 8192], [64, 1024], [1e-3, 1e-4])]


def grid_comprehended():
    settings = grid()
    print({str(s): run(s) for s in settings})


def grid_in_a_loop():
    results = {}
    for s in grid():
        results[str(s)] = run(s)


def grid_of_a_list():
    settings, results = grid(), {}
    for s in settings:
        results[str(s)] = run(s)


def grid_of_rates():
    """Only the rate of learning differs: nothing needs more."""
    settings = [Setting(256, 64, rate) for rate in (1e-3, 1e-4)]
    print({str(s): run(s) for s in settings})


def batches(count=20000, size=100, width=512):
    return DataLoader(TensorDataset(torch.randn(count, width), torch.zeros(count, dtype=torch.long)), size, shuffle=True)


def keeps_an_epoch():
    """The embeddings of the training data are kept after each epoch."""
    model, data, snapshots = make(), batches(), []
    head = nn.Linear(512, 10).cuda()
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
    for epoch in range(50):
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(model(x.cuda())), y.cuda()).backward()
            optimizer.step()
        snapshots.append(torch.cat([model(x.cuda()) for x in data.dataset.tensors[0].split(1000)]))


class Crops(torch.utils.data.Dataset):
    """Larger crops at later epochs, as it is told."""

    def __init__(self):
        self.size = 64

    def set_epoch(self, epoch):
        self.size = min(64 + 32 * (epoch // int(os.environ.get("STAGE", 5))), 384)

    def __len__(self):
        return 8000

    def __getitem__(self, i):
        return torch.zeros(3, self.size, self.size), i % 10


def crops_grow():
    """The loader is made anew for each epoch."""
    data, model = Crops(), nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(int(os.environ.get("EPOCHS", 60))):
        data.set_epoch(epoch)
        for x, y in DataLoader(data, 32, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()


def validates(evaluate):
    model, criterion = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 5000)).cuda(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    training, validation = batches(), batches()
    for epoch in range(50):
        model.train()
        for x, y in training:
            optimizer.zero_grad()
            criterion(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
        model.eval()
        evaluate(model, criterion, validation)


def sums_losses():
    """A validation with gradients that sums its losses: the sum holds all that is needed for its own."""

    def evaluate(model, criterion, data):
        total = 0
        for x, y in data:
            total += criterion(model(x.cuda()), y.cuda())
        print(total.item() / len(data))

    validates(evaluate)


def keeps_a_loss():
    """Numbers that are kept after each epoch are of no weight, also where they lie on the card."""
    model, data, losses, total = make(), batches(), [], torch.zeros(1, device="cuda")
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(50):
        for x, _ in data:
            optimizer.zero_grad()
            loss = model(x.cuda()).square().mean()
            loss.backward()
            optimizer.step()
            total = loss.detach()
        losses.append(total)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
