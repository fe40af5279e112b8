"""gresize's Python layer for JAX: waits for an import of jax, counts what XLA executes on the virtual GPU, and ends the run when enough was seen.

A process that never imports jax pays two entries in sys.meta_path and nothing else.
"""
from __future__ import annotations

import os
import time

__all__ = ["install"]


def _import_jax(load):
    from gresize_vgpu.process import guard

    from . import watch

    guard.quietly(watch.prepare)
    begin = time.process_time()
    load()
    guard.quietly(watch.start, time.process_time() - begin)


def _saw_tensorflow(_):
    from . import report

    report.write_tensorflow()


def install() -> None:
    """Arm the hooks, once, in a process of a probe that looks at the virtual GPU."""
    if not os.environ.get("GRESIZE_VGPU_REPORT_DIR") or (os.environ.get("GRESIZE_PROBE_MODE") or "vgpu") != "vgpu":
        return
    from gresize_imports import after_import, around_import

    around_import("jax", _import_jax)
    after_import("tensorflow", _saw_tensorflow)
