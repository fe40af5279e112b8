"""Programs that keep something of each step, or of some: kept.py CASE."""
import sys

import torch
from torch import nn

MANY = 10**6
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept = []


def step():
    optimizer.zero_grad()
    out = model(torch.zeros(64, 512, device="cuda"))
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    return out.detach(), loss.detach()


def losses():
    for epoch in range(2):
        for i in range(5000):
            kept.append(step()[1])


def losses_for_ever():
    while True:
        kept.append(step()[1])


def outputs():
    for i in range(MANY):
        kept.append(step()[0])


class Bank:
    def __init__(self):
        self.x, self.n = None, 0

    def add(self, x):
        self.n += 1
        if self.n % 500 == 0:
            self.x = x if self.x is None else torch.cat((self.x, x), 0)


class Watched(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.n = nn.Linear(512, 512), 0
        self.register_buffer("seen", torch.zeros(0, 512))

    def forward(self, x):
        y = self.linear(x)
        self.n += 1
        if self.n % 500 == 0:
            self.seen = torch.cat([self.seen, y.detach()])
        return y


def in_a_table():
    table = {}
    for i in range(MANY):
        out, _ = step()
        if i % 500 == 499:
            table.setdefault("outputs", []).append(out)


def sums_of_lists():
    all_of_it = []
    for i in range(MANY):
        out, _ = step()
        if i % 500 == 499:
            all_of_it = all_of_it + [out]


def sums_of_tuples():
    all_of_it = ()
    for i in range(MANY):
        out, _ = step()
        if i % 10 == 9:
            all_of_it = all_of_it + (out,)


def after_epochs():
    features = []
    for epoch in range(100):
        for i in range(MANY):
            out, _ = step()
        features += [out]


def joins():
    bank = torch.empty(0, 512, device="cuda")
    for i in range(MANY):
        out, _ = step()
        if i % 10 == 9:
            bank = torch.cat([bank, out])


def joins_in_an_object():
    bank = Bank()
    for i in range(MANY):
        bank.add(step()[0])


def joins_in_a_buffer():
    watched = Watched().cuda()
    optimizer = torch.optim.SGD(watched.parameters(), 0.01)
    for i in range(MANY):
        optimizer.zero_grad()
        watched(torch.zeros(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()


def some_losses():
    for i in range(MANY // 10):
        _, loss = step()
        if i % 500 == 499:
            kept.append(loss)


def a_queue():
    """It stays as long as it is."""
    queue = torch.zeros(1024, 512, device="cuda")
    for i in range(MANY):
        out, _ = step()
        if i % 10 == 9:
            queue = torch.cat([queue, out])[-1024:]


def begins_anew():
    """What is joined is made anew each time."""
    for i in range(MANY):
        out, _ = step()
        if i % 10 == 9:
            text = out[:1]
            for _ in range(4):
                text = torch.cat([text, out[:1]])
            print(text.shape)


def prefetches(waits=False):
    """A real card's host runs ahead, and what the other stream has brought stays taken until the card is done with it."""
    side, held = torch.cuda.Stream(), torch.randn(4096, 512).pin_memory()

    def fetch():
        with torch.cuda.stream(side):
            return held.to("cuda", non_blocking=True)

    following = fetch()
    for i in range(MANY):
        torch.cuda.current_stream().wait_stream(side)
        batch = following
        batch.record_stream(torch.cuda.current_stream())
        following = fetch()
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if waits:
            loss.item()


def prefetches_and_waits():
    prefetches(True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
