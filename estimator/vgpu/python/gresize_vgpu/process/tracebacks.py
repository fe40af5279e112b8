"""Leaves gresize's own frames out of the traceback that ends a program: whoever reads it looks for a fault of the program.

Only what is printed is another one. The program itself, and a hook of its own, see the exception as it is, and so does whoever looks at it afterwards.
GRESIZE_VGPU_TRACEBACK=whole prints all frames, for whoever looks for a fault of gresize.
"""
from __future__ import annotations

import os
import sys
import types

from gresize_imports import HERE

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import TracebackType

MOST = 64  # exceptions that hang together


def _ours(tb):
    return os.path.abspath(tb.tb_frame.f_code.co_filename).startswith(HERE)


def trimmed(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames; as it is where nothing would be left."""
    kept, row = [], tb
    while row is not None:
        if not _ours(row):
            kept.append(row)
        row = row.tb_next
    if not kept:
        return tb
    result = None
    for row in reversed(kept):
        result = types.TracebackType(result, row.tb_frame, row.tb_lasti, row.tb_lineno)
    return result


def _all_of(exception):
    """The exception and what it came from."""
    found, waiting = [], [exception]
    while waiting and len(found) < MOST:
        one = waiting.pop()
        if isinstance(one, BaseException) and not any(one is other for other in found):
            found.append(one)
            waiting += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return found


def watch() -> None:
    """Hook what prints the last traceback, where the program has not done so itself."""
    original = sys.excepthook
    if original is not sys.__excepthook__ or os.environ.get("GRESIZE_VGPU_TRACEBACK") == "whole":
        return

    def report(kind, exception, tb):
        before = []
        try:
            for one in _all_of(exception):
                before.append((one, one.__traceback__))
                one.__traceback__ = trimmed(one.__traceback__)
        except Exception:  # then it is printed as it is
            pass
        try:
            original(kind, exception, tb)
        finally:
            for one, whole in before:
                one.__traceback__ = whole

    sys.excepthook = report
