"""Looks at a run that ends: which blocks of the program were not run, though they may be, and take memory."""
from __future__ import annotations

import os

from ..program import lines_not_run, program_frames

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Collection


def look(watch: Any, makers: Collection[str] = ()) -> lines_not_run.Blocks:
    """makers: names of the program's that stand for what makes arrays, beside those of PyTorch. Of a run like this another has said so."""
    if os.environ.get("GRESIZE_PROBE_FOLLOWED") == "1":
        return watch.ahead
    if watch.passed.lost():
        watch.fault(RuntimeError("lines"))
    lapse, loops, counters = watch.lapse, watch.loops, watch.loops.counters
    looked = lines_not_run.Blocks(watch.passed.lines, watch.turns, loops.places(), watch.networks, makers, counters.anew)
    lines = program_frames.lines_of(program_frames.running_now(), lapse.failure)
    looked.look(lines, lapse.whole(), not (loops.unsettled or counters.unsettled or counters.open()), watch.left_out())
    if watch.left_out() or not lapse.whole():
        looked.held(watch.held_functions)
    if not lapse.whole():
        looked.again(watch.called_again)
        looked.larger(loops.due())
    if not lapse.active or not lapse.whole() and not counters.bounded or counters.open():
        looked.grown(not lapse.active)
    elif watch.left_out():
        looked.grown(False, False)
    return looked
