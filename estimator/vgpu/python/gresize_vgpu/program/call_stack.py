"""What stands around the steps of a training: the loops that run, the functions that they have at hand, and what calls them again."""
from __future__ import annotations

import ast
import inspect

from . import lines_not_run, own_files, program_frames, sources

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import CodeType, FrameType
    from typing import Any, Iterable, Iterator

COMPREHENSIONS = ("<dictcomp>", "<listcomp>", "<setcomp>", "<genexpr>")  # functions of their own before Python 3.12
# What goes through what it is given, or gives what others go through, in C.
GO_THROUGH = set("for list tuple set frozenset dict sum max min sorted any all map starmap filter reduce deque join extend update".split())

_loops = {}  # filename -> its loops


class Turns:
    """The loops around the steps, and which of them were seen to go round, by what their names stand for at some steps."""

    def __init__(self) -> None:
        self.around, self.turned, self._was = set(), set(), {}

    def observe(self, frames: Iterable[FrameType]) -> None:
        for frame in frames:
            filename, space = frame.f_code.co_filename, None
            for node in loops_at(frame):
                self.around.add((filename, node.lineno))
                if isinstance(node, ast.For) and (filename, node.lineno) not in self.turned:
                    space = program_frames.names_of(frame) if space is None else space
                    now = [space.get(n.id) for n in ast.walk(node.target) if isinstance(n, ast.Name)]
                    was = self._was.setdefault((id(frame), node.lineno), [program_frames.mark(v) for v in now])
                    if not all(mark(v) for mark, v in zip(was, now)):
                        inner = [n.lineno for n in _loops[filename] if n.lineno in sources.span(node)]  # which were gone through, to their end
                        self.turned.update((filename, line) for line in inner)


def loops_at(frame: FrameType) -> list[Any]:
    filename = frame.f_code.co_filename
    if filename not in _loops:
        tree = sources.tree(filename)
        _loops[filename] = [n for n in ast.walk(tree) if isinstance(n, (ast.For, ast.While))] if tree is not None else []
    return [n for n in _loops[filename] if frame.f_lineno in sources.span(n)]


def held(frames: Iterable[FrameType]) -> list[CodeType]:
    """The codes of the program's functions in lists and tables that the loops ask which are running."""
    found = {}
    for frame in frames:
        names = {n.id for loop in loops_at(frame) for n in ast.walk(loop) if isinstance(n, ast.Name)}
        space = program_frames.names_of(frame) if names else {}
        for function in [f for name in names for f in program_frames.functions_in(space.get(name, frame.f_globals.get(name)))]:
            code = own_files.code_of(function)
            if code is not None:
                found[id(code)] = code
    return list(found.values())


def again(frame: FrameType | None) -> Iterator[tuple[str, int, str]]:
    """(file, line, in words how) of what trains and is called once more: a function, by a loop of a library, as a search does; a comprehension's turn."""
    trains, called, inner = False, None, None
    while frame is not None:
        filename = frame.f_code.co_filename
        if own_files.is_users(filename):
            loops = loops_at(frame)
            if trains and (frame.f_code.co_name in COMPREHENSIONS or not loops and program_frames.in_loop(frame) or inner is not None and _goes_through(frame, inner.f_code)):
                yield filename, frame.f_lineno, "later turns of "
            trains, called = trains or bool(loops), (filename, frame.f_code.co_firstlineno) if loops else None
        elif called and program_frames.in_loop(frame):
            yield called[0], called[1], "another call, by a library's loop, of "
            called = None
        inner = frame if own_files.is_users(filename) else None
        frame = frame.f_back


def _goes_through(frame, called):
    """Whether a function's line calls another by going through something, such as a map: that is done in C, where no loop is seen."""
    tree = sources.tree(frame.f_code.co_filename) or ast.Module([], [])
    at = [n for n in ast.walk(tree) if isinstance(n, (ast.For, ast.Call)) and frame.f_lineno in sources.span(n.iter if isinstance(n, ast.For) else n)]
    names = {"for" if isinstance(n, ast.For) else lines_not_run.name_of(n.func) for n in at}
    return not called.co_flags & inspect.CO_GENERATOR and called.co_name not in names and bool(names & GO_THROUGH)


def open_ended(frames: Iterable[FrameType]) -> bool:
    """Whether a loop runs that does not say how often it goes round."""
    return any(isinstance(loop, ast.While) for frame in frames for loop in loops_at(frame))
