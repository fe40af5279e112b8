"""Programs that need more at a later step, in ways that the tests of their loop do not spell out: ahead.py CASE. Steps cost nothing, and no case ends by itself."""
import argparse
import atexit
import contextlib
import copy
import heapq
import itertools
import multiprocessing
import os
import random
import sys
import threading
import time

import torch
from torch import nn

SMALL, LARGE, MANY = 64, 65536, 10**7
cfg = {"swa_start": 20000, "sizes": [SMALL, LARGE]}
kept = []


def make(width=512):
    return nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, 512)).cuda()


def step(size):
    optimizer.zero_grad()
    model(torch.zeros(size, 512, device="cuda")).square().mean().backward()
    optimizer.step()


def large():
    return torch.zeros(LARGE, 512, device="cuda")


def sizes_of_a_tuple():
    for size in (SMALL, LARGE):
        for _ in range(MANY):
            step(size)


def sizes_of_a_setting():
    for size in cfg["sizes"]:
        for i in range(MANY):
            step(size)


def sizes_by_arithmetic():
    for i in range(MANY):
        step(SMALL + i // 1000 * SMALL)


def sizes_doubled():
    for epoch in range(12):
        batch = SMALL * 2**epoch
        for i in range(1000000):
            step(batch)


def part_of_a_sequence():
    data = torch.zeros(LARGE, 512, device="cuda")
    for i in range(MANY):
        length = min(LARGE, SMALL + i // 100)
        optimizer.zero_grad()
        model(data[:length]).square().mean().backward()
        optimizer.step()


def wider_models():
    global model, optimizer
    for width in [512, 4096]:
        model = make(width)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for i in range(MANY):
            step(SMALL)


def setting_of_a_table():
    for i in range(MANY):
        step(SMALL)
        if i == cfg["swa_start"]:
            kept.append(copy.deepcopy(model))


def derived():
    for i in range(MANY):
        epoch = i // 1000
        if epoch > 50:
            step(LARGE)
        step(SMALL)


def a_float():
    for i in range(MANY):
        if i / 40000 > 0.5:
            step(LARGE)
        step(SMALL)


def two_deep():
    trainer = argparse.Namespace(state=argparse.Namespace(step=0))
    while True:
        trainer.state.step += 1
        if trainer.state.step > 20000:
            step(LARGE)
        step(SMALL)


def copies():
    big = torch.zeros(SMALL, 512, device="cuda")
    for i in range(MANY):
        step(SMALL)
        if i % 20000 == 19999:
            big = copy.deepcopy(kept + [big])


def helper_allocates():
    for i in range(MANY):
        step(SMALL)
        if i == 20000:
            held = large()
            kept.append(held)


def far():
    for i in range(MANY):
        if i == 5000000:
            step(LARGE)
        step(SMALL)


def another_epoch():
    for epoch in range(10):
        for i in range(1000000):
            step(LARGE if epoch > 5 else SMALL)


def counts_epochs():
    epoch = i = 0
    while True:
        i += 1
        if i % 100000 == 0:
            epoch += 1
        if epoch == 3:
            step(LARGE)
        step(SMALL)


def gathers_more():
    for i in range(MANY):
        optimizer.zero_grad()
        loss = 0
        for _ in range(1 + i // 5000):
            loss = loss + model(torch.zeros(SMALL, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()


def keep(i, tensor):
    if i % 100 == 0:
        kept.append(tensor.detach())


def keeps_some():
    for i in range(MANY):
        x = torch.zeros(SMALL, 512, device="cuda")
        optimizer.zero_grad()
        y = model(x)
        y.square().mean().backward()
        optimizer.step()
        keep(i, y)


def keeps_all():
    first = torch.zeros(LARGE, 512, device="cuda")
    del first
    for i in range(MANY):
        step(SMALL)
        kept.append(torch.zeros(SMALL, device="cuda"))


class Average:
    def __init__(self):
        self.calls, self.shadow = 0, None

    def update(self, network):
        self.calls += 1
        if self.calls == 30000:
            self.shadow = copy.deepcopy(network)


def average_begins_late():
    average = Average()
    for i in range(MANY):
        step(SMALL)
        average.update(model)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = make(), 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 30000:
            x = x.repeat(64, 1)
        return self.inner(x)


def model_counts():
    global model, optimizer
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for i in range(MANY):
        step(SMALL)


seen = {"calls": 0}


def hook(module, args, output):
    seen["calls"] += 1
    if seen["calls"] > 30000:
        kept.append(output.detach())


def a_hook_counts():
    model[0].register_forward_hook(hook)
    for i in range(MANY):
        step(SMALL)


def by_chance():
    for i in range(MANY):
        step(LARGE if random.random() < 1e-6 else SMALL)


def after_a_time():
    begin = time.time()
    for i in range(MANY):
        if time.time() - begin > 3600:
            step(LARGE)
        step(SMALL)


def batches():
    size = SMALL
    for i in range(MANY):
        if i % 1000 == 999:
            size += SMALL
        yield torch.zeros(size, 512, device="cuda")


def a_generator_grows():
    for x in batches():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return LARGE * 8

    def __getitem__(self, i):
        return torch.zeros(SMALL + i // 1000, 512)


def fed(loader):
    for x in loader:
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()


def items_grow():
    fed(torch.utils.data.DataLoader(Items(), 2))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for i in range(MANY):
            yield torch.zeros(SMALL + i // 100000, 512)


def a_stream_grows():
    fed(torch.utils.data.DataLoader(Stream(), 2))


class Collate:
    def __init__(self):
        self.calls = 0

    def __call__(self, items):
        self.calls += 1
        return torch.stack(items).repeat(1 + self.calls // 10000, 1)


def a_collate_grows():
    fed(torch.utils.data.DataLoader(torch.zeros(LARGE * 8, 512), SMALL, collate_fn=Collate()))


def lengths_vary():
    lengths = [32 + (7 * i) % 31 for i in range(4096)]
    fed(torch.utils.data.DataLoader([torch.zeros(n, 512) for n in lengths], None, shuffle=False))


def a_thread_waits():
    timer = threading.Timer(3600, large)
    timer.daemon = True
    timer.start()
    for i in range(MANY):
        step(SMALL)


def waits():
    time.sleep(3600)
    kept.append(large())


def a_thread_sleeps():
    threading.Thread(target=waits, daemon=True).start()
    for i in range(MANY):
        step(SMALL)


def at_the_end():
    atexit.register(large)
    for i in range(MANY):
        step(SMALL)


class Last:
    def __del__(self):
        kept.append(large())


def when_it_goes():
    last = Last()
    for i in range(MANY):
        step(SMALL)
    print(last)


def child(seconds):
    time.sleep(seconds)
    held = torch.zeros(LARGE, 512, device="cuda")
    for i in range(MANY):
        step(SMALL)
    print(held)


def four_processes():
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=child, args=(n,)) for n in range(3)]
    for c in children:
        c.start()
    for i in range(MANY):
        step(SMALL)


def backward(x):
    optimizer.zero_grad()
    x.square().mean().backward()
    optimizer.step()


def data():
    return torch.zeros(SMALL, 512, device="cuda")


def gradients_by_a_question():
    for i in range(MANY):
        with torch.set_grad_enabled(i >= 20000):
            x = model[0](data())
        backward(model[2](x))


def a_context_is_chosen():
    for i in range(MANY):
        ctx = torch.no_grad() if i < 20000 else contextlib.nullcontext()
        with ctx:
            x = model[0](data())
        backward(model[2](x))


def thaws_by_a_question():
    for i in range(MANY):
        for p in model[0].parameters():
            p.requires_grad = i >= 20000
        backward(model(data()))


def thaws_in_passing():
    model[0].requires_grad_(False)
    for i in range(MANY):
        i == 20000 and model[0].requires_grad_(True)
        backward(model(data()))


def thaw():
    for p in model[0].parameters():
        p.requires_grad = True


def nothing():
    pass


def by_a_plan():
    model[0].requires_grad_(False)
    plan = {20000: thaw}
    for i in range(MANY):
        plan.get(i, nothing)()
        backward(model(data()))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.depth = nn.ModuleList(make() for _ in range(6)), 1

    def forward(self, x):
        for i in range(self.depth):
            x = self.layers[i](x)
        return x


def deeper():
    net = Deep()
    for i in range(MANY):
        net.depth = min(6, 1 + i // 5000)
        backward(net(data()))


class State:
    def __init__(self):
        self.step = 0

    @property
    def warm(self):
        return self.step < 20000


def a_property():
    state = State()
    while True:
        state.step += 1
        if not state.warm:
            step(LARGE)
        step(SMALL)


def updates_a_setting():
    settings = {"large": False}
    for i in range(MANY):
        settings.update(large=i >= 20000)
        if settings["large"]:
            step(LARGE)
        step(SMALL)


def a_sum_of_more():
    for i in range(MANY):
        backward(sum(model(data()) for _ in range(1 + i // 5000)))


def a_list_times_more():
    for i in range(MANY):
        x, k = data(), 1 + i // 5000
        backward(model(torch.cat([x] * k)))


def goes_round_more():
    for i in range(MANY):
        x, k = model(data()), 0
        while k < i // 5000:
            x = model(x)
            k += 1
        backward(x)


def by_chance_of_torch():
    for i in range(MANY):
        if torch.rand(1).item() < 1e-6:
            step(LARGE)
        step(SMALL)


def keeps_by_key():
    snapshots = {}
    for i in range(MANY):
        x = model(data())
        if i % 5000 == 4999:
            snapshots.update({i: x.detach()})
        backward(x)


def keeps_on_a_heap():
    heap = []
    for i in range(MANY):
        x = model(data())
        if i % 5000 == 4999:
            heapq.heappush(heap, (i, x.detach()))
        backward(x)


def bar(turns, text=""):
    for turn in turns:
        yield turn


def in_a_bar():
    """What shows how far it is goes through the range."""
    for i in bar(range(MANY), text="trains"):
        step(LARGE if i > 20000 else SMALL)


def enumerated():
    for n, i in enumerate(range(5, MANY)):
        if n == 20000:
            step(LARGE)
        step(SMALL)


def beside_others():
    for i, rate in zip(range(MANY), itertools.repeat(0.1)):
        if i // 1000 > 50:
            step(LARGE)
        step(SMALL)


def backwards():
    for left in reversed(range(MANY)):
        if left == 1000:
            step(LARGE)
        step(SMALL)


def by_a_bar_of_a_library():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
    from tqdm import trange

    for i in trange(MANY, desc="trains"):
        step(LARGE if i > 20000 else SMALL)


model = make()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
if __name__ == "__main__":
    globals()[sys.argv[1]]()
