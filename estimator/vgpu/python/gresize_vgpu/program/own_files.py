"""Which files and functions are the program's own. What libraries do is not looked at."""
from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import time

from gresize_imports import HERE

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import CodeType, ModuleType
    from typing import Any

DEEPEST = 8


def _library_folders():
    paths = sysconfig.get_paths()
    folders = {os.path.realpath(paths[k]) for k in ("stdlib", "platstdlib", "purelib", "platlib") if k in paths}
    return tuple(f + os.sep for f in folders) + (HERE,)


LIBRARIES = _library_folders()
BEGAN_UNIX = time.time()
_users = {}
_written = set()  # files of the program's that came while it ran: a library has generated them
_installed = None


def _installed_folders():
    """Folders on the path into which packages were installed, such as by `pip install --target`."""
    found = []
    for folder in list(dict.fromkeys(sys.path))[:50]:
        try:
            if folder and any(name.endswith(".dist-info") for name in os.listdir(folder)):
                found.append(folder + os.sep)
                found.append(os.path.realpath(folder) + os.sep)
        except OSError:
            continue
    return tuple(found)


def _is_library(path):
    global _installed
    if _installed is None:
        _installed = _installed_folders()
    return path.startswith(LIBRARIES) or path.startswith(_installed) or "site-packages" in path or "dist-packages" in path


def is_users(filename: str) -> bool:
    """Whether code is the program's own."""
    known = _users.get(filename)
    if known is None:
        known = not _is_library(filename)
        if known:
            path = os.path.realpath(filename)
            known = os.path.isfile(path) and not _is_library(path)
            if known and os.path.getmtime(path) >= BEGAN_UNIX:
                _written.add(filename)
        _users[filename] = known
    return known


def came_and_went(filename: str) -> bool:
    """Whether a file was written and removed while the program ran, as a compiler of functions does with what it generates."""
    return filename in _written and not os.path.exists(filename)


def file_of(module: ModuleType | None) -> str:
    """Where a module was read from, out of what it holds: one that is loaded when it is first asked for something would be loaded by any other question."""
    name = vars(module).get("__file__") if issubclass(type(module), type(sys)) else None
    return name if isinstance(name, str) else ""


def file_of_type(kind: type) -> str:
    return file_of(sys.modules.get(getattr(kind, "__module__", "")))


def unwrapped(function: Any) -> Any:
    """A function without what decorators put around it, of which PyTorch has one around every optimizer's step."""
    function = getattr(function, "func", function)  # functools.partial
    for _ in range(DEEPEST):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return getattr(function, "__func__", function)


def code_of(function: Any) -> CodeType | None:
    return getattr(unwrapped(function), "__code__", None)


def is_users_function(value: Any) -> bool:
    code = code_of(value)
    return inspect.iscode(code) and is_users(code.co_filename)
