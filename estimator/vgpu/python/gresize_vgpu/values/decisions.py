"""Notices what the figures cannot stand for: decisions by values that only a kernel could have computed, and phases that were not reached.

What shadow.py knows of a tensor is its value; for the rest a policy stands in, and a branch on it may go the other way than on a real card.
Reading a loss to print it is harmless; comparing it is not. Guards against NaN and infinity are what a healthy run passes, and do not count.
"""
from __future__ import annotations

import functools
import math
import os
import shutil
import sys
import tempfile
import weakref

from gresize_imports import after_import, around_import

from ..process import native
from . import branch_steering
from .shadow_tensors import NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Torch


class Decisions:
    """The number of comparisons of values that were read back from the device, and of reads that are accounted for by that."""

    count = 0
    # Reads whose use is watched: a float can only be printed, summed or compared. An integer may become a size, so it is not one of them.
    watched_reads = 0
    # Where it is noted what the program went by.
    shadow = None

    @classmethod
    def note(cls) -> None:
        cls.count += cls.shadow is None or not cls.shadow.silent


def _ours():
    """Whether it is this layer that looks at a number of the program's."""
    name = sys._getframe(2).f_code.co_filename
    return name.startswith(branch_steering.HERE) and name != _ours.__code__.co_filename


def _watched(base, more):
    """A subclass of float or int that is the same number, and counts when the program decides by it."""

    def method(name):
        original = getattr(base, name)

        def compare(self, *other):
            result = original(self, *other)
            if _ours():
                return result
            Decisions.note()
            return branch_steering.settle(Decisions.shadow, result, called=False) if type(result) is bool else result

        return compare

    names = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__")
    members = {name: method(name) for name in names}
    members["__hash__"] = base.__hash__
    members["__reduce__"] = lambda self: (base, (base.__pos__(self),))  # it leaves the process as a plain number
    return type(base.__name__, (base,), dict(members, **more))


def _reckoned(name):
    """What is reckoned with such a float is one as well."""
    original = getattr(float, name)

    def method(self, *other):
        result = original(self, *other)
        return ReadFloat(result) if type(result) is float and all(isinstance(o, (int, float)) for o in other) else result

    return method


def _whole(original):
    """A whole number that is made of such a float may become a size."""

    def method(self, *digits):
        result = original(self, *digits)
        if type(result) is float:
            return ReadFloat(result)
        if digits or type(result) is not int or Decisions.shadow is None or _ours():
            return result
        Decisions.shadow.use("unbounded")
        return Decisions.shadow.policy.number(result)

    return method


def _plain(self):
    """Somebody takes it for a plain float, as an array of numpy does: of what becomes of that nothing is seen."""
    if Decisions.shadow is not None and not _ours():
        Decisions.shadow.use(FETCHED)
    return float.__pos__(self)


FETCHED = "fetched"  # the use of floats that leave what is watched
RECKONED = "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs".split()
_members = {"__%s__" % name: _reckoned("__%s__" % name) for name in RECKONED}
_members.update({"__%s__" % name: _whole(getattr(float, "__%s__" % name)) for name in "int trunc round".split()})
_members.update({"__floor__": _whole(lambda self: math.floor(float.__pos__(self))), "__ceil__": _whole(lambda self: math.ceil(float.__pos__(self)))})
ReadFloat = _watched(float, dict(_members, __float__=_plain))
ReadInt = _watched(int, {})


# Functions of C that take a float for its value alone, whatever its class is.
BY_C = "exp exp2 expm1 log log2 log10 log1p sqrt cbrt pow tanh sinh cosh atan erf hypot fabs fmod remainder copysign fsum dist ldexp".split()


def _in_c(original):
    @functools.wraps(original)
    def call(*args):
        result = original(*args)
        for value in args:
            if type(value) is ReadFloat or type(value) in (list, tuple) and any(type(v) is ReadFloat for v in value):
                return ReadFloat(result)
        return result

    return call


def _in_tensors(original):
    @functools.wraps(original)
    def tensor(data, *args, **kwargs):
        if _holds_read(data):
            _plain(0.0)
        return original(data, *args, **kwargs)

    return tensor


def _holds_read(data, depth=2):
    return type(data) is ReadFloat or type(data) in (list, tuple) and depth > 0 and any(_holds_read(part, depth - 1) for part in data)


def follow_math(calls: Any) -> None:
    """Numba reads what it compiles, and knows the functions of math by their identity."""
    if "numba" in sys.modules:
        return
    for name in BY_C:
        if hasattr(math, name):
            calls.replace(math, name, _in_c)

    def imported(go_on):
        calls.forget(math)
        return go_on()

    around_import("numba", imported)


def _plain_in_yaml(representer):
    """It asks for the very class of a number."""
    for kind in (representer.SafeRepresenter, representer.Representer):
        kind.add_multi_representer(ReadFloat, lambda dumper, value: dumper.represent_float(float.__pos__(value)))
        kind.add_multi_representer(ReadInt, lambda dumper, value: dumper.represent_int(int.__pos__(value)))


def hook_tensors(torch: Torch, calls: Any) -> None:
    """Reads of a single value: answered by what is known of the tensor, and else by the policy."""
    tensor, shadow = torch.Tensor, calls.shadow
    Decisions.shadow = shadow
    after_import("yaml.representer", _plain_in_yaml)
    follow_math(calls)
    for name in ("tensor", "as_tensor"):
        calls.replace(torch, name, _in_tensors)
    original_item, original_bool, original_list = tensor.item, tensor.__bool__, tensor.tolist

    def read(self, original):
        """The true value, or what the policy says, and whether it is true."""
        entry = shadow.find(self)
        before, small = native.unknown_reads(), native.all_reads()
        shadow.read_by_python += 1
        try:
            value = original(self)
        finally:
            shadow.read_by_python -= 1
        if entry is not None:
            Decisions.watched_reads += native.all_reads() - small
            return getattr(entry.mirror, original.__name__)(), not entry.taint.kind
        return value, native.unknown_reads() == before

    @functools.wraps(original_item)
    def item(self):
        if not self.is_cuda or not shadow.on:
            return original_item(self)
        small = native.all_reads()
        value, true = read(self, original_item)
        if true:
            return value
        if type(value) is float:
            known = shadow.find(self)
            Decisions.watched_reads += native.all_reads() - small if known is None else 0
            return ReadFloat(value if known is not None else calls.plausible.value(self))
        if type(value) is bool:
            Decisions.note()
            if shadow.find(self) is None:
                value = shadow.policy.true()
            value = branch_steering.settle(shadow, value)
        entry = shadow.find(self)
        shadow.use("item" if type(value) is bool or entry is not None and entry.taint.kind != NUMBER else "unbounded")
        if entry is None and type(value) is int:
            value = shadow.policy.number(value)
        return ReadInt(value) if type(value) is int else value

    @functools.wraps(original_bool)
    def as_bool(self):
        if not self.is_cuda or not shadow.on or self.numel() != 1:
            return original_bool(self)
        small, entry = native.all_reads(), shadow.find(self)
        value, true = read(self, original_bool)
        if not true:
            if entry is None:
                Decisions.watched_reads += native.all_reads() - small
                value = shadow.policy.true()
            if shadow.policy.healthy:
                return True
            Decisions.note()
            shadow.use("bool")
            value = branch_steering.settle(shadow, value)
        return value

    @functools.wraps(original_list)
    def tolist(self):
        if not self.is_cuda or not shadow.on:
            return original_list(self)
        value, true = read(self, original_list)
        if true:
            return value
        entry = shadow.find(self)
        if self.is_floating_point():
            shadow.use(FETCHED)
        else:
            shadow.use("item" if entry is not None and entry.taint.kind != NUMBER else "unbounded")
        if entry is not None:
            return value
        return shadow.answer(lambda: calls.shown(self, torch.zeros(self.shape, dtype=torch.float64 if self.is_floating_point() else self.dtype, device="cpu")).tolist())

    def converted(name, kind):
        original = getattr(tensor, name)

        @functools.wraps(original)
        def convert(self):
            return kind(item(self)) if self.is_cuda and shadow.on and self.numel() == 1 else original(self)

        calls.put(tensor, name, convert)

    def printed(original):
        @functools.wraps(original)
        def text(*args, **kwargs):
            small = native.all_reads()
            shadow.silent += 1
            try:
                return original(*args, **kwargs)
            finally:
                shadow.silent -= 1
                Decisions.watched_reads += native.all_reads() - small

        return text

    calls.replace(torch._tensor_str, "_str", printed)
    for name, reader in (("item", item), ("__bool__", as_bool), ("tolist", tolist)):
        calls.put(tensor, name, reader)
    for name, kind in (("__int__", int), ("__index__", int), ("__float__", float)):
        converted(name, kind)


class Saves:
    """What is written to a checkpoint decides nothing; and a checkpoint that was written because of a comparison of values that nobody
    computed does not replace a file of the program's: it goes to a place of its own, from where it is read again."""

    def __init__(self) -> None:
        self.apart = {}
        self.directory: str | None = None
        self.seen = 0

    def step(self) -> None:
        self.seen = Decisions.count
        branch_steering.step()

    def _place(self, path):
        if self.directory is None:
            self.directory = tempfile.mkdtemp(prefix="gresize-saves-")
        path = os.path.abspath(os.fspath(path))
        return self.apart.setdefault(path, os.path.join(self.directory, str(len(self.apart))))

    def hook(self, torch: Torch) -> None:
        original_save, original_load = torch.save, torch.load

        @functools.wraps(original_save)
        def save(obj, f, *args, **kwargs):
            before = native.all_reads()
            if isinstance(f, (str, os.PathLike)) and Decisions.count != self.seen:
                f = self._place(f)
            try:
                return original_save(obj, f, *args, **kwargs)
            finally:
                Decisions.watched_reads += native.all_reads() - before

        @functools.wraps(original_load)
        def load(f, *args, **kwargs):
            if self.apart and isinstance(f, (str, os.PathLike)):
                f = self.apart.get(os.path.abspath(os.fspath(f)), f)
            return original_load(f, *args, **kwargs)

        torch.save, torch.load = save, load

    def clean(self) -> None:
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory, self.apart = None, {}


class Loaders:
    """The data loaders of the process: which were made, which were read."""

    def __init__(self) -> None:
        self.made = weakref.WeakSet()
        self.read = weakref.WeakSet()
        self.largest_read = 0  # of a loader that may be gone: a loop over a temporary one keeps its iterator only

    def hook(self) -> None:
        module: Any = sys.modules.get("torch.utils.data.dataloader")
        loader = getattr(module, "DataLoader", None)
        if loader is None:
            return
        kind = module._BaseDataLoaderIter
        original_init, original_iter, original_begin = loader.__init__, loader.__iter__, kind.__init__
        loaders = self

        @functools.wraps(original_init)
        def init(self, *args, **kwargs):
            original_init(self, *args, **kwargs)
            loaders.made.add(self)

        @functools.wraps(original_begin)
        def begin(self, loader, *args, **kwargs):
            # Where a loader of a library has its own __iter__, this is the one place that all come by.
            known, size = weakref.ref(loader), _batch_size(loader)
            self._gresize_reads = lambda: loaders.reads(known(), size)
            original_begin(self, loader, *args, **kwargs)

        @functools.wraps(original_iter)
        def iterate(self):
            iterator = original_iter(self)
            if not issubclass(type(iterator), kind):  # one of another kind, which is not seen again
                loaders.reads(self, _batch_size(self))
            return iterator

        loader.__init__, loader.__iter__, kind.__init__ = init, iterate, begin

    def reads(self, loader: Any, size: int) -> None:
        """The first batch is asked for: an iterator alone, such as one of several among which chance chooses, reads nothing."""
        if loader is not None:
            self.read.add(loader)
        self.largest_read = max(self.largest_read, size)

    def waiting(self) -> list[Any]:
        return [loader for loader in list(self.made) if loader not in self.read]

    def unread(self) -> tuple[int, bool]:
        """How many were never read, and whether one of those has a larger batch than all that were."""
        waiting = self.waiting()
        return len(waiting), any(_batch_size(loader) > self.largest_read for loader in waiting)


def _batch_size(loader):
    """A loader that was given a batch sampler has no size of its own."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else 0
