"""The largest batch that a loader of samples of several sizes may give, for the program to take its steps with in time-lapse.

Texts are padded to the longest of their batch, pictures to the widest and the highest, and chance says which come together. The data set is asked for its
samples, and the collate function of the loader makes one batch of the largest of them: what any other needs is within what this one does.
"""
from __future__ import annotations

import math
import random
import sys
import time

from ..process import guard
from . import steady_state

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

# As many samples from everywhere, all alike, say that the others are as well.
ALIKE = 48
# By the clock it may take so many times the processor's time.
WAITED_FACTOR = 5


class Batch:
    """bounds: whether no other batch of the loader can be larger."""

    __slots__ = ("batch", "bounds", "given")

    def __init__(self, batch: Any, bounds: Any) -> None:
        self.batch, self.bounds, self.given = batch, bounds, 0


def find(iterator: Any, count: int, seconds: float) -> Batch | None:
    """The Batch of a loader whose batches have count samples; None where the samples are alike, or cannot be asked."""
    dataset, collate, collates, kind, _ = steady_state.source(iterator)
    if kind != 0 or not collates or not isinstance(count, int) or count < 1:
        return None
    kept = states()
    try:
        return _find(dataset, collate, count, seconds)
    except Exception:  # a sample that cannot be had, or a batch that cannot be of one sample
        guard.complain()
        return None
    finally:
        restore(kept)


def _find(dataset, collate, count, seconds):
    total, sizes = len(dataset), {}
    until = time.process_time() + seconds, time.monotonic() + WAITED_FACTOR * seconds
    for place in _order(total):
        sizes[place] = _sizes(collate([dataset[place]]))
        if len(sizes) >= ALIKE and (len(sizes) == ALIKE and len(set(sizes.values())) == 1 or time.process_time() > until[0] or time.monotonic() > until[1]):
            break
    kinds = set(sizes.values())
    if len(kinds) < 2 or len({len(s) for s in kinds}) > 1:
        return None
    ends = [max(sizes, key=lambda place: sizes[place][i]) for i in range(len(next(iter(kinds))))]
    same = all(_sizes(collate([dataset[place]])) == sizes[place] for place in set(ends))
    chosen = list(dict.fromkeys(ends + sorted(sizes, key=lambda place: -math.prod(sizes[place]) if place not in ends else 0)))[: min(count, len(sizes))]
    return Batch(collate([dataset[place] for place in chosen]), same and len(set(ends)) <= count and (len(sizes) == total or steady_state.is_cut(list(sizes.values()))))


def _order(total):
    """All places, from everywhere."""
    step = max(int(total * steady_state.GOLDEN), 1)
    while math.gcd(step, total) > 1:
        step += 1
    return (k * step % total for k in range(total))


def _sizes(batch):
    return tuple(n for shape in steady_state.shapes(batch) for n in shape)


def states() -> Any:
    """Of the generators that the samples may draw from: the program's own numbers stay as they are."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    return random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy is not None else None


def restore(kept: Any) -> None:
    random.setstate(kept[0])
    sys.modules["torch"].set_rng_state(kept[1])
    if kept[2] is not None:
        sys.modules["numpy"].random.set_state(kept[2])
