"""Notices what the figures cannot stand for: decisions by values that only a kernel could have computed, and phases that were not reached.

On the virtual GPU such values are zero, so a branch on one of them may go the other way than on a real card. Reading a loss to print it is
harmless; comparing it is not. Guards against NaN and infinity are what a healthy run passes, and do not count.
"""
import functools
import sys
import weakref

GUARDS = ("isnan", "isinf", "isfinite", "isneginf", "isposinf")


class Decisions:
    """The number of comparisons of values that were read back from the device, and of reads that are accounted for by that."""

    count = 0
    # Reads whose use is watched: a float can only be printed, summed or compared. An integer may become a size, so it is not one of them.
    watched_reads = 0

    @classmethod
    def note(cls):
        cls.count += 1


def _compared(base):
    """A subclass of float or int that is the same number, and counts when the program decides by it."""

    def method(name):
        original = getattr(base, name)

        def compare(self, *other):
            Decisions.note()
            return original(self, *other)

        return compare

    names = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__")
    members = {name: method(name) for name in names}
    members["__hash__"] = base.__hash__
    members["__reduce__"] = lambda self: (base, (base(self),))  # it leaves the process as a plain number
    return type(base.__name__, (base,), members)


ReadFloat, ReadInt = _compared(float), _compared(int)


def hook_tensors(torch):
    tensor = torch.Tensor
    original_item, original_bool = tensor.item, tensor.__bool__

    @functools.wraps(original_item)
    def item(self):
        value = original_item(self)
        if not self.is_cuda:
            return value
        if getattr(self, "_gresize_guard", False):
            Decisions.watched_reads += 1
            return value
        if isinstance(value, bool):
            Decisions.note()
            return value
        if type(value) is float:
            Decisions.watched_reads += 1
            return ReadFloat(value)
        return ReadInt(value) if type(value) is int else value

    @functools.wraps(original_bool)
    def as_bool(self):
        if self.is_cuda:
            Decisions.watched_reads += 1
            if not getattr(self, "_gresize_guard", False):
                Decisions.note()
        return original_bool(self)

    tensor.item, tensor.__bool__ = item, as_bool
    for name in GUARDS:
        for owner in (torch, tensor):
            if hasattr(owner, name):
                setattr(owner, name, _guard(getattr(owner, name)))
    for name in ("any", "all"):
        setattr(tensor, name, _carry(getattr(tensor, name)))


# What these return is as large as the values say.
SIZED = ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")


def hook_sizes(torch):
    """An index by a mask gives as many rows as the mask has ones, which are zeros here: the program decides by values without reading one."""
    tensor = torch.Tensor
    original_getitem, original_where = tensor.__getitem__, torch.where
    masks = (torch.bool, torch.uint8)

    def is_mask(index):
        return isinstance(index, tensor) and index.is_cuda and index.dtype in masks and index.dim() > 0

    @functools.wraps(original_getitem)
    def getitem(self, index):
        if is_mask(index) or (type(index) in (tuple, list) and any(is_mask(i) for i in index)):
            Decisions.note()
        return original_getitem(self, index)

    @functools.wraps(original_where)
    def where(condition, *args, **kwargs):
        if not args and not kwargs and is_mask_like(condition):
            Decisions.note()
        return original_where(condition, *args, **kwargs)

    def is_mask_like(value):
        return isinstance(value, tensor) and value.is_cuda

    def sized(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            first = args[0] if args else kwargs.get("input")
            if is_mask_like(first):
                Decisions.note()
            return original(*args, **kwargs)

        return call

    tensor.__getitem__, torch.where = getitem, where
    for name in SIZED:
        for owner in (torch, tensor):
            if hasattr(owner, name):
                setattr(owner, name, sized(getattr(owner, name)))


def hook_save(torch, all_reads):
    """What is written to a checkpoint decides nothing."""
    original = torch.save

    @functools.wraps(original)
    def save(*args, **kwargs):
        before = all_reads()
        try:
            return original(*args, **kwargs)
        finally:
            Decisions.watched_reads += all_reads() - before

    torch.save = save


def _mark(result):
    try:
        result._gresize_guard = True
    except AttributeError:
        pass
    return result


def _guard(original):
    @functools.wraps(original)
    def test(*args, **kwargs):
        return _mark(original(*args, **kwargs))

    return test


def _carry(original):
    @functools.wraps(original)
    def reduce(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        return _mark(result) if getattr(self, "_gresize_guard", False) else result

    return reduce


class Loaders:
    """The data loaders of the process: which were made, which were read."""

    def __init__(self):
        self.made = weakref.WeakSet()
        self.read = weakref.WeakSet()

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
            loaders.read.add(self)
            return original_iter(self)

        loader.__init__, loader.__iter__ = init, iterate

    def unread(self):
        """How many were never read, and whether one of those has a larger batch than all that were."""
        waiting = [loader for loader in list(self.made) if loader not in self.read]
        largest = max([getattr(loader, "batch_size", None) or 0 for loader in list(self.read)] + [0])
        return len(waiting), any((getattr(loader, "batch_size", None) or 0) > largest for loader in waiting)
