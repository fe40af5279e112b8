"""Whether one training step takes what the step before it took: what stays allocated, and the shapes of the batches.

The steps that were seen are the first. A data set whose later items are longer is asked for some of them once the run is over, when nothing that its
code does can change a figure any more.
"""
from __future__ import annotations

import itertools
import math
import sys
import threading
import time

from ..process import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterable, Sequence

# Steps in a row that end with more allocated than the one before.
GROWING_STEPS = 3
# Batches that are alike before one of fewer samples may be shorter as well.
LEAST_ALIKE = 2
MOST_TENSORS = 32
DEEPEST = 4
MOST_LOADERS = 3
MOST_SECONDS = 1.5
MOST_STREAMED = 256
# Of a data set whose samples cost little, more are asked for, evenly.
MOST_ASKED = 2000
MOST_MORE_SECONDS = 0.4  # of the processor's time
WAITED_FACTOR = 5  # by the clock it may be so many times that on a busy machine
GOLDEN = 0.6180339887498949
# Of a data set that there is no time to ask for all: a size that so many and such a part of those that were asked have, and none exceeds, is where they are cut.
CUT_COUNT, CUT_SHARE = 8, 0.01
# Rows of different lengths one after the other, whose sum differs by no more than this, are taken to go on so: of a hundred sums of 2,048 lengths from
# 1 to 10, some two differ by 0.06.
MOST_SPREAD = 0.1
# A step whose allocations differ by so much from those of another has other sizes.
LEAST_DIFFERENCE_BYTES = 4 << 20
LEAST_DIFFERENCE = 0.02
# The allocator hands out multiples of this.
ROUNDED_BYTES = 512
# A peak that rises by no more a step than the step leaves behind, and by no more than this, is at rest but for that.
SLOW_BYTES = 64 << 10


def shapes(batch: Any, depth: int = 0) -> list[tuple[int, ...]]:
    """The shapes of the tensors in a batch, in their order."""
    torch = sys.modules["torch"]
    if issubclass(type(batch), torch.Tensor):
        return [tuple(batch.shape)]
    if depth == DEEPEST:
        return []
    if isinstance(batch, dict) or hasattr(type(batch), "data") and isinstance(getattr(batch, "data", None), dict):
        batch = list((batch if isinstance(batch, dict) else batch.data).values())
    elif not isinstance(batch, (list, tuple, type)) and isinstance(getattr(batch, "__dict__", None), dict) and not callable(batch):
        batch = list(vars(batch).values())  # such as one of graphs
    if not isinstance(batch, (list, tuple)):
        return []
    found = []
    for part in batch[:MOST_TENSORS]:
        found.extend(shapes(part, depth + 1))
    return found[:MOST_TENSORS]


def larger_or_other(one: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> bool:
    """Whether two batches differ by more than that one has fewer samples, as the last of an epoch."""
    if len(one) != len(other):
        return True
    return any(len(a) != len(b) or a[1:] != b[1:] or a[:1] < b[:1] for a, b in zip(one, other))


def _is_rest(iterator, one, other):
    """Whether a batch is the last one of a loader, after some that were alike, of fewer samples than those, and larger in nothing."""
    size, given = batch_size(iterator), vars(iterator).get("_gresize_given", 0)
    try:
        rest = len(iterator._index_sampler.sampler) % size if given + 1 == len(iterator) else 0
    except (TypeError, AttributeError, NotImplementedError):  # a stream, or a sampler of another kind, does not say which batch is its last
        rest = 0
    if not rest or given < LEAST_ALIKE:
        return False
    return len(one) == len(other) and all(len(a) == len(b) and all(m <= n for m, n in zip(b, a)) for a, b in zip(one, other))


def _in_a_line(shape):
    """Whether a tensor is one row, as where rows are put one after the other, perhaps in a batch of one."""
    return len(shape) > 0 and math.prod(shape[:-1]) == 1


def _alike(steps):
    return max(steps) - min(steps) <= max(LEAST_DIFFERENCE_BYTES, LEAST_DIFFERENCE * max(steps))


class Steadiness:
    def __init__(self) -> None:
        self.held, self.totals, self.blocks = [], [], []
        self.first = {}  # data set -> shapes of its first batch
        self.largest = {}  # data set -> the most elements that each tensor of a batch had
        self.varies: str | None = None  # in words
        self.varies_later: str | None = None  # of what followed the training's loader, such as a validation
        self.concerned = {}  # whether it is later -> the data set of which that is said
        self.settled = []  # data sets whose largest batch was run
        self.spread = 0.0  # by how much sums of lengths differed
        self.most_elements = 0  # of any tensor of a batch
        self.sources = []  # of a loader that was ended early: it may be gone when its data set is asked

    def step(self, allocated: int, total: int, blocks: int) -> None:
        """A step has ended with so much allocated, in so many blocks; total is all that was ever allocated."""
        self.held = self.held[-GROWING_STEPS:] + [allocated]
        self.blocks = self.blocks[-GROWING_STEPS:] + [blocks]
        self.totals = self.totals[-2 * GROWING_STEPS :] + [total]

    def grows_bytes(self) -> int:
        """What a step leaves behind, where each of the last did so."""
        last = self.held[-GROWING_STEPS:]
        if self.spread or self.varies or self.settled:  # what a batch leaves until the next has another size each time
            return 0
        if len(last) < GROWING_STEPS or not all(a < b for a, b in zip(last, last[1:])):
            return 0
        blocks = self.blocks[-GROWING_STEPS:]
        most = max(b - a + (ROUNDED_BYTES - 1) * max(m - n, 0) for a, b, n, m in zip(last, last[1:], blocks, blocks[1:]))
        return max(most // ROUNDED_BYTES * ROUNDED_BYTES, 1)

    def rests(self, peaks: Sequence[int]) -> bool:
        """Whether the peaks of the last steps, in their order, are one, or rise by the little that each step leaves."""
        slow = min(self.grows_bytes(), SLOW_BYTES)
        return all(0 <= b - a <= slow for a, b in zip(peaks, peaks[1:]))

    def uneven(self) -> bool:
        """Whether the last steps allocated different sizes, and not the same in turn, as where every other one generates something."""
        steps = [b - a for a, b in zip(self.totals, self.totals[1:])]
        if len(steps) < GROWING_STEPS or _alike(steps[-GROWING_STEPS:]):
            return False
        for turn in range(2, GROWING_STEPS + 1):
            last = steps[-2 * turn :]
            if len(last) == 2 * turn and all(_alike(last[i::turn]) for i in range(turn)):
                return False
        return True

    def batch(self, iterator: Any, batch: Any) -> None:
        """A loader has given a batch. Two loaders may give batches of different sizes from one data set."""
        dataset, found = getattr(iterator, "_dataset", None), shapes(batch)
        elements = [math.prod(s) for s in found]
        self.most_elements = max([self.most_elements] + elements)
        self.largest[id(dataset)] = [max(pair) for pair in zip(self.largest.get(id(dataset), elements), elements)]
        if self.varies is not None:
            return
        if not hasattr(iterator, "_gresize_first"):
            iterator._gresize_first = found
        first, ever = iterator._gresize_first, self.first.setdefault(id(dataset), found)
        if _is_rest(iterator, first, found):
            return
        if larger_or_other(first, found):
            self._say(dataset, first, found)
        elif [s[1:] for s in ever] != [s[1:] for s in found]:
            self._say(dataset, ever, found)

    def _say(self, what, one, other):
        if len(one) == len(other) and all(a == b or _in_a_line(a) and _in_a_line(b) for a, b in zip(one, other)):
            spread = max([abs(math.prod(a) - math.prod(b)) / max(math.prod(a), math.prod(b), 1) for a, b in zip(one, other) if a != b] or [0])
            if spread <= MOST_SPREAD:
                self.spread = max(self.spread, spread)
                return
        if any(what is known for known in self.settled):
            return
        later = bool(self.sources) and all(what is not known[0] for known in self.sources)
        a, b = next(((a, b) for a, b in itertools.zip_longest(one, other) if a != b), (None, None))
        text = "%s gave %s and %s" % (type(what).__name__, a, b)
        self.concerned[later] = what
        if later:
            self.varies_later = text
        else:
            self.varies = text

    def is_largest(self, dataset: Any, batch: Any) -> bool:
        """Whether the batches of a data set differ, and no tensor of any was larger than that of this one."""
        return any(dataset is known for known in self.concerned.values()) and [math.prod(s) for s in shapes(batch)] == self.largest.get(id(dataset))

    def settle(self, dataset: Any) -> None:
        """The largest batch that a data set can give was run: what its others need is known."""
        if any(dataset is known for known in self.settled):
            return
        self.settled.append(dataset)
        if self.concerned.get(False) is dataset:
            self.varies = None
        if self.concerned.get(True) is dataset:
            self.varies_later = None

    def alike(self) -> list[tuple[int, ...]]:
        """The shapes of the batches, where those of a data set were all alike."""
        return [shape for found in self.first.values() for shape in found] if self.varies is None else []

    def keep(self, iterator: Any) -> None:
        self.sources.append(source(iterator))

    def sample(self, loaders: Iterable[Any]) -> None:
        """Asks the data sets for items from elsewhere. In a thread, for it may take long."""
        known = list(self.sources)
        for found in (source(loader) for loader in loaders):
            if all(found[0] is not other[0] for other in known):
                known.append(found)
        if self.varies is not None or not known:
            return
        most = MOST_SECONDS + WAITED_FACTOR * MOST_MORE_SECONDS
        asking = threading.Thread(target=self._ask, args=(known, time.monotonic() + most), name="gresize-samples", daemon=True)
        try:
            asking.start()
        except RuntimeError:  # the interpreter is on its way out
            self._ask(known, time.monotonic() + most)
            return
        asking.join(most)

    def _ask(self, known, deadline):
        for dataset, collate, collates, kind, samples in known[:MOST_LOADERS]:
            try:
                sizes, most = [], []
                for item in _items(dataset, kind, deadline):
                    sizes.append(shapes(collate([item])) if collates else shapes(item))
                    most = _most(most or sizes[0], sizes[-1])
                    if sizes[-1] != sizes[0] and not self._came(dataset, most, samples if collates else 1):
                        self._say(dataset, sizes[0], sizes[-1])
                    if self.varies is not None:
                        return
                other = next((size for size in sizes if size != sizes[0]), None)
                if other and not (kind == 0 and len(sizes) >= len(dataset) or is_cut([tuple(n for shape in size for n in shape) for size in sizes])):
                    self._say(dataset, sizes[0], other)
            except Exception:
                guard.complain()

    def _came(self, dataset, most, samples):
        """Whether a batch has come that is as large as any of so many samples, none of which is larger than this one."""
        came = self.largest.get(id(dataset), ())
        return most is not None and type(samples) is int and len(came) == len(most) and all(samples * math.prod(s) <= n for s, n in zip(most, came))


def _most(one, other):
    """The largest size in each dimension; None where samples are of several kinds."""
    if one is None or [len(s) for s in one] != [len(s) for s in other]:
        return None
    return [tuple(map(max, a, b)) for a, b in zip(one, other)]


def is_cut(sizes: Sequence[tuple[int, ...]]) -> bool:
    """Whether samples that are some of many are cut to the largest sizes among them."""
    return all(column.count(max(column)) >= max(CUT_COUNT, CUT_SHARE * len(column)) for column in zip(*sizes))


def source(loader: Any) -> tuple[Any, ...]:
    """(data set, function that makes a batch, whether of several items, kind, samples in a batch) of a loader, or of its iterator, which outlives it."""
    held = vars(loader)
    dataset, collate = held.get("_dataset", held.get("dataset")), held.get("_collate_fn", held.get("collate_fn"))
    return dataset, collate, bool(getattr(loader, "_auto_collation", False)), held.get("_dataset_kind", 0), batch_size(loader)


def batch_size(loader: Any) -> Any:
    return getattr(getattr(loader, "_index_sampler", None), "batch_size", None)


def _items(dataset, kind, deadline):
    if kind == 0:
        count = len(dataset)
        places = sorted({0, count - 1} | {count * k // 16 for k in range(16)} | {(count // 3 + 7919 * k) % count for k in range(8)}) if count > 0 else []
        order = [places[0], places[-1]] + places[1:-1] if places else []
        source: Any = (dataset[i] for i in itertools.chain(order, (int(count * (GOLDEN * k % 1)) for k in range(1, MOST_ASKED if order else 0))))
    else:
        order, source = [], itertools.islice(iter(dataset), MOST_STREAMED)
    begin, soon = time.thread_time(), deadline - WAITED_FACTOR * MOST_MORE_SECONDS  # those of a stream, and the first, have no more by the clock
    for n, item in enumerate(source, 1):
        yield item
        more = kind == 0 and n >= len(order)
        if time.monotonic() > (deadline if more else soon) or more and time.thread_time() > begin + MOST_MORE_SECONDS:
            return
