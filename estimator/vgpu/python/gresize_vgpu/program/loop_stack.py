"""What the loops of a running function go through: the interpreter keeps it on the function's stack, where nothing in the program can see it."""
from __future__ import annotations

import ctypes
import dis
import inspect
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import CodeType, FrameType
    from typing import Any, Iterator

WORD = ctypes.sizeof(ctypes.c_void_p)
# Of a frame, in words: where it has the address of its stack before Python 3.11, and where that of the interpreter's own frame since then, whose names begin behind a head.
STACK_AT, INNER_AT, INNER_HEAD = 8, 3, 9
NEWEST = (3, 14)  # from there on, what lies on a stack is no plain address
LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")

_loops: dict[CodeType, list[tuple[int, int, int]]] = {}
_known: list[bool] = []  # whether this Python's frames are as they are taken to be, once that was tried


class Place:
    """Where on its stack a function has what one of its loops goes through."""

    def __init__(self, frame: FrameType, at: int, address: int) -> None:
        self.loop = frame.f_code, at
        self._word = ctypes.c_void_p.from_address(address)

    def get(self) -> Any:
        return ctypes.cast(self._word.value, ctypes.py_object).value if self._word.value else None

    def set(self, iterator: Any) -> None:
        """Puts something in the place of what is there; only while the function waits for what it has called."""
        before = self.get()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(iterator))
        self._word.value = id(iterator)
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(before))


def loops_of(frame: FrameType) -> Iterator[Place]:
    """The loops of a function around the place where it is, the outermost first; none where this Python's frames are not known."""
    found = _loops_at(frame)
    if found and _is_known():
        base = _base(frame)
        for at, slot in found if base else ():
            yield Place(frame, at, base + slot * WORD)


def _loops_at(frame):
    code = frame.f_code
    if code not in _loops:
        try:
            _loops[code] = list(_read(code))
        except (KeyError, ValueError):  # instructions that this does not know
            _loops[code] = []
    return [(at, slot) for at, end, slot in _loops[code] if at < frame.f_lasti < end]


def _base(frame):
    """The address of a function's stack; None where its frame is not as it is taken to be."""
    if sys.version_info < (3, 11):
        return ctypes.c_void_p.from_address(id(frame) + STACK_AT * WORD).value
    code, inner = frame.f_code, ctypes.c_void_p.from_address(id(frame) + INNER_AT * WORD).value
    if not inner or id(code) not in (ctypes.c_void_p * INNER_HEAD).from_address(inner):
        return None
    return inner + (INNER_HEAD + len(code.co_varnames) + len(set(code.co_cellvars) - set(code.co_varnames)) + len(code.co_freevars)) * WORD


def _read(code):
    """(where a loop asks for its next item, where it ends, its place on the stack) of each."""
    rows = [row for row in dis.get_instructions(code) if row.opname != "CACHE"]
    at = {row.offset: i for i, row in enumerate(rows)}
    # What a generator is sent first lies on its stack when it begins; some releases count it with the instruction that makes it one.
    begins = int(sys.version_info >= (3, 10) and bool(code.co_flags & inspect.CO_GENERATOR) and not any(row.opname == "RETURN_GENERATOR" and dis.stack_effect(row.opcode) for row in rows))
    depths, ways = {}, [(0, begins)]
    while ways:
        i, depth = ways.pop()
        while i < len(rows) and i not in depths:
            depths[i], row = depth, rows[i]
            argument = row.arg if row.opcode >= dis.HAVE_ARGUMENT else None
            if row.opcode in dis.hasjrel or row.opcode in dis.hasjabs:
                ways.append((at[row.argval], depth + dis.stack_effect(row.opcode, argument, jump=True)))
            if row.opname in LEAVES:
                break
            i, depth = i + 1, depth + dis.stack_effect(row.opcode, argument, jump=False)
    for i, row in enumerate(rows):
        if row.opname == "FOR_ITER" and depths.get(i, 0) > 0:
            yield row.offset, row.argval, depths[i] - 1


def _is_known():
    """Tries it with a function whose loops are known."""
    if not _known:
        _known.append(sys.version_info < NEWEST and sys.implementation.name == "cpython" and _tried())
    return _known[0]


def _tried():
    outer, inner = iter([[1]]), iter([1])

    def tried(first, second):
        for _ in first:
            for _ in second:
                frame = sys._getframe()
                base = _base(frame)
                return base and [ctypes.c_void_p.from_address(base + slot * WORD).value for _, slot in _loops_at(frame)] == [id(first), id(second)]

    return bool(tried(outer, inner))
