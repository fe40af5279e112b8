"""Lists of the program's own from which it makes its batches: whether one has a row that is longer than all that went to the card.

A data set behind a loader is asked for its samples. A list is not: which of its rows goes into which batch is the program's own affair. So the sizes
of what went to the card are noted, and at the end the lengths of the rows are held against them.
"""
from __future__ import annotations

import collections
import itertools
import time

from . import own_files, program_frames

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType
    from typing import Any, Iterable

    from gresize_types import Tensor

# A list of fewer is gone through soon.
LEAST_ROWS = 64
MOST_LISTS, MOST_HELD = 12, 200
# Of the processor's time; by the clock it may be so many times that on a busy machine.
MOST_SECONDS, WAITED_FACTOR = 1.0, 5
MOST_COLUMNS, MOST_SIZES = 8, 512
# What a program puts before and behind its rows, such as where a text begins and ends.
MARKS = (0, 1, 2, -1)
# A row that is longer by less is within what batches of changing sizes are allowed.
LONGER = 1.1
# The largest size is where rows are cut if it came so often, and is such a part of all that came.
CUT_COUNT, CUT_SHARE = 3, 0.05
# Rows that are fewer may not have come by.
FEW = 0.01


class Rows:
    def __init__(self) -> None:
        self.came = {}  # (type, dimensions, place of the dimension) -> how often each size came
        self.lists = {}

    def arrived(self, tensor: Tensor) -> None:
        """A tensor has gone to the card."""
        shape = tensor.shape
        for place, size in enumerate(shape[:3]):
            sizes = self.came.setdefault((tensor.dtype, len(shape), place), collections.Counter())
            if size in sizes or len(sizes) < MOST_SIZES:
                sizes[size] += 1

    def forget(self) -> None:
        """What went there before the first step were weights."""
        self.came.clear()

    def hold(self, frames: Iterable[FrameType], datasets: Iterable[Any]) -> None:
        """Notes the lists of the functions that are running, of the program's objects that those have, and of data sets."""
        for value in itertools.chain.from_iterable(itertools.chain(program_frames.names_of(f).values(), f.f_globals.values()) for f in frames):
            self._hold(value)
        for dataset in datasets:
            self._hold(dataset, True)

    def _hold(self, value, own=False):
        kind = type(value)
        if kind in (list, tuple, collections.deque) or kind.__name__ == "ndarray" and value.dtype == object and value.ndim == 1:
            if len(value) >= LEAST_ROWS and len(self.lists) < MOST_LISTS and not (hasattr(type(value[0]), "is_cuda") and value[0].is_cuda):
                self.lists[id(value)] = value
        elif kind is dict and len(value) >= LEAST_ROWS:
            self._hold(list(value.values()))
        elif own or own_files.is_users(own_files.file_of_type(kind)):
            for part in list(getattr(value, "__dict__", {}).values())[:MOST_HELD]:
                if type(part) in (list, tuple, collections.deque):
                    self._hold(part)

    def longer(self) -> str | None:
        """In words, a list that has a row longer than all that came."""
        until = time.thread_time() + MOST_SECONDS, time.monotonic() + WAITED_FACTOR * MOST_SECONDS
        for rows in list(self.lists.values()):
            for lengths in _columns(rows, until).values():
                for sizes in self.came.values():
                    found = _beyond(lengths, sizes)
                    if found:
                        return "a list of %d rows has one of %d, and the longest that came had %d" % (len(rows), *found)
        return None


def _columns(rows, until):
    """How often each length comes among the rows, for each part that they have."""
    columns = collections.defaultdict(collections.Counter)
    if set(map(type, rows)) <= {list, tuple} and all(row and isinstance(row[0], (int, float)) for row in itertools.islice(rows, LEAST_ROWS)):
        return {0: collections.Counter(map(len, rows))}  # there may be millions
    for n, row in enumerate(rows):
        if n % 1024 == 0 and (time.thread_time() > until[0] or time.monotonic() > until[1]):
            break
        for name, length in _lengths(row):
            columns[name][length] += 1
    return columns


def _lengths(row, depth=1):
    if hasattr(type(row), "shape"):  # what a class says of it runs no code of the row's own
        return enumerate(row.shape[:MOST_COLUMNS]) if isinstance(row.shape, tuple) else ()
    if type(row) in (list, tuple) and row:
        if isinstance(row[0], (int, float)):
            return ((0, len(row)),)
        parts: Any = enumerate(row[:MOST_COLUMNS])
    elif type(row) is dict:
        parts = list(row.items())[:MOST_COLUMNS]
    else:
        return ()
    return [((name, below), length) for name, part in parts for below, length in _lengths(part, depth - 1)] if depth else ()


def _beyond(lengths, sizes):
    """(length of the longest row, of the longest that came), where what came are rows of these lengths and the longest is not among them."""
    most, came = max(lengths), max(sizes)
    if len(lengths) < 2 or most <= came * LONGER:
        return None
    usual = lengths.most_common(1)[0][0]
    if not any(all(size - mark in lengths for size in sizes) and (len(sizes) > 1 or usual + mark in sizes) for mark in MARKS):
        return None
    longer = sum(count for length, count in lengths.items() if length > came)
    cut = sizes[came] >= CUT_COUNT and sizes[came] >= CUT_SHARE * sum(sizes.values()) and longer >= FEW * sum(lengths.values())
    return None if cut else (most, came)
