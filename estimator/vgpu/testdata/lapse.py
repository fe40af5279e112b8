"""Programs whose later steps need more, by what no source of theirs says: lapse.py CASE. Each ends by itself, some after hours on a real card."""
import os
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import skeleton  # noqa: E402

WIDE = 4096


def network(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).cuda()


def loader(batches, size=64):
    return torch.utils.data.DataLoader([(torch.zeros(64), i % 10) for i in range(batches * size)], size)


class Mlp:
    def __init__(self, width):
        self.width = width

    def fit(self, x, y):
        net = network(self.width)
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        for _ in range(20):
            for i in range(0, len(x), 64):
                optimizer.zero_grad()
                cross_entropy(net(x[i : i + 64].cuda()), y[i : i + 64].cuda()).backward()
                optimizer.step()


def a_search():
    skeleton.search(Mlp, [64, 512, WIDE], torch.zeros(640, 64), torch.zeros(640, dtype=torch.int64))


def unfrozen(at=30):
    net = nn.Sequential(nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)]), nn.Linear(1024, 10)).cuda()
    net[0].requires_grad_(False)
    data = torch.utils.data.DataLoader([(torch.zeros(1024), i % 10) for i in range(64 * 500)], 64)
    skeleton.Trainer(40, [skeleton.Unfreezing(at)]).fit(net, data, cross_entropy, torch.optim.AdamW(net[1].parameters()))


def a_second_fit():
    for width in (64, WIDE):
        net = network(width)
        skeleton.Trainer(20).fit(net, loader(20), cross_entropy, torch.optim.SGD(net.parameters(), 0.01, momentum=0.9))


def fails_later():
    """A metric of a library fails, as the program's own batches would not make it."""
    net = network(64)
    skeleton.Trainer(2).fit(net, loader(400), cross_entropy, torch.optim.Adam(net.parameters()))
    for _ in range(2):
        print(skeleton.mean(loader(99), net, cross_entropy))


def counts_batches():
    """A schedule of all steps, an assertion on how many batches there were, an average."""
    net, data, count, sums = network(64), loader(60), 0, 0.0
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=3, steps_per_epoch=len(data))
    for epoch in range(3):
        for n, batch in enumerate(data):
            x, y = batch
            batch.clear()
            optimizer.zero_grad()
            loss = cross_entropy(net(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            schedule.step()
            count, sums = count + 1, sums + loss.item()
        assert n + 1 == len(data) and count == (epoch + 1) * len(data), (n, count)
        print(skeleton.mean(loader(150, 16), net, cross_entropy), sums / count)
    print("counted", count)


def a_checkpoint_too_many():
    """One for each epoch, which the disk of a probe has no room for."""
    folder = tempfile.mkdtemp()
    net, data = network(64), loader(400)
    for epoch in range(40):
        skeleton.Trainer(1).fit(net, data, cross_entropy, torch.optim.Adam(net.parameters()))
        torch.save({"model": net.state_dict(), "epoch": torch.zeros(1 << 24)}, os.path.join(folder, "%d.pt" % epoch))
        written = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
        assert written < 1 << 30, written


def a_lazy_module():
    """A module that is loaded when it is first asked for something, and cannot be."""
    import types

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            if sys._getframe(1).f_code.co_filename.endswith("inspect.py"):  # which asks all modules for their files
                raise AttributeError(name)
            raise ImportError("install it first")

    sys.modules["heavy"] = Lazy("heavy")
    net = network(64)
    skeleton.Trainer(3).fit(net, loader(40), cross_entropy, torch.optim.Adam(net.parameters()))


class Repeated(torch.utils.data.DataLoader):
    """Goes on with one iterator in each epoch, as those of libraries do that keep their workers."""

    def __iter__(self):
        if not hasattr(self, "iterator"):
            object.__setattr__(self, "iterator", self._get_iterator())
        for _ in range(len(self)):
            yield next(self.iterator)
        del self.iterator


def loaders_of_its_own():
    """Two steps, after eight batches each, and an evaluation with larger ones."""
    net = network(64)
    optimizer = torch.optim.Adam(net.parameters())
    train, test = (Repeated([(torch.zeros(64), i % 10) for i in range(512)], size) for size in (64, 128))
    for epoch in range(2):
        for x, y in train:
            cross_entropy(net(x.cuda()), y.cuda()).backward()
        optimizer.step()
        with torch.no_grad():
            for x, y in test:
                net(x.cuda())


class Slow(torch.utils.data.IterableDataset):
    """Rows that get longer, and take long to be read."""

    def __iter__(self):
        for i in range(2000):
            time.sleep(0.1)
            yield torch.zeros(64 if i < 1500 else 4096, 64)


def slow_stream():
    net = network(64)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for x in torch.utils.data.DataLoader(Slow(), 2):
        net(x.cuda()).sum().backward()
        optimizer.step()


def slow_at_last():
    """Nothing comes for a long time."""
    net = network(64)
    skeleton.Trainer(2).fit(net, loader(400), cross_entropy, torch.optim.Adam(net.parameters()))
    time.sleep(3600)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64 * 20000

    def __getitem__(self, i):
        return torch.zeros(64), i % 10


steps = 0


def counts_its_steps():
    """Few epochs, each of more batches than there is time for; a counter of the module says when something else comes."""
    global steps
    net = network(64)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(3):
        for x, y in torch.utils.data.DataLoader(Rows(), 64):
            optimizer.zero_grad()
            cross_entropy(net(x.cuda()), y.cuda()).backward()
            optimizer.step()
            steps += 1
            if steps % 15000 == 0:
                torch.zeros(3 * WIDE * WIDE, device="cuda")
            if steps == 100000:  # after more steps than there are
                torch.zeros(30 * WIDE * WIDE, device="cuda")


def two_step_in_turn():
    critic, net, done = network(64), network(64), 0
    optimizers = [torch.optim.Adam(n.parameters()) for n in (critic, net)]
    for epoch in range(2):
        for x, y in torch.utils.data.DataLoader(Rows(), 64):
            for n, optimizer in zip((critic, net), optimizers):
                optimizer.zero_grad()
                cross_entropy(n(x.cuda()), y.cuda()).backward()
                optimizer.step()
            done += 1
            if done == 25000:  # in the second epoch
                torch.zeros(3 * WIDE * WIDE, device="cuda")


class Deep(nn.Sequential):
    """Takes long on the host for what it does on the card."""

    def __init__(self):
        super().__init__(nn.Linear(64, 32), *[nn.Linear(32, 32) for _ in range(30)])


def similarities(keep=lambda row: row):
    """What is made of all batches of an evaluation goes by the square of how many they are, and two passes are put side by side."""
    net = Deep().cuda()
    data, optimizer = loader(250), torch.optim.Adam(net.parameters())
    for epoch in range(5):
        for x, y in loader(250):
            optimizer.zero_grad()
            cross_entropy(net(x.cuda()), y.cuda()).backward()
            optimizer.step()
        with torch.no_grad():
            rows = torch.cat([keep(net(x.cuda())) for x, _ in data]).cuda()
            labels = torch.cat([y.cuda() for _, y in data])
            same = labels[(rows @ rows.T).argmax(1)] == labels
            print(same.float().mean().item())


def similarities_by_the_host():
    similarities(torch.Tensor.cpu)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
