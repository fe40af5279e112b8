"""The functions of the program's that are running, and what their names stand for."""
from __future__ import annotations

import dis
import inspect
import sys
import weakref

from . import own_files, sources

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType, TracebackType
    from typing import Any, Callable, Iterable, Iterator

MOST_FRAMES, MOST_HELD, DEEPEST = 200, 64, 3


def running(frame: FrameType | None) -> list[FrameType]:
    """The functions of the program's that are running in one thread, the innermost first."""
    found = []
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if own_files.is_users(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


def running_now() -> list[FrameType]:
    """Those of all threads."""
    return [found for frame in list(sys._current_frames().values()) for found in running(frame)]


def lines_of(frames: Iterable[FrameType], traceback: TracebackType | None) -> dict[str, set[int]]:
    """file -> the lines at which functions are, or were when an exception ended the program."""
    found = {}
    for frame in frames:
        found.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
    while traceback is not None:
        found.setdefault(traceback.tb_frame.f_code.co_filename, set()).add(traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def names_of(frame: FrameType) -> dict[str, Any]:
    """Before Python 3.13 a function's f_locals is a copy that its frame keeps: what is in it, such as the last batch, would live longer. So it is emptied;
    but where the program itself asks for locals(), that is the dictionary that it got, and is left alone."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return frame.f_locals
    if sys.version_info >= (3, 13):
        return dict(frame.f_locals)
    if sources.asks_for_locals(code):
        return {}
    names = frame.f_locals
    kept = dict(names)
    names.clear()
    return kept


def mark(value: Any) -> Callable[[Any], bool]:
    """Says of a later value whether it is this one, without keeping it: another may lie at its address."""
    if isinstance(value, (int, float, str, type(None))):
        return lambda other: other is value or type(other) is type(value) and other == value
    try:
        reference = weakref.ref(value)
        return lambda other: reference() is other
    except TypeError:
        address = id(value)
        return lambda other: id(other) == address


def networks_of(frames: Iterable[FrameType]) -> set[str]:
    """The names that networks have in the functions that are running, and in what lies in those."""
    module = sys.modules["torch"].nn.Module
    found = set()

    def note(space, depth):
        for name, value in list(space.items()):
            if isinstance(value, module):
                if not type(value).__module__.startswith("torch.nn.modules.loss"):
                    found.add(name)
                if own_files.is_users(own_files.file_of_type(type(value))):
                    found.update(dict.keys(value._modules))
            elif type(value) in (list, tuple) and value and isinstance(value[0], module):
                found.add(name)
            elif depth and type(getattr(value, "__dict__", None)) is dict and not isinstance(value, (type, type(sys))):
                note(vars(value), depth - 1)

    for frame in frames:
        note(names_of(frame), 1)
        note(frame.f_globals, 0)
    return found


def in_loop(frame: FrameType) -> bool:
    """Whether a jump goes back over the place where a function is."""
    return any("JUMP" in row.opname and isinstance(row.argval, int) and row.argval <= frame.f_lasti < row.offset for row in dis.get_instructions(frame.f_code))


def functions_in(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if type(value) in (list, tuple, set) and len(value) <= MOST_HELD and depth < DEEPEST:
        for part in list(value):
            for found in functions_in(part, depth + 1):
                yield found
    elif depth and own_files.is_users_function(value):
        yield value
