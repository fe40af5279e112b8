"""Notices what the figures cannot stand for: decisions by values that only a kernel could have computed, and phases that were not reached.

What shadow.py knows of a tensor is its value; for the rest a policy stands in, and a branch on it may go the other way than on a real card.
Reading a loss to print it is harmless; comparing it is not. Guards against NaN and infinity are what a healthy run passes, and do not count.
"""
import functools
import math
import os
import shutil
import sys
import tempfile
import weakref

from . import asked, report

class Decisions:
    """The number of comparisons of values that were read back from the device, and of reads that are accounted for by that."""

    count = 0
    # Reads whose use is watched: a float can only be printed, summed or compared. An integer may become a size, so it is not one of them.
    watched_reads = 0
    # Where it is noted what the program went by.
    shadow = None

    @classmethod
    def note(cls):
        cls.count += 1


def _compared(base):
    """A subclass of float or int that is the same number, and counts when the program decides by it."""

    def method(name):
        original = getattr(base, name)

        def compare(self, *other):
            Decisions.note()
            result = original(self, *other)
            return asked.settle(Decisions.shadow, result, called=False) if type(result) is bool else result

        return compare

    names = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__")
    members = {name: method(name) for name in names}
    members["__hash__"] = base.__hash__
    members["__reduce__"] = lambda self: (base, (base(self),))  # it leaves the process as a plain number
    return type(base.__name__, (base,), members)


def _whole(base):
    """A subclass of float that counts when the program makes a whole number of it, which may become a size, and stays one when it is scaled. A sum is a
    plain number again: most of those are printed."""

    def scaled(name):
        original = getattr(base, name)

        def method(self, *other):
            result = original(self, *other)
            return Scaled(result) if type(result) is float and all(type(o) in (int, float, Scaled, ReadFloat) for o in other) else result

        return method

    def converted(original):
        def method(self, *digits):
            result = original(self, *digits)
            if digits or type(result) is not int or Decisions.shadow is None:
                return result
            Decisions.shadow.use("unbounded")
            return Decisions.shadow.policy.number(result)

        return method

    members = {"__%s__" % name: scaled("__%s__" % name) for name in "mul rmul truediv rtruediv floordiv mod pow sub rsub neg abs".split()}
    members.update({"__%s__" % name: converted(getattr(base, "__%s__" % name)) for name in "int trunc floor ceil round".split() if hasattr(base, "__%s__" % name)})
    for name, function in (("__floor__", math.floor), ("__ceil__", math.ceil)):
        members.setdefault(name, converted(lambda self, function=function: function(float(self))))  # before Python 3.9
    members["__reduce__"] = lambda self: (float, (float(self),))
    return members


Scaled = type("float", (float,), _whole(float))
ReadFloat = type("float", (_compared(float),), _whole(float))
ReadInt = _compared(int)


def hook_tensors(torch, calls):
    """Reads of a single value: answered by what is known of the tensor, and else by the policy."""
    tensor, shadow = torch.Tensor, calls.shadow
    Decisions.shadow = shadow
    original_item, original_bool, original_list = tensor.item, tensor.__bool__, tensor.tolist

    def read(self, original):
        """The true value, or what the policy says, and whether it is true."""
        entry = shadow.find(self)
        before, small = report.unknown_reads(), report.all_reads()
        shadow.read_by_python += 1
        try:
            value = original(self)
        finally:
            shadow.read_by_python -= 1
        if entry is not None:
            Decisions.watched_reads += report.all_reads() - small
            return getattr(entry.mirror, original.__name__)(), not entry.taint.kind
        return value, report.unknown_reads() == before

    @functools.wraps(original_item)
    def item(self):
        if not self.is_cuda or not shadow.on:
            return original_item(self)
        small = report.all_reads()
        value, true = read(self, original_item)
        if true:
            return value
        if type(value) is float:
            known = shadow.find(self)
            Decisions.watched_reads += report.all_reads() - small if known is None else 0
            return ReadFloat(value if known is not None else calls.plausible.value(self))
        if type(value) is bool:
            Decisions.note()
            if shadow.find(self) is None:
                value = shadow.policy.true()
            value = asked.settle(shadow, value)
        known = shadow.find(self) is not None or type(value) is bool
        shadow.use("item" if known else "unbounded")
        if not known and type(value) is int:
            value = shadow.policy.number(value)
        return ReadInt(value) if type(value) is int else value

    @functools.wraps(original_bool)
    def as_bool(self):
        if not self.is_cuda or not shadow.on or self.numel() != 1:
            return original_bool(self)
        small, entry = report.all_reads(), shadow.find(self)
        value, true = read(self, original_bool)
        if not true:
            if entry is None:
                Decisions.watched_reads += report.all_reads() - small
                value = shadow.policy.true()
            if shadow.policy.healthy:
                return True
            Decisions.note()
            shadow.use("bool")
            value = asked.settle(shadow, value)
        return value

    @functools.wraps(original_list)
    def tolist(self):
        if not self.is_cuda or not shadow.on:
            return original_list(self)
        value, true = read(self, original_list)
        if not true and not self.is_floating_point():
            shadow.use("item" if shadow.find(self) is not None else "unbounded")
        elif not true and shadow.find(self) is None and self.is_floating_point():
            number = calls.plausible.value(self)
            if number is not None:
                return shadow.answer(lambda: torch.full(self.shape, number, dtype=torch.float64, device="cpu").tolist())
        return value

    def converted(name, kind):
        original = getattr(tensor, name)

        @functools.wraps(original)
        def convert(self):
            return kind(item(self)) if self.is_cuda and shadow.on and self.numel() == 1 else original(self)

        calls.put(tensor, name, convert)

    for name, reader in (("item", item), ("__bool__", as_bool), ("tolist", tolist)):
        calls.put(tensor, name, reader)
    for name, kind in (("__int__", int), ("__index__", int), ("__float__", float)):
        converted(name, kind)


class Saves:
    """What is written to a checkpoint decides nothing; and a checkpoint that was written because of a comparison of values that nobody
    computed does not replace a file of the program's: it goes to a place of its own, from where it is read again."""

    def __init__(self):
        self.apart = {}
        self.directory = None
        self.seen = 0

    def step(self):
        self.seen = Decisions.count
        asked.step()

    def _place(self, path):
        if self.directory is None:
            self.directory = tempfile.mkdtemp(prefix="gresize-saves-")
        path = os.path.abspath(os.fspath(path))
        return self.apart.setdefault(path, os.path.join(self.directory, str(len(self.apart))))

    def hook(self, torch):
        original_save, original_load = torch.save, torch.load

        @functools.wraps(original_save)
        def save(obj, f, *args, **kwargs):
            before = report.all_reads()
            if isinstance(f, (str, os.PathLike)) and Decisions.count != self.seen:
                f = self._place(f)
            try:
                return original_save(obj, f, *args, **kwargs)
            finally:
                Decisions.watched_reads += report.all_reads() - before

        @functools.wraps(original_load)
        def load(f, *args, **kwargs):
            if self.apart and isinstance(f, (str, os.PathLike)):
                f = self.apart.get(os.path.abspath(os.fspath(f)), f)
            return original_load(f, *args, **kwargs)

        torch.save, torch.load = save, load

    def clean(self):
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory, self.apart = None, {}


class Loaders:
    """The data loaders of the process: which were made, which were read."""

    def __init__(self):
        self.made = weakref.WeakSet()
        self.read = weakref.WeakSet()
        self.largest_read = 0  # of a loader that may be gone: a loop over a temporary one keeps its iterator only

    def hook(self):
        module = sys.modules.get("torch.utils.data.dataloader")
        loader = getattr(module, "DataLoader", None)
        if loader is None:
            return
        original_init, original_iter = loader.__init__, loader.__iter__
        loaders = self

        @functools.wraps(original_init)
        def init(self, *args, **kwargs):
            original_init(self, *args, **kwargs)
            loaders.made.add(self)

        @functools.wraps(original_iter)
        def iterate(self):
            iterator, loader, size = original_iter(self), weakref.ref(self), _batch_size(self)
            try:
                iterator._gresize_reads = lambda: loaders.reads(loader(), size)
            except AttributeError:  # one of another kind, which is not seen again
                loaders.reads(self, size)
            return iterator

        loader.__init__, loader.__iter__ = init, iterate

    def reads(self, loader, size):
        """The first batch is asked for: an iterator alone, such as one of several among which chance chooses, reads nothing."""
        if loader is not None:
            self.read.add(loader)
        self.largest_read = max(self.largest_read, size)

    def waiting(self):
        return [loader for loader in list(self.made) if loader not in self.read]

    def unread(self):
        """How many were never read, and whether one of those has a larger batch than all that were."""
        waiting = self.waiting()
        return len(waiting), any(_batch_size(loader) > self.largest_read for loader in waiting)


def _batch_size(loader):
    """A loader that was given a batch sampler has no size of its own."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else 0
