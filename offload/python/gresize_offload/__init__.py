"""Runs a program on a card that is too small for it: what autograd keeps for the backward pass goes to host memory and comes back in time, as a plan says.

Without a plan in the environment nothing happens. GRESIZE_OFFLOAD_PLAN is the plan's file. A run on the virtual GPU of which the part "saved" is wanted only
notes what a plan is made from. docs/run.md describes both.
"""
from __future__ import annotations

import os
import sys

__all__ = ["install"]


def install() -> None:
    """Arm the layer, once, in a process that was told to carry out a plan or to record for one."""
    path = os.environ.get("GRESIZE_OFFLOAD_PLAN")
    if not path and "saved" not in os.environ.get("GRESIZE_PROBE_PARTS", "").split(","):
        return
    from gresize_imports import after_import

    def begin(torch):
        try:
            if path:
                from . import plan, swapper

                swapper.begin(torch, plan.read(path))
            else:
                from . import recorder

                recorder.begin(torch)
        except Exception as e:  # the program runs as it would without us
            print("gresize: the plan is not carried out: %s" % e, file=sys.stderr)

    after_import("torch", begin)
