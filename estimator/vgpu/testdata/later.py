"""Loops without a data loader in which something comes at a later step: later.py CASE."""
import argparse
import sys

import torch
from torch import nn

SMALL, LARGE, MANY = 64, 65536, 10**5
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
args = argparse.Namespace(every=20000, grow_at=15)


def step(size):
    optimizer.zero_grad()
    model(torch.zeros(size, 512, device="cuda")).square().mean().backward()
    optimizer.step()


@torch.no_grad()
def evaluate(network, size):
    network(torch.zeros(size, 512, device="cuda"))


def grows_soon():
    size = SMALL
    for i in range(MANY):
        if i == args.grow_at:
            size = LARGE
        step(size)


def chooses_soon():
    i = 0
    while True:
        step(SMALL if i < 20 else LARGE)
        i += 1


def grows_while_it_gathers():
    size = SMALL
    for i in range(MANY):
        model(torch.zeros(size, 512, device="cuda")).square().mean().backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if i == 60:
            size = LARGE


def grows_late():
    size = SMALL
    for i in range(MANY):
        if i % args.every == args.every - 1:
            size *= 2
        step(size)


def trains_otherwise_late():
    for i in range(MANY):
        step(SMALL)
        if i > args.every:
            model(torch.zeros(LARGE, 512, device="cuda")).sum().backward()


def validates_more_behind():
    training, validation = torch.zeros(SMALL, 512, device="cuda"), torch.zeros(LARGE, 512, device="cuda")
    for _ in range(3):
        for i in range(MANY):
            step(training.shape[0])
        with torch.no_grad():
            model(validation)


def evaluates_late():
    for i in range(MANY):
        step(SMALL)
        if (i + 1) % args.every == 0:
            evaluate(model, SMALL)


def ordinary():
    """What most loops do: logging, a schedule of the learning rate, the best loss, a checkpoint, an end."""
    rate, best, running = 0.1, float("inf"), 0.0
    for i in range(MANY):
        if i % 7 == 0:
            print("step", i, file=sys.stderr)
        if i in (10000, 20000):
            rate *= 0.1
            for group in optimizer.param_groups:
                group["lr"] = rate
        step(SMALL)
        running += 1.0
        if i % args.every == args.every - 1:
            print("mean %.3f" % (running / args.every), best)
            running, best = 0.0, min(best, running)
            torch.save({"model": model.state_dict(), "step": i}, "/tmp/checkpoint.pt")
        if i >= MANY - 2:
            break
    print("done")
    torch.save(model.state_dict(), "/tmp/last.pt")


def validates_more_at_the_end():
    validation = torch.zeros(LARGE, 512, device="cuda")
    for _ in range(30):
        step(SMALL)
    with torch.no_grad():
        model(validation)


def takes_long_at_the_end():
    import time

    for _ in range(30):
        step(SMALL)
    time.sleep(100)
    with torch.no_grad():
        model(torch.zeros(LARGE, 512, device="cuda"))


def ends_before():
    """The larger step never comes: the loop is left before."""
    i = 0
    while True:
        step(SMALL)
        if i > 0 and i % args.every == 0:
            step(LARGE)
        i += 1
        if args.every >= 0 and i >= args.every - 100:
            break


def ends_behind():
    i = 0
    while True:
        step(SMALL)
        if i > 0 and i % args.every == 0:
            step(LARGE)
        i += 1
        if args.every >= 0 and i >= args.every + 100:
            break


globals()[sys.argv[1]]()
