"""Calls on the import of a module that a program may never import, for the layers beside it: one entry in sys.meta_path until then, and nothing else."""
import os
import sys

# Where the layers lie: a frame of a file below is none of the program.
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Finder:
    """Finds one module as everyone else would, imports it by way of around(what imports it), and runs the hook when it has been imported."""

    def __init__(self, hook, module, around=None, failed=None):
        self._hook = hook
        self._module = module
        self._around = around
        self._failed = failed  # is told what an import that fails raises

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


def after_import(module, hook):
    """Run hook(module) once a module is imported: at once when it is."""
    if module in sys.modules:
        hook(sys.modules[module])
    else:
        sys.meta_path.insert(0, Finder(hook, module))


def around_import(module, around):
    """Have a module that is not imported yet imported by around, which is given what imports it."""
    sys.meta_path.insert(0, Finder(lambda _: None, module, around))
