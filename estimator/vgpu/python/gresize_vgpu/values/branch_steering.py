"""What a program does with an answer that was made up.

The instructions behind the question say whether one of the answers ends in an error: such a check is one that a working program passes, whatever the side. And a
loop that turns on the same answer for ever is ended by the other one: no kernel will ever change what it waits for.
"""
from __future__ import annotations

import bisect
import dis
import sys

from gresize_imports import HERE

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType
    from typing import Any

# The same question may be asked so often in one step of training before the answer is turned, and so often from then on.
MOST_TURNS, MOST_TURNS_AFTER = 1000, 64
MOST_PLACES = 4096
MOST_ROWS = 80  # of the way to an error
MOST_FRAMES = 8
LOOP = "loop_by_values"

_codes = {}  # code -> its instructions and their offsets
_checks = {}  # (code, offset, by a call) -> the answer that leads past an error, or None
_turns = {}  # (code, offset) -> how often it was asked since the last step
_ended = set()  # where a loop was ended once


def step() -> None:
    """Training went on, so nothing turns for ever."""
    _turns.clear()


def settle(shadow: Any, answer: bool, called: bool = True) -> bool:
    """The answer that the program is given where answer is a policy's. called: the question may be a call, such as bool() or item(), and not only an operator."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    if frame is None:
        return answer
    key = frame.f_code, frame.f_lasti, called
    if key not in _checks:
        if len(_checks) >= MOST_PLACES:
            return answer
        _checks[key] = _passing(*key)
    if _checks[key] is not None:
        return _checks[key]
    place = key[:2]
    _turns[place] = _turns.get(place, 0) + 1
    if _turns[place] > (MOST_TURNS_AFTER if place in _ended else MOST_TURNS) and _waits(frame):
        _turns[place] = 0
        _ended.add(place)
        if shadow is not None:
            shadow.use(LOOP)
        return not answer
    return answer


def _rows(code):
    if code not in _codes:
        if len(_codes) >= MOST_PLACES:
            _codes.clear()
        rows = list(dis.get_instructions(code))
        _codes[code] = rows, [row.offset for row in rows]
    return _codes[code]


def _passing(code, at, called):
    rows, offsets = _rows(code)
    i = bisect.bisect_right(offsets, at) - 1
    turned = False
    if not called and not (rows[i].opname.startswith("COMPARE_OP") or _conditional(rows[i]) or rows[i].opname in ("TO_BOOL", "UNARY_NOT")):
        return None
    while i < len(rows) and not _conditional(rows[i]):
        if i > bisect.bisect_right(offsets, at) - 1 and rows[i].opname not in ("TO_BOOL", "UNARY_NOT", "EXTENDED_ARG", "CACHE", "NOP"):
            return None
        turned ^= rows[i].opname == "UNARY_NOT"
        i += 1
    if i >= len(rows):
        return None
    jumps = _raises(rows, bisect.bisect_left(offsets, rows[i].argval))
    falls = _raises(rows, i + 1)
    if jumps == falls:
        return None
    when_jumping = "IF_TRUE" in rows[i].opname
    return (when_jumping != jumps) != turned


def _conditional(row):
    return "JUMP" in row.opname and ("IF_TRUE" in row.opname or "IF_FALSE" in row.opname)


def _raises(rows, i):
    """Whether the way from here is straight to an error: other exceptions are a way to go on."""
    error = False
    for _ in range(MOST_ROWS):
        if i >= len(rows):
            return False
        row = rows[i]
        name = row.opname
        if name == "RAISE_VARARGS":
            return error
        if name == "JUMP_FORWARD" or name == "JUMP_ABSOLUTE" and row.argval > row.offset:
            i = next((j for j in range(i + 1, len(rows)) if rows[j].offset >= row.argval), len(rows))
            continue
        if "JUMP" in name or name.startswith(("RETURN", "YIELD", "FOR_ITER", "SETUP", "BEFORE_WITH", "SEND", "RERAISE")):
            return False
        if name in ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT"):
            error = True
        elif name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR") and str(row.argval).endswith(("Error", "Exception")):
            error = True
        i += 1
    return False


def _waits(frame):
    """Whether the innermost loop around a place is one that nothing but a question ends."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return False
        rows, offsets = _rows(frame.f_code)
        around = [r for r in rows if "JUMP" in r.opname and isinstance(r.argval, int) and r.argval <= frame.f_lasti <= r.offset]
        if around:
            start = min(around, key=lambda r: r.offset - r.argval).argval
            return not rows[bisect.bisect_left(offsets, start)].opname.startswith("FOR_ITER")
        frame = frame.f_back
    return False
