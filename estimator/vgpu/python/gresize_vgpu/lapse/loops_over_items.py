"""Loops over anything but a range, in time-lapse: the batches of a loader, a list, what a generator gives.

From the first step in one of its turns on, a loop goes through its items by way of here. A turn is left out if its item is like those that had turns: arrays of the same
shapes, and the same of all else; and if its whole numbers, which may be lengths, are no larger than those. What is left out is read all the same, to the end of the loop
where there is time for that, so that an item of another kind has its turn, and so has the last.
"""
from __future__ import annotations

import dis
import gc
import operator
import os
import time

from ..program import loop_stack
from . import turn_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType
    from typing import Any, Iterable

    from .counting_loops import Loops

# Of the time that is left, for reading what has no turn: an n-th of it at a loop's n-th time; and at most, once it is known how much there is.
SHARE, MOST_SECONDS = 0.25, 1.0
# Items of a kind that have a turn wherever they come.
OF_A_KIND = 2
NEWS_SECONDS = 0.25
MOST_KINDS = 4096
MOST_ENTRIES, DEEPEST = 256, 5
# Whole numbers of a larger array are data: words, pictures.
MOST_NUMBERS_BYTES = 1 << 16
# So many items tell which of their parts count them.
COUNTED = 3
# What only counts is no loader.
COUNTS = ("range_iterator", "longrange_iterator", "count", "repeat")
END = object()


def begin(loops: Loops, frames: Iterable[FrameType]) -> None:
    """A step has come: the loops of the program's around it go through their items by way of here."""
    for frame in frames:
        for place in loop_stack.loops_of(frame):
            iterator = place.get()
            if not isinstance(iterator, Items) and hasattr(type(iterator), "__next__") and not _counts(iterator, type(loops).turns.__code__):
                place.set(Items(loops, iterator, place.loop))


class Items:
    """Goes through what another goes through."""

    def __init__(self, loops: Loops, iterator: Any, place: Any) -> None:
        self.loops, self.iterator, self.place = loops, iterator, place
        self.notes: Any = None
        self.kinds: dict[Any, int] = {}  # of items -> how many had a turn
        self.most: dict[Any, list[int]] = {}  # kind -> the largest of its whole numbers, and their sum, for each of its arrays
        self.next = 0  # the turn whose item is read next
        self.given = 0
        self.held: list[Any] = []  # what is read, and has its turn next
        self.first: Any = []  # items, until it is known what counts them
        self.counts: dict[int, tuple[int, int]] = {}  # place in an item -> what stands there at the first turn, and how much more at each
        self.variants, self.was_known = loops.variants, False  # before the turn that goes on, and whether its item's kind had come before
        self.by_values = 0  # times that a turn with an item of a known kind took something of another size
        self.untold = place not in loops.items_of  # how many there are
        self.until: Any = None
        self.news = 0.0  # when it is said next that something new comes
        self.reads = True  # what has no turn is read
        self.ended = False
        self.raised: Any = None
        self.turns: Any = loops.turns_of_items(self, range(loops.items_of.get(place, turn_numbers.MOST_TURNS)), place)

    def __iter__(self) -> Items:
        return self

    def __next__(self) -> Any:
        try:
            item = self._next() if self.turns is not None else self._own()
        except Exception as e:
            self.loops.fault(e)
            self.turns = None
            item = self._own()
        if item is END:
            turns, self.turns = self.turns, None
            if turns is not None:
                turns.close()
            if self.raised is not None:
                raise self.raised
            raise StopIteration
        return item

    def _next(self):
        turn = next(self.turns, None)
        if turn is None:
            if self.place not in self.loops.read and not self.raised and self._own() is not END:
                self.loops.unread.add("what the loop at %s goes through was not read to its end, and may be of another size further on" % _place(self.place))
            return END
        self._look()
        item = self._own()
        if item is END:
            return END
        self.held.append(item)  # for whom takes the next after a fault of what follows
        self.given += 1
        self._note(item)
        numbered = self._numbered(item, int(turn))
        self.held.pop()
        return numbered

    def _own(self):
        """The next item, or that there is none."""
        if self.held:
            return self.held.pop()
        if self.ended:
            return END  # some would begin anew
        try:
            item = next(self.iterator)
        except BaseException as e:
            self.ended = True
            if not isinstance(e, StopIteration):
                self.raised = e  # the program's own
            elif self.reads:
                self.loops.read.add(self.place)
                if self.visits() > 1:  # the first time it was on its way already
                    self.loops.items_of[self.place] = self.next
            return END
        self.next += 1
        return item

    def visits(self) -> int:
        return self.loops.visits.get(self.place, 0)

    def goes_by_values(self) -> bool:
        """Whether what turns take goes by more than the kinds of their items."""
        return self.by_values > self.loops.most_variants

    def _look(self):
        """A turn has ended."""
        more = self.loops.variants - self.variants
        if self.was_known:
            self.by_values += more
        else:
            self.loops.variants -= more  # which is no news of the loops around this one
        self.variants = self.loops.variants
        if self.goes_by_values() and self.next > self.given:
            self.loops.unread.add("turns of the loop at %s were left out, and others take more by what is in their items" % _place(self.place))

    def reach(self, turn: int) -> int | None:
        """Reads on to the item of a turn. Returns the turn that comes: that, or one before it whose item is of another kind, or the last, or the last that there was time
        to read; None where nothing comes."""
        if not self.reads:
            self.next = turn
            return turn
        if self.until is None:
            seconds = SHARE * self.loops.lapse.left_seconds()
            self.until = time.monotonic() + (seconds if self.untold else min(seconds, MOST_SECONDS)) / self.visits()
            self.news = time.monotonic() + NEWS_SECONDS
        last = END
        while self.reads:
            item = self._own()
            if item is END:
                if last is END or self.raised is not None:
                    return None
                item = last
                break
            if self._is_new(item) or self.next > turn:
                break
            last, now = END if _on_card(item) else item, time.monotonic()
            self.reads = now < self.until
            if now >= self.news:
                self.loops.lapse.news()  # what is read is waited for
                self.news = now + NEWS_SECONDS
        self.held.append(item)
        return self.next - 1

    def _is_new(self, item):
        kind, numbers = self._kind(item)
        return self.kinds.get(kind, 0) < OF_A_KIND or self._is_larger(kind, numbers)

    def _is_larger(self, kind, numbers):
        return any(map(operator.gt, numbers, self.most.get(kind, numbers)))

    def _note(self, item):
        kind, numbers = self._kind(item)
        self.was_known = kind in self.kinds and not self._is_larger(kind, numbers)
        if kind in self.kinds or len(self.kinds) < MOST_KINDS:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            self.most[kind] = list(map(max, numbers, self.most.get(kind, numbers)))
        if self.first is not None and self.notes is not None:
            self.first.append([part if type(part) is int else None for part in item] if type(item) is tuple else [])  # what else is in it is not kept
            if len(self.first) == COUNTED:
                self._count(self.first)
                self.first = None

    def _count(self, items):
        """Which parts of an item count them, as enumerate has it."""
        if not all(items) or None not in items[0]:
            return
        for place, parts in enumerate(zip(*items)):
            stride = parts[1] - parts[0] if None not in parts else 0
            if stride and parts[2] - parts[1] == stride:
                self.counts[place] = parts[0], stride

    def _kind(self, item):
        if self.counts:
            item = tuple(part for place, part in enumerate(item) if place not in self.counts)
        numbers: list[int] = []
        return kind_of(item, numbers), numbers

    def _numbered(self, item, turn):
        if not self.counts:
            return item
        parts = list(item)
        for place, (first, stride) in self.counts.items():
            parts[place] = self.notes.known(first + stride * turn, (operator.add, (operator.mul, self.notes.terms, stride), first))
        return tuple(parts)


def kind_of(value: Any, numbers: list[int], depth: int = 0) -> Any:
    """What two items have in common that take the same; of what is not known, nothing has. The largest of the whole numbers of an array, and their sum, go to numbers."""
    if value is None or type(value) in (int, bool, str, bytes):
        return type(value), value
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if type(value) in (float, complex) or shape == () and getattr(dtype, "kind", "") in "fc":
        return type(value), value if depth == 0 else None  # beside others it is data
    if shape is not None and dtype is not None and not isinstance(value, type):
        if getattr(dtype, "kind", "") == "O" or shape == () and type(value).__module__ == "numpy":
            return object() if getattr(dtype, "kind", "") == "O" else (type(value), value.item())
        if type(value).__module__ == "numpy" and getattr(dtype, "kind", "-") in "iub" and 0 < value.nbytes <= MOST_NUMBERS_BYTES:
            numbers += [int(value.max()), int(value.sum())]
        return type(value), tuple(shape), str(dtype)
    if depth >= DEEPEST:
        return object()
    if hasattr(value, "keys") and hasattr(type(value), "__getitem__"):
        entries = list(value.items())
    elif isinstance(value, (list, tuple)):
        entries = list(enumerate(value))
    elif hasattr(type(value), "__dataclass_fields__"):
        entries = [(name, getattr(value, name, None)) for name in type(value).__dataclass_fields__]
    else:
        return object()
    return (type(value),) + tuple((kind_of(k, numbers, depth + 1), kind_of(v, numbers, depth + 1)) for k, v in entries) if len(entries) <= MOST_ENTRIES else object()


def _on_card(value):
    """Whether some array of an item may lie on the card, where one that is kept would take room."""
    if isinstance(value, dict):
        return any(_on_card(part) for part in list(value.values()))
    if isinstance(value, (list, tuple)):
        return any(_on_card(part) for part in value)
    return hasattr(value, "shape") and type(value).__module__ != "numpy"


def _counts(iterator, turns, depth=0):
    """Whether a loop goes through numbers alone, or is one over a range, which is in time-lapse as that."""
    if type(iterator).__name__ in COUNTS and depth == 0 or getattr(iterator, "gi_code", None) is turns:
        return True
    return depth < 2 and type(iterator) in (zip, enumerate, tuple, map, filter) and any(_counts(found, turns, depth + 1) for found in gc.get_referents(iterator))


def _place(place):
    code, at = place
    line = max([line for offset, line in dis.findlinestarts(code) if offset <= at and line], default=code.co_firstlineno)
    return "line %d of %s" % (line, os.path.basename(code.co_filename))
