"""Calls on the import of a module that a program may never import, for the layers beside it: one entry in sys.meta_path until then, and nothing else."""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable

# Where the layers lie: a frame of a file below is none of the program.
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def found_behind(finder: Any, name: str, path: Any, target: Any) -> ModuleSpec | None:
    """What those say that stand behind a finder: those before it have been asked, or ask this one."""
    for other in sys.meta_path[sys.meta_path.index(finder) + 1 :]:
        spec = other.find_spec(name, path, target) if hasattr(other, "find_spec") else None
        if spec is not None:
            return spec
    return None


class Finder:
    """Finds one module as everyone else would, imports it by way of around(what imports it), and runs the hook when it has been imported."""

    def __init__(self, hook: Callable[[ModuleType], object], module: str, around: Callable[[Callable[[], None]], object] | None = None, failed: Callable[[Exception], object] | None = None) -> None:
        self._hook = hook
        self._module = module
        self._around = around
        self._failed = failed  # is told what an import that fails raises

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        spec = found_behind(self, name, path, target)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        self._wrap(spec.loader)
        return spec

    def _wrap(self, loader):
        exec_module = loader.exec_module

        def exec_and_hook(module):
            try:
                if self._around is None:
                    exec_module(module)
                else:
                    self._around(lambda: exec_module(module))
            except Exception as e:
                if self._failed is not None:
                    self._failed(e)
                raise
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                self._hook(module)
            except Exception:  # the module is whole; only the count of steps is missing, and the report says so
                pass

        loader.exec_module = exec_and_hook


def after_import(module: str, hook: Callable[[ModuleType], object]) -> None:
    """Run hook(module) once a module is imported: at once when it is."""
    if module in sys.modules:
        hook(sys.modules[module])
    else:
        sys.meta_path.insert(0, Finder(hook, module))


def around_import(module: str, around: Callable[[Callable[[], None]], object]) -> None:
    """Have a module that is not imported yet imported by around, which is given what imports it."""
    sys.meta_path.insert(0, Finder(lambda _: None, module, around))
