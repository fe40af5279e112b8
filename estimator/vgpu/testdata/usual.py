"""Programs whose later steps need what the first ones need, written as most are: usual.py CASE. None of them may lower the confidence."""
import argparse
import collections
import copy
import math
import os
import random
import sys
import time

import torch
from torch import nn

args = argparse.Namespace(epochs=90, every=1000, warmup=500, accumulate=4, clip=1.0, ema=None, resume="", world=1, lr=0.1, bptt=35, schedule=[30, 60])
cfg = {"train": {"log": 100, "save": 5000}, "name": "usual"}


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = self.count = self.avg = self.val = 0

    def update(self, value, n=1):
        self.val = value
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


class Net(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.register_buffer("steps", torch.zeros(1))
        self.calls, self.again = 0, False

    def forward(self, x):
        batch, width = x.shape
        self.calls += 1
        self.steps += 1
        if self.again:
            for _ in range(random.randrange(4)):
                x = self.layers[0](x)
        mask = torch.where(x[:, :1] > 0, torch.ones(batch, 1, device=x.device), torch.ones(batch, 1, device=x.device))
        for i, layer in enumerate(self.layers):
            x = layer(x) if i == 0 else x + layer(x) * mask
        return x[:, : width // 2]


def rate(step):
    if step < args.warmup:
        return args.lr * step / args.warmup
    return 0.5 * args.lr * (1 + math.cos(math.pi * min(1.0, step / 100000)))


def save_checkpoint(state, is_best, name="/tmp/gresize-usual.pt"):
    torch.save(state, name)
    if is_best:
        torch.save(state, name + ".best")


def log(step, meters, begin):
    print("step %d of %s: %s, %.1f s" % (step, cfg["name"], ", ".join("%s %.3f" % (k, m.avg) for k, m in meters.items()), time.time() - begin), file=sys.stderr)


def accuracy(output, target):
    with torch.no_grad():
        _, found = output.topk(1, 1)
        return found.t().eq(target.view(1, -1)).reshape(-1).float().sum(0).mul_(100.0 / target.size(0))


def loader(size=32, count=4096):
    data = torch.utils.data.TensorDataset(torch.randn(count, 256), torch.randint(0, 128, (count,)))
    return torch.utils.data.DataLoader(data, size, shuffle=True)


def train_epoch(batches, model, criterion, optimizer, epoch, device):
    losses, top = Meter(), Meter()
    begin = time.time()
    model.train()
    for i, (images, target) in enumerate(batches):
        images, target = images.to(device), target.to(device)
        if args.ema is not None:
            args.ema.update(model)
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        top.update(accuracy(output, target).item(), images.size(0))
        if not math.isfinite(loss.item()):
            sys.exit(1)
        optimizer.zero_grad()
        loss.backward()
        if args.clip:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if i % args.every == 0 or i == len(batches) - 1:
            log(epoch * len(batches) + i, {"loss": losses, "top": top}, begin)
    return losses.avg


@torch.no_grad()
def validate(batches, model, criterion, device):
    losses = Meter()
    model.eval()
    for images, target in batches:
        losses.update(criterion(model(images.to(device)), target.to(device)).item(), images.size(0))
    return losses.avg


def epochs():
    device = torch.device("cuda")
    model = Net().to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, args.schedule)
    train, test = loader(), loader()
    for epoch in range(args.epochs):
        train_epoch(train, model, criterion, optimizer, epoch, device)
        validate(test, model, criterion, device)
        scheduler.step()
        save_checkpoint({"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, epoch % 10 == 0)
    print("done")
    torch.save(model.state_dict(), "/tmp/gresize-usual.pt")


def step_counter():
    """A loop over steps with a schedule, gathered gradients, a log, checkpoints and an end."""
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    scaler = torch.amp.GradScaler("cuda", enabled=False) if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler") else None
    data = torch.randn(4096, 256)
    step, best, history, recent = 0, float("inf"), [], collections.deque(maxlen=20)
    begin = time.time()
    while True:
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        total = 0.0
        for _ in range(args.accumulate):
            picked = torch.randint(len(data) - 32, (32,))
            loss = model(data[picked].cuda()).square().mean() / args.accumulate
            total += loss.item()
            loss.backward() if scaler is None else scaler.scale(loss).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(total)
        history.append(total)
        if step % cfg["train"]["log"] == 0:
            print(step, sum(recent) / len(recent), time.time() - begin, file=sys.stderr)
        if step % cfg["train"]["save"] == 0 and step > 0:
            best = min(best, total)
            save_checkpoint({"step": step, "model": model.state_dict(), "history": history, "config": copy.deepcopy(cfg)}, total == best)
        step += 1
        if step > 600000:
            break


def slices():
    """Batches that are cut out of one tensor, each as long as the others."""
    data, order = torch.randn(1 << 20, 256), torch.randperm(1 << 20)
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    for epoch in range(args.epochs):
        for batch, i in enumerate(range(0, data.size(0) - 1, args.bptt)):
            length = min(args.bptt, len(data) - 1 - i)
            x = data[i : i + length]
            y = data[order[batch * 32 : (batch + 1) * 32]]
            optimizer.zero_grad()
            (model(x.cuda()).square().mean() + model(y.cuda()).mean()).backward()
            optimizer.step()
            if batch % 2000 == 0 and batch > 0:
                print(epoch, batch, flush=True)


def two_networks():
    """Labels of the size of the batch, noise, and pictures of both every so often."""
    device = torch.device("cuda:0")
    maker, judge = Net().to(device), Net().to(device)
    one, other = torch.optim.Adam(judge.parameters()), torch.optim.Adam(maker.parameters())
    fixed = torch.randn(64, 256, device=device)
    for epoch in range(args.epochs):
        for i, (real, _) in enumerate(loader(64), 0):
            real = real.to(device)
            size = real.size(0)
            label = torch.full((size,), 1.0, dtype=real.dtype, device=device)
            judge.zero_grad()
            (judge(real).mean(1) - label).square().mean().backward()
            fake = maker(torch.randn(size, 256, device=device))
            judge(torch.cat([fake, fake], 1).detach()).mean().backward()
            one.step()
            maker.zero_grad()
            judge(torch.cat([fake, fake], 1)).mean().backward()
            other.step()
            if i % 100 == 0:
                with torch.no_grad():
                    print("[%d/%d] %s" % (epoch, i, tuple(maker(fixed).shape)), file=sys.stderr)


def phases_of_an_epoch():
    """The two phases of a much copied tutorial, and its best weights."""
    device = torch.device("cuda")
    batches = {name: loader() for name in ("train", "val")}
    sizes = {name: len(b.dataset) for name, b in batches.items()}
    model = Net().to(device)
    optimizer, criterion = torch.optim.SGD(model.parameters(), 0.01), nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        print("Epoch {}/{}".format(epoch, args.epochs - 1))
        for phase in ["train", "val"]:
            model.train() if phase == "train" else model.eval()
            running = 0.0
            for inputs, labels in batches[phase]:
                inputs, labels = inputs.to(device), labels.to(device)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    loss = criterion(model(inputs), labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running += loss.item() * inputs.size(0)
            print("{} {:.4f}".format(phase, running / sizes[phase]))
            if phase == "val" and epoch % 10 == 0:
                torch.save(model.state_dict(), os.path.join("/tmp", "gresize-usual.pt"))


def gathers():
    """Gradients are gathered over several batches, and what is left of an epoch is not lost."""
    batches, model = loader(), Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    updates = 0
    for epoch in range(args.epochs):
        for i, (x, _) in enumerate(batches):
            loss = model(x.cuda()).square().mean()
            loss.backward()
            if (i + 1) % args.accumulate == 0 or i + 1 == len(batches):
                optimizer.step()
                optimizer.zero_grad()
                updates += 1
                if updates % 500 == 0:
                    print(updates, float(loss), random.random())


def asks_for_its_names():
    """Names that a function asked for are not taken from it."""
    width, depth = 256, 4
    settings = locals()
    model = Net(settings["width"]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for i in range(10**6):
        optimizer.zero_grad()
        model(torch.zeros(depth, settings["width"], device="cuda")).square().mean().backward()
        optimizer.step()


def asks_for_settings():
    """vars() of something is no question for the function's own names, which stay known: this branch is taken at every step, and was."""
    batches, model = loader(), Net().cuda()
    print(sorted(vars(args)), file=sys.stderr)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    often, total = 1, 0
    for i, (x, _) in enumerate(batches):
        optimizer.zero_grad()
        loss = model(x.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        reports = (i + 1) % often == 0
        if reports:
            average = total / often
            print(i, file=sys.stderr)
            total = 0
        if math.isnan(average):
            break


class Trainer:
    def __init__(self):
        self.model = Net().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.step, self.epoch, self.best, self.callbacks = 0, 0, None, [self.report]
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / args.warmup))

    def report(self, loss):
        if self.step % args.every == 0:
            print(self.step, loss, file=sys.stderr)

    def save(self):
        torch.save({"model": self.model.state_dict(), "step": self.step, "epoch": self.epoch}, "/tmp/gresize-usual.pt")

    def update(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x.cuda(non_blocking=True)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        return loss.detach()

    def fit(self):
        while self.epoch < args.epochs:
            for x, _ in loader():
                loss = self.update(x)
                for callback in self.callbacks:
                    callback(loss.item())
                if self.step % 2000 == 0:
                    self.save()
                if self.step >= 10**6:
                    return
            self.epoch += 1


def trainer():
    Trainer().fit()


class Optimizers:
    """Several optimizers that make one step together; the loop over them is not the one that trains."""

    def __init__(self, networks):
        self.all = [torch.optim.Adam(network.parameters()) for network in networks]

    def zero_grad(self):
        for optimizer in self.all:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.all:
            optimizer.step()


class Several:
    def __init__(self):
        self.networks, self.step = [Net().cuda(), Net(128).cuda()], 0
        self.optimizers = Optimizers(self.networks)
        self.mean = torch.zeros((), device="cuda")

    def update(self):
        losses = []
        self.optimizers.zero_grad()
        for network, width in zip(self.networks, (256, 128)):
            loss = network(torch.zeros(32, width, device="cuda")).square().mean()
            loss.backward()
            losses.append(loss.detach())
        self.optimizers.step()
        self.mean = torch.sum(torch.stack(losses)) + self.mean * 0.9

    def fit(self):
        while self.step < args.every:
            self.step += 1
            self.update()


def several_optimizers():
    Several().fit()


def master_weights():
    """Weights of half precision, and a list of copies of several lengths that the optimizer has."""
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 8)).cuda().half()
    masters = [p.detach().clone().float() for p in net.parameters()]
    optimizer = torch.optim.Adam(masters)
    for _ in range(10**6):
        net(torch.zeros(32, 256, device="cuda", dtype=torch.half)).square().mean().backward()
        for parameter, master in zip(net.parameters(), masters):
            master.grad, parameter.grad = parameter.grad.float(), None
        optimizer.step()
        for master in masters:
            master.grad = None


if __name__ == "__main__":
    globals()[sys.argv[1]]()
