"""Which lines of the program's own code have been run.

From Python 3.12 on the interpreter tells each line once, and nothing is paid for it afterwards; before, the native layer is told of all lines, and
tells each of the program's own once.
"""
from __future__ import annotations

import ctypes
import dis
import sys
import threading
from importlib.machinery import SourceFileLoader

from gresize_imports import found_behind

from ..process import native
from . import own_files

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType
    from typing import Any, Callable

# Tools that have no name of their own in sys.monitoring: 0 to 2 and 5 are for debuggers, coverage, profilers and optimizers.
TOOLS = (4, 3)


class Passed:
    def __init__(self) -> None:
        self.lines = {}  # filename -> the lines that were run
        self.compiles = False  # a compiler is at work: what it makes of a function has no lines
        self._lost: Callable[[], bool] | None = None  # whether somebody else follows the program now

    def watch(self, frame: FrameType) -> None:
        """From here on, in whoever's loop: the program's functions that run already, and those that begin."""
        if hasattr(sys, "monitoring"):
            self._monitor(frame)
        else:
            self._trace(frame)

    def lost(self) -> bool:
        """Whether it is not known which lines were run."""
        return self._lost is None or self._lost()

    def compiled(self, _: Any = None) -> None:
        self.compiles = True

    def _of(self, code):
        """The lines of the file of some code that is the program's own; None for a library's, or for what a compiler made."""
        if not own_files.is_users(code.co_filename) or self.compiles and code in getattr(sys.modules.get("torch._dynamo.convert_frame"), "output_codes", ()):
            return None
        return self.lines.setdefault(code.co_filename, set())

    def _running(self, frame):
        """The program's functions that run already; what was run of them before is not known, and taken for all that is above."""
        while frame is not None:
            lines = self._of(frame.f_code)
            if lines is not None:
                lines.update(line for _, line in dis.findlinestarts(frame.f_code) if line and line <= frame.f_lineno)
                yield frame, lines
            frame = frame.f_back

    def _monitor(self, frame):
        tools: Any = getattr(sys, "monitoring")  # noqa: B009, the type checker knows the oldest Python alone
        tool = next(t for t in TOOLS if tools.get_tool(t) is None)
        tools.use_tool_id(tool, "gresize")

        def begins(code, offset):
            try:
                if self._of(code) is not None:
                    tools.set_local_events(tool, code, tools.events.LINE)
            except Exception:
                self._lost = lambda: True
            return tools.DISABLE

        def line(code, number):
            self.lines[code.co_filename].add(number)
            return tools.DISABLE

        tools.register_callback(tool, tools.events.PY_START, begins)
        tools.register_callback(tool, tools.events.LINE, line)
        tools.set_events(tool, tools.events.PY_START)
        for running, _ in self._running(frame):
            tools.set_local_events(tool, running.f_code, tools.events.LINE)
        self._lost = lambda: False

    def _trace(self, frame):
        follow = getattr(native.library(), "gresize_vgpu_follow_lines", None)
        if sys.gettrace() is not None or follow is None:
            return
        follow = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.py_object)(("gresize_vgpu_follow_lines", native.library()))

        def told(code, line):
            try:
                if line:
                    self.lines[code.co_filename].add(line)
                    return True
                return self._of(code) is not None
            except Exception:
                self._lost = lambda: True
                return False

        def begins(running, event, arg):
            """A thread has begun, which the interpreter tells by a function of Python's."""
            follow(told)

        set_trace = sys.settrace

        def another(function):
            if function is not begins:
                self._lost = lambda: True
            set_trace(function)

        def quiet(load):
            """A library is imported: what comes of its lines is nothing, and would take its time."""
            now: Any = sys.gettrace()
            if now is not told:
                return load()
            ctypes.pythonapi.PyEval_SetTrace(None, None)
            try:
                return load()
            finally:
                follow(told)

        list(self._running(frame))
        if follow(told):
            sys.meta_path.insert(0, _Imports(quiet))
            self._lost = lambda: False
            threading.settrace(begins)
            sys.settrace = another


class _Imports:
    """Has modules of libraries, which are found as everyone would find them, imported by around(what imports one)."""

    def __init__(self, around):
        self._around = around

    def find_spec(self, name, path=None, target=None):
        spec = found_behind(self, name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and not own_files.is_users(spec.origin or ""):
            self._wrap(spec.loader)
        return spec

    def _wrap(self, loader):
        exec_module = loader.exec_module
        loader.exec_module = lambda module: self._around(lambda: exec_module(module))
