"""Runs random programs with and without a random plan, on the CPU, and compares every loss and gradient to the bit.

The engine is a model of two streams: a copy has happened only once somebody has waited for it; until then its destination holds NaN, and what it reads must
neither be written nor be free for others. FAULT plants one.
"""
import gc
import os
import random
import sys

import torch
import torch.utils.checkpoint

from torch.multiprocessing.reductions import StorageWeakRef

from gresize_offload import copies, plan, sequence, state, swapper

FAULT = os.environ.get("FAULT", "")
torch.set_num_threads(1)
state.MIN_BYTES = 1


class Model(copies.Host):
    """Copies are done when they are waited for."""

    def __init__(self, torch):
        super().__init__(torch)
        self.leaving = []

    def out(self, host, storage, after):
        if after is not None and not after:
            raise AssertionError("a buffer is written that is still read")
        host.fill_(255)  # NaN in every type
        self.leaving = [c for c in self.leaving if not c.done]
        self.leaving.append(Copy(host, storage, StorageWeakRef(storage.untyped_storage())))
        return self.leaving[-1]

    def back(self, host, storage):
        storage.fill_(255)
        return Copy(storage, host)

    def wait(self, stream, copy):
        if FAULT == "no wait" or FAULT == "leaves unwaited" and copy.weak is not None:
            return
        copy.do()

    def check(self):
        """At every event: what a copy reads is not free."""
        for copy in self.leaving:
            if not copy.done and copy.weak.expired():
                raise AssertionError("memory is free that a copy still reads")


class Copy:
    """Of what is on the device, only the name is kept: the model would keep it alive."""

    def __init__(self, to, source, weak=None):
        self.to, self.weak, self.done = to, weak, False
        self.source = source if weak is None else None

    def do(self):
        if self.done:
            return
        self.done = True
        source = self.source
        if self.weak is not None:
            if self.weak.expired():
                raise AssertionError("memory is free that a copy still reads")
            storage = torch.UntypedStorage._new_with_weak_ptr(self.weak.cdata)
            source = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (self.to.numel(),), (1,))
        self.to.copy_(source)
        self.source = None

    def __bool__(self):
        return self.done


class Checked(swapper.Swapper):
    def arriving(self):
        super().arriving()
        self.engine.check()

    def end(self, held):
        super().end(held)
        self.engine.check()


class Noted(sequence.Sequence):
    """What each iteration saved: prefixes, and by first tensor of a storage its bytes, the event of its last save and of its first take."""

    def __init__(self):
        super().__init__(torch, "cpu")
        self.iterations = []
        self.state = []

    def step(self, optimizer, *_):
        super().step()
        self.state = [t.untyped_storage().nbytes() for t in state.storages(torch, optimizer, "cpu")]

    def begun(self):
        self.now = {"prefixes": [], "storages": {}, "of": {}}
        self.names = {}
        self.iterations.append(self.now)

    def saved(self, item, tensor):
        self.now["prefixes"].append(self.prefix)
        name = tensor.untyped_storage()._cdata
        first = self.names.setdefault(name, self.ordinal)
        s = self.now["storages"].setdefault(first, [tensor.untyped_storage().nbytes(), self.event, None])
        s[1] = self.event
        self.now["of"][self.ordinal] = first

    def taken(self, item):
        s = self.now["storages"].get(self.now["of"].get(item.ordinal))
        if s is not None and s[2] is None:
            s[2] = self.event
        return item.tensor


class Program(torch.nn.Module):
    """A random graph of layers, views, in-place operators and branches over a batch of vectors."""

    def __init__(self, seed):
        super().__init__()
        self.random = random.Random(seed)
        self.kinds = [self.random.choice(["linear", "relu_", "view", "twice", "norm", "gelu", "branch", "chunk", "double", "checkpoint", "half", "func"]) for _ in range(12)]
        width = 24
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in self.kinds)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in self.kinds)

    def forward(self, x, number):
        for i, kind in enumerate(self.kinds):
            layer = self.layers[i]
            if kind == "linear":
                x = layer(x)
            elif kind == "relu_":
                x = torch.relu_(layer(x))
            elif kind == "view":
                x = layer(x).view(-1, 4, 6).transpose(1, 2).reshape(-1, 24).sin()
            elif kind == "twice":
                y = layer(x)
                x = y * y + y.tanh()
            elif kind == "norm":
                x = self.norms[i](x)
            elif kind == "gelu":
                x = torch.nn.functional.gelu(layer(x))
            elif kind == "branch":
                x = layer(x).exp().clamp(max=2) if number % 3 else layer(x).sigmoid()
            elif kind == "chunk":
                a, b = layer(x).chunk(2, dim=1)
                x = torch.cat([a * b, a + b], dim=1)
            elif kind == "double":
                x = layer(x.double().float()) * x.mean()
            elif kind == "checkpoint":
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            elif kind == "half":
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    x = layer(x)
                x = x.float()
            elif kind == "func":
                x = x + torch.func.vmap(torch.cos)(layer(x))
        return x


def run(seed, hooks, steps, optimizers=1):
    torch.manual_seed(seed)
    model = Program(seed)
    parameters = list(model.parameters())
    optimizers = [torch.optim.AdamW(parameters[i::optimizers], lr=0.01) for i in range(optimizers)]
    accumulate = seed % 2 + 1
    seen, own = [], []
    for number in range(steps):
        x = torch.randn(16, 24, requires_grad=bool(seed % 3))
        loss = (model(x, number) ** 2).mean()
        seen += [v.clone() for v in own]
        if number % 5 == 3:  # a norm of the state, for a log
            seen += [v.clone() for optimizer in optimizers for values in optimizer.state.values() for v in values.values()]
        if seed % 3 == 1 and number == 3:  # and what the program holds itself
            own = [list(values.values())[-1] for optimizer in optimizers for values in list(optimizer.state.values())[:2]]
        loss.backward(retain_graph=seed % 5 == 0)
        if seed % 5 == 0:
            loss.backward()
        if number % accumulate == accumulate - 1:
            seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            for optimizer in optimizers:
                optimizer.step()
            model.zero_grad()
        if number % 6 == 5:  # a checkpoint
            seen += [v.clone() for optimizer in optimizers for values in optimizer.state_dict()["state"].values() for v in values.values()]
        seen.append(loss.detach().clone())
        if number % 7 == 6:  # a forward pass that never goes back
            model(torch.randn(16, 24), number)
        del loss, x
    return seen


def planned(noted, chance):
    """A random plan for what was noted: which storages move, and when."""
    iterations = []
    for it in {tuple(i["prefixes"]): i for i in noted.iterations}.values():
        moves = []
        for first, (size, last, take) in it["storages"].items():
            if take is None or take <= last or not size or chance.random() < 0.2:
                continue
            gone = chance.randint(last + 1, take)
            moves.append(plan.Move(first, size, gone, chance.randint(gone, take + 2)))
        iterations.append(plan.Iteration(it["prefixes"], {m.save: m for m in moves}))
    if FAULT == "another plan":
        for it in iterations:
            it.prefixes[:] = [p ^ 1 for p in it.prefixes]
    kept = []
    for number, size in enumerate(noted.state):
        if chance.random() < 0.7:
            gone = chance.randint(0, 20)
            kept.append(plan.StateMove(number, size, gone, chance.choice([-1, gone + chance.randint(0, 20)])))
    return plan.Plan(iterations, 1 << 30, 0, torch.__version__, kept)


def without(hooks, seed, steps, optimizers=1):
    hooks.enter()
    try:
        return run(seed, hooks, steps, optimizers)
    finally:
        hooks.hooks.__exit__()


def chunk(pool):
    """Has the system refuse more host memory once some was given."""
    real, given = pool.torch, []

    class Torch:
        uint8 = real.uint8

        @staticmethod
        def empty(size, **options):
            if len(given) == 3:
                raise RuntimeError("CUDA error: out of memory")
            given.append(size)
            return real.empty(min(size, 8192), **options)

    pool.torch = Torch


def main(seeds, steps):
    moves = kept = followed = wrong = 0
    for seed in range(seeds):
        chance = random.Random(seed)
        plain = run(seed, None, steps)
        noted = Noted()
        assert all(a.equal(b) for a, b in zip(plain, without(noted, seed, min(steps, 12))))
        layer = Checked(torch, planned(noted, chance), Model(torch), "cpu")
        if seed % 4 == 3:  # nothing can be pinned after the first buffers
            chunk(layer.pool)
        if FAULT == "wrong block":
            take = layer.pool.take

            def other(size, take=take, kept={}):
                buffer = take(size)
                return kept.setdefault(size, buffer)

            layer.pool.take = other
        got = without(layer, seed, steps)
        assert len(got) == len(plain)
        if not all(a.equal(b) for a, b in zip(plain, got)):
            wrong += 1
        gc.collect()
        assert layer.live == 0 and not layer.held, (seed, layer.live, len(layer.held))
        moves += layer.counts["moves"]
        kept += layer.counts["state_moves"]
        followed += layer.counts["followed"]
    print("%d programs of %d steps: %d moves, %d of states, %d iterations followed, %d wrong" % (seeds, steps, moves, kept, followed, wrong))
    return 1 if wrong else 0


def changed():
    """A saved tensor that is changed in place is refused as PyTorch refuses it, also when its storage has left, and when the plan moves nothing."""
    for away, moved in ((False, True), (True, True), (False, False)):
        x = torch.randn(64, 64, requires_grad=True)

        def step(x):
            y = x * 2
            z = y.sin()
            if away:
                w = y.cos()
                z = z + w
            y.add_(1)
            z.sum().backward()

        noted = Noted()
        noted.enter()
        try:
            step(x)
        except RuntimeError:
            pass
        noted.hooks.__exit__()
        it = noted.iterations[0]
        moves = {f: plan.Move(f, s[0], s[1] + 1, s[1] + 100) for f, s in it["storages"].items() if moved}
        layer = swapper.Swapper(torch, plan.Plan([plan.Iteration(it["prefixes"], moves)], 1 << 30, 0, ""), copies.Host(torch), "cpu")
        layer.enter()
        try:
            step(x)
            print("a changed tensor was not refused (away: %s, moved: %s)" % (away, moved))
            return 1
        except RuntimeError as e:
            assert "modified by an inplace operation" in str(e), e
        finally:
            layer.hooks.__exit__()
    print("changed tensors are refused")
    return 0


def two():
    """A plan that moves the state of one optimizer, in programs with two: it stays from the second one's first step on, which is said, and nothing differs."""
    for seed in range(3):
        noted = Noted()
        without(noted, seed, 12)
        layer = Checked(torch, planned(noted, random.Random(seed)), Model(torch), "cpu")
        plain, got = run(seed, None, 12, 2), without(layer, seed, 12, 2)
        assert len(got) == len(plain) and all(a.equal(b) for a, b in zip(plain, got)), seed
        assert not layer.state.moves and not layer.state.away, seed
    print("two optimizers: nothing differs")
    return 0


def leaves():
    """A program that leaves its plan says so, once."""
    noted = Noted()
    without(noted, 0, 6)
    layer = Checked(torch, planned(noted, random.Random(0)), Model(torch), "cpu")
    layer.by_prefix = {at: [i for i in found if i is layer.plan.iterations[0]] for at, found in layer.by_prefix.items()}
    plain, got = run(0, None, 12), without(layer, 0, 12)
    assert all(a.equal(b) for a, b in zip(plain, got))
    return 0


if __name__ == "__main__":
    sys.exit({"changed": changed, "two": two, "leaves": leaves}[sys.argv[1]]() if len(sys.argv) == 2 else main(int(sys.argv[1]), int(sys.argv[2])))
