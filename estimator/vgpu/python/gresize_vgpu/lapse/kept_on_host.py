"""Lists of the program's that each turn of a loop makes longer by an array: what is made of them later is as large as there were turns."""
from __future__ import annotations

import collections

from . import program_counters

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Frames

MOST_OBJECTS = 3000
DEEPEST = 4
# What all turns that are left out would have put into one list may be so much without being worth a word.
MOST_LEFT_BYTES = 16 << 20


def lengths(frames: Frames) -> dict[int, int]:
    """id of a list -> how long it is."""
    return {place: len(found) for place, found in _lists(frames).items()}


def left_out(before: dict[int, int], frames: Frames, turns: int, more: int) -> int:
    """The bytes that as many turns more would have put into the list that grows most, by those that came since it was asked before."""
    most = 0
    for place, found in _lists(frames).items():
        grown = len(found) - before.get(place, 0)
        if place in before and grown > 0 and turns > 0:
            most = max(most, grown * _bytes(found[-1]) * more // turns)
    return most


def _lists(frames):
    found, seen = {}, set()
    queue = collections.deque((value, 0) for root in list(frames) for value in list((program_counters.space(frames, root) or {}).values()))
    for _ in range(MOST_OBJECTS):
        if not queue:
            break
        value, depth = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if type(value) in (list, collections.deque):
            found[id(value)] = value
        if depth < DEEPEST:
            queue.extend((inner, depth + 1) for _, inner in program_counters.parts(value) if not isinstance(inner, program_counters.NO_LISTS))
    return found


def _bytes(value: Any) -> int:
    """What the arrays of something have."""
    if isinstance(value, dict):
        return sum(_bytes(v) for v in list(value.values())[: program_counters.MOST_ENTRIES])
    if isinstance(value, (list, tuple)):
        return sum(_bytes(v) for v in value[: program_counters.MOST_ENTRIES])
    return int(getattr(value, "nbytes", 0)) if getattr(value, "ndim", 0) else 0
