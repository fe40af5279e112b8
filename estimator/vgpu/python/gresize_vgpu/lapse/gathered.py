"""What a program gathers over the batches of a loader, as an evaluation that puts all its outputs side by side: each batch leaves something on the card, or the host
fetches something of each.

What is made of all of it may go by the square of how many samples there are, such as a matrix of their similarities. So a loader like that is read to its end once,
where there is time for it. Where there is not, what the card is asked for after passes of different numbers of batches tells whether it goes by them.
"""
from __future__ import annotations

from ..steady import steady_state

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

# Batches of a pass that are looked at. The first leaves its last tensors until the next.
LOOKED_AT = 4
# Passes over a loader that are compared for what stays after each.
PASSES = 3
# What all batches to come may leave behind without being worth a word.
MOST_LEFT_BYTES = 16 << 20
# What a batch leaves for each sample is at least a number of two bytes, and more than a number for the batch.
SAMPLE_BYTES, SCALAR_BYTES = 2, 8


class Look:
    """What a program has asked of the card so far."""

    __slots__ = ("held", "asked", "fetched")

    def __init__(self, held: int, asked: int, fetched: int) -> None:
        self.held = held  # bytes that were not given back
        self.asked = asked  # bytes in all
        self.fetched = fetched  # arrays that it took to the host


class _Kept:
    """What batches leave on the card for good, such as in a pool of hard examples, by the last passes over a loader."""

    def __init__(self) -> None:
        self.begun = 0, 0  # what was held when the last pass began, and the batches that it gave
        self.left_out = 0  # batches of all passes
        self.each: list[int] = []  # bytes that a batch left, in each of the last passes

    def bytes(self, given: int, length: int, held: int, seen: list[Look]) -> int:
        """What the batches that were left out would have left, once a pass has ended that began with so much held."""
        if self.begun[1]:
            stays = (held - self.begun[0]) // self.begun[1]
            within = _least_left(seen) if len(seen) >= LOOKED_AT else min(self.each[-1:], default=0)
            self.each = self.each[1 - PASSES :] + [min(within, stays)]
        self.begun, self.left_out = (held, given), self.left_out + max(length - given, 0)
        each = min(self.each) if len(self.each) == PASSES else 0
        return each * self.left_out if each > SCALAR_BYTES else 0


class Gathered:
    """What was gathered of which loaders, and what could not be seen of it."""

    def __init__(self, look: Callable[[], Look]) -> None:
        self.look = look
        self.words: dict[Any, str] = {}  # data set, or a loader -> in words, that not all of it was read and more comes of more
        self._whole: set[tuple[int, Any]] = set()  # loaders of which all was gathered
        self._asked: dict[tuple[int, Any], dict[int, int]] = {}  # loader -> batches of a pass -> bytes that were asked for after it, at most
        self._kept: dict[tuple[int, Any], _Kept] = {}
        self._after: tuple[Any, int, int, int, str] | None = None  # the pass that has ended last: its loader, batches, length, bytes asked for until then, and its data set

    def batch(self, iterator: Any) -> None:
        """A loader that may be ended early gives a batch."""
        seen = iterator.__dict__.setdefault("_gresize_seen_to_hold", [])
        if not seen:
            self._begin()
        if len(seen) < LOOKED_AT:
            seen.append(self.look())

    def step(self) -> None:
        """A training step: what is asked for from here on is the training's."""
        self._after = None

    def wants_all(self, iterator: Any) -> bool:
        """Whether a loader is worth being read to its end for what is gathered of it."""
        return key_of(iterator) not in self._whole and _gathers(iterator, self._seen(iterator, self.look()))

    def ended(self, iterator: Any, given: int, trained: bool) -> None:
        """A loader has ended after so many batches; trained: steps were made of them."""
        length, now = length_of(iterator), self.look()
        seen = self._seen(iterator, now)
        iterator.__dict__.pop("_gresize_seen_to_hold", None)
        if length is None:
            return
        key, dataset = key_of(iterator), iterator._dataset
        kept = self._kept.setdefault(key, _Kept()).bytes(given, length, seen[0].held, seen)
        self.words.pop(key, None)
        if kept > MOST_LEFT_BYTES:
            self.words[key] = "the batches of a loader of %s that were left out would have kept %d MiB" % (type(dataset).__name__, kept >> 20)
        gathers, left = _gathers(iterator, seen), _least_left(seen)
        if given >= length:
            if gathers or left:
                self._whole.add(key)
                self.words.pop(id(dataset), None)
            return
        if key in self._whole:
            return
        to_come = length - max(given, LOOKED_AT - 1)
        if left * to_come > MOST_LEFT_BYTES or gathers and _is_of_samples(iterator, left):
            self.words[id(dataset)] = "of a loader of %s %d %s not read, and each leaves %d bytes" % (
                type(dataset).__name__, to_come, "batch was" if to_come == 1 else "batches were", left)
        if gathers and not trained:
            self._after = key, given, length, now.asked, type(dataset).__name__

    @staticmethod
    def _seen(iterator, now):
        seen = iterator.__dict__.get("_gresize_seen_to_hold", [])
        return seen if len(seen) >= LOOKED_AT else seen + [now]

    def _begin(self):
        """Another loader is read, or the same once more: what was asked for since the last one was made of what that gave, if of anything."""
        if self._after is None:
            return
        (key, given, length, asked, name), self._after = self._after, None
        after = self._asked.setdefault(key, {})
        after[given] = max(after.get(given, 0), self.look().asked - asked)
        few, many = min(after), max(after)
        if few < many and key not in self._whole:
            rise = (after[many] - after[few]) * (length**2 - many**2) / (many**2 - few**2)
            if rise > MOST_LEFT_BYTES:
                self.words[key[0]] = "of a loader of %s %d of %d batches were read, and what follows takes more after more of them" % (name, many, length)


def key_of(iterator: Any) -> tuple[int, Any]:
    """What loaders of the same batches have in common."""
    return id(iterator._dataset), steady_state.batch_size(iterator)


def _gathers(iterator, seen):
    """Whether something is kept for each sample, and there are so many that a matrix of all of them is worth a word."""
    fetched = all(b.fetched > a.fetched for a, b in zip(seen[1:], seen[2:]))
    return len(seen) >= LOOKED_AT and _are_many(iterator) and (fetched or _is_of_samples(iterator, _least_left(seen)))


def _are_many(iterator):
    length = length_of(iterator)
    return length is not None and SAMPLE_BYTES * (length * (steady_state.batch_size(iterator) or 1)) ** 2 > MOST_LEFT_BYTES


def _is_of_samples(iterator, left):
    return left > SCALAR_BYTES and left >= SAMPLE_BYTES * (steady_state.batch_size(iterator) or 1)


def _least_left(seen):
    left = [b.held - a.held for a, b in zip(seen[1:], seen[2:])]
    return max(min(left), 0) if len(left) >= 2 else 0


def length_of(iterator: Any) -> Any:
    """How many batches a loader has; None of a stream, which has none."""
    try:
        return len(iterator)
    except Exception:
        return None
