"""gresize's Python layer: waits for an import of torch, counts its training steps, and stops the run when enough was seen.

A process that never imports torch pays one entry in sys.meta_path and nothing else.
"""
import os
import sys

__all__ = ["install"]


class _Finder:
    """Finds one module as everyone else would, imports it by way of around(what imports it), and runs the hook when it has been imported."""

    def __init__(self, hook, module="torch", around=None):
        self._hook = hook
        self._module = module
        self._around = around

    def find_spec(self, name, path=None, target=None):
        if name != self._module:
            return None
        spec = None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # those before it have been asked, or ask this one
            if not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
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
                if self._module == "torch":
                    from . import failed

                    failed.note(e)
                raise
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                self._hook(module)
            except Exception:  # the module is whole; only the count of steps is missing, and the report says so
                pass

        loader.exec_module = exec_and_hook


def after_import(module, hook):
    """Run hook(module) once a module is imported: at once when it is."""
    if module in sys.modules:
        hook(sys.modules[module])
    else:
        sys.meta_path.insert(0, _Finder(hook, module))


def around_import(module, around):
    """Have a module that is not imported yet imported by around, which is given what imports it."""
    sys.meta_path.insert(0, _Finder(lambda _: None, module, around))


# What a probe does with a program, and the module whose start(torch) does it: a module for each mode.
MODES = {"vgpu": "watch", "profile": "profile", "fake": "fake"}


def _start(torch):
    from importlib import import_module

    from . import frames

    frames.watch()
    module = MODES.get(os.environ.get("GRESIZE_PROBE_MODE") or "vgpu")
    if module is not None:
        import_module("." + module, __name__).start(torch)


def install():
    """Arm the hook, once, in a process of a probe."""
    if not os.environ.get("GRESIZE_VGPU_REPORT_DIR"):
        return
    if any(isinstance(f, _Finder) for f in sys.meta_path) or "torch" in sys.modules:
        return
    from . import listings, ranks

    listings.watch()
    ranks.at_start()

    sys.meta_path.insert(0, _Finder(_start))


def install_late():
    """Start in a process whose torch is in use already. What it did before its first use of the GPU was not seen."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "optim") or not hasattr(torch, "cuda"):
        return
    _start(torch)
