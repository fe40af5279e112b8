"""gresize's Python layer: waits for an import of torch, counts its training steps, and stops the run when enough was seen.

A process that never imports torch pays one entry in sys.meta_path and nothing else.
"""
from __future__ import annotations

import os
import sys

from gresize_imports import Finder, after_import, around_import

__all__ = ["after_import", "around_import", "install"]


# What a probe does with a program, and the module whose start(torch) does it: a module for each mode.
MODES = {"vgpu": "run.watch", "profile": "modes.cpu_profile", "fake": "modes.fake_tensor"}


def _start(torch):
    from importlib import import_module

    from .process import tracebacks

    tracebacks.watch()
    module = MODES.get(os.environ.get("GRESIZE_PROBE_MODE") or "vgpu")
    if module is not None:
        import_module("." + module, __name__).start(torch)


def _note_failure(e):
    from .run import import_failure

    import_failure.note(e)


def install() -> None:
    """Arm the hook, once, in a process of a probe."""
    if not os.environ.get("GRESIZE_VGPU_REPORT_DIR"):
        return
    if any(isinstance(f, Finder) for f in sys.meta_path) or "torch" in sys.modules:
        return
    from .dist import ranks
    from .process import folder_reads

    folder_reads.watch()
    ranks.at_start()

    sys.meta_path.insert(0, Finder(_start, "torch", failed=_note_failure))


def install_late() -> None:
    """Start in a process whose torch is in use already. What it did before its first use of the GPU was not seen."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "optim") or not hasattr(torch, "cuda"):
        return
    _start(torch)
