"""Counts what XLA executes and decides when it has been seen for long enough."""
from __future__ import annotations

import os
import sys
import threading
import time

from gresize_vgpu.dist import ranks
from gresize_vgpu.process import guard, report_file, settings, watched

from . import arrays, counted, later, pjrt, processes, reads, report

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

DEFAULT_STEPS = 4
DEFAULT_SECONDS = 120.0
LOOKS_EVERY_SECONDS = 0.25
# The peak must not have moved in this many executions of the largest computation.
FLAT_STEPS = 2
# A peak that never comes to rest has its first answer all the same, so many times the steps behind the newest computation.
MOST_TIMES_STEPS = 3
# A program that has done nothing new for so long after its first answer is not waited for: seconds of the processor at least, and as many times
# those that the first answer took; by the clock, more than the ten seconds for which XLA waits for memory where the card is full.
REST_SECONDS, REST_TIMES = 5.0, 2
REST_CLOCK_SECONDS, REST_CLOCK_TIMES = 20.0, 4
NEW_BYTES = 1 << 20
# XLA times kernels to choose among them, which has no meaning here and costs most of a compilation; and it puts kernels that follow one another into
# graphs of the driver, which need no memory of its allocator. What is given twice counts as it is given last.
FLAGS = ("--xla_gpu_autotune_level=0", "--xla_gpu_enable_command_buffer=")


class Watch(watched.Watched):
    """The state of one process. Nothing that it does may reach the user's program as an exception."""

    def __init__(self, import_seconds: float) -> None:
        super().__init__()
        self.import_seconds = import_seconds
        self.wanted_steps = settings.number("GRESIZE_PROBE_STEPS", DEFAULT_STEPS, int)
        self.seconds = settings.number("GRESIZE_PROBE_SECONDS", DEFAULT_SECONDS, float)
        self.later = later.Later(self, self.seconds, REST_CLOCK_SECONDS)
        self.counted = counted.Counted()
        self.later.loops.asks = self.counted
        self.reads = reads.Reads(self.counted)
        self.first_answer: Any = None  # when: by the clock, and of the processor
        self.newest = (0.0, 0.0)
        self.seen = 0  # computations
        self.highest = 0  # bytes
        self.steps_at_highest = self.steps_at_seen = 0
        self.rested = False  # the peak, at the first answer
        self.reported = 0

    # -- what is executed

    def look(self) -> None:
        """Asked every now and then, from a thread of ours."""
        computations = pjrt.computations()
        peak = report.peak_bytes()
        steps = pjrt.steps(computations)
        if len(computations) != self.seen or peak > self.highest + NEW_BYTES:
            self.newest = self.clocks()
            self.steps_at_highest = steps
        if len(computations) != self.seen:
            self.steps_at_seen = steps
        self.seen, self.highest = len(computations), max(peak, self.highest)
        self.rested = self.rested or steps >= self.wanted_steps and steps - self.steps_at_highest >= FLAT_STEPS
        if self.first_answer is None and (self.rested or steps - self.steps_at_seen >= MOST_TIMES_STEPS * self.wanted_steps):
            self.first_answer = self.newest = self.clocks()
            report.write(self, "running")
            self.looking(self.later.go_on, computations)
        elif steps > 2 * self.reported:
            self.reported = steps
            report.write(self, "running")  # a process that is killed later still leaves what it was seen to need
        if self.later.lapse.active:
            self.looking(self.later.look, computations)
        if self.first_answer is not None and (os.environ.get("GRESIZE_PROBE_QUICK", "0") not in ("", "0") or (self.later.lapse.over() if self.later.lapse.active else self.rests())):
            self.stop("stopped")
        if ranks.others_left():
            self.stop("stopped")
        if time.monotonic() - self.begin >= self.seconds and computations:
            self.later.end("budget")
            self.stop("budget_spent" if self.first_answer is None else "stopped")

    def clocks(self) -> tuple[float, float]:
        return time.monotonic() - self.begin, time.process_time()

    def rests(self) -> bool:
        """Whether nothing new has come for long."""
        clock, processor = self.clocks()
        first_clock, first_processor = self.first_answer
        return processor - self.newest[1] >= max(REST_SECONDS, REST_TIMES * first_processor) or clock - self.newest[0] >= max(
            REST_CLOCK_SECONDS, REST_CLOCK_TIMES * first_clock
        )

    # -- the end

    def leave_report(self, reason: str) -> None:
        report.write(self, reason)
        if reason == "stopped":
            self.looking(self.later.look_beyond)
            report.write(self, reason)
        report_file.flush_streams()
        guard.quietly(ranks.leave)

    def finish(self) -> None:
        """The interpreter ends by itself."""
        with self.lock:
            if self.done:
                return
            raised = getattr(sys, "last_value", None)
            if self.looking(self.later.program_ends, raised) and not report.out_of_memory(raised):
                self.stop("stopped")
            self.done = True
            report_file.hide_from_measurement()
            if report.backends():
                report.write(self, "exit" if raised is None else "exception", raised)

    def after_fork(self) -> None:
        """JAX does not work in a forked child: what the child does is the parent's business."""
        self.begin_anew()
        self.done = True


def _budget(watch):
    while not watch.done:
        with watch.lock:
            if not watch.done:
                guard.quietly(watch.look)
        time.sleep(LOOKS_EVERY_SECONDS)


def prepare() -> None:
    """Before jax is imported: libraries read these variables when they are loaded."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    os.environ["XLA_FLAGS"] = " ".join([f for f in flags if f not in FLAGS] + list(FLAGS))


def _hook_visible():
    """JAX asks for a file of the driver before it looks for cards at all."""
    hardware: Any = sys.modules.get("jax._src.hardware_utils")
    if hardware is not None and hasattr(hardware, "has_visible_nvidia_gpu"):
        hardware.has_visible_nvidia_gpu = lambda: True


def start(import_seconds: float) -> None:
    """Called once jax has been imported, and how long that took the processor."""
    import atexit

    watch = Watch(import_seconds)
    guard.quietly(_hook_visible)
    guard.quietly(watch.reads.hook, sys.modules["jax._src.array"])
    guard.quietly(arrays.NAMES.hook, sys.modules["jax._src.compiler"])
    watch.looking(watch.later.hook, sys.modules["jax._src.compiler"])
    guard.quietly(watch.counted.hook, sys.modules["jax._src.compiler"])
    guard.quietly(processes.hook, watch.reads.silently)
    atexit.register(guard.quietly, watch.finish)
    os.register_at_fork(after_in_child=watch.after_fork)
    threading.Thread(target=_budget, args=(watch,), name="gresize-jax", daemon=True).start()
