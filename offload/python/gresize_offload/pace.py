"""How much longer a step is with the plan: what the card waited for copies, against the time of the iterations in which it did.

Events in the program's own streams measure it, in some of the first iterations: nobody waits for them. Where a step is longer than was allowed, and the job may
run again as its owner asked, the process ends and says so; gresized reads the line in the job's output.
"""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Torch

# The first iterations choose kernels and take memory for the first time.
SKIPPED = 3
MEASURED = 10
# The words are those of package epilog.
SLOW = "gresize: steps are too slow with the plan: "


class Pace:
    def __init__(self, torch: Torch, slowest: float) -> None:
        self.torch = torch
        self.slowest = slowest  # 0: however slow it is
        self.iterations = 0
        self.marks: list[Any] = []
        self.waits: list[tuple[Any, Any]] = []
        self.slowdown: float | None = None  # not known
        self.over = False

    def event(self, stream: Any) -> Any:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def measures(self) -> bool:
        return not self.over and SKIPPED < self.iterations <= SKIPPED + MEASURED and not self.torch.cuda.is_current_stream_capturing()

    def begun(self) -> None:
        """An iteration begins."""
        if self.over or self.torch.cuda.is_current_stream_capturing():
            return
        self.iterations += 1
        if SKIPPED < self.iterations <= SKIPPED + MEASURED + 1:
            self.marks.append(self.event(self.torch.cuda.current_stream()))
        elif self.marks and self.marks[-1].query():
            self.over = True
            self.judge()

    def judge(self) -> None:
        whole = self.marks[0].elapsed_time(self.marks[-1])
        waited = sum(before.elapsed_time(after) for before, after in self.waits)
        self.marks, self.waits = [], []
        if not 0 <= waited < whole:
            return
        self.slowdown = whole / (whole - waited)
        if 0 < self.slowest < self.slowdown:
            sys.stdout.flush()
            print("%s%.2f times as long as without waiting for copies, and %.2f are allowed; the job ends to run again as it was submitted" % (SLOW, self.slowdown, self.slowest), file=sys.stderr)
            sys.stderr.flush()
            os._exit(1)


def slowest() -> float:
    try:
        return float(os.environ.get("GRESIZE_OFFLOAD_SLOWEST") or 0)
    except ValueError:
        return 0
