"""What comes after the first answer: the program goes on in time-lapse, as one of PyTorch does. A step is an execution of the computation that most bytes go through."""
from __future__ import annotations

import gc
import math
import sys

from gresize_imports import after_import
from gresize_vgpu.lapse import blocks_ahead, counting_loops, loops_over_items, program_counters, time_lapse
from gresize_vgpu.process import guard
from gresize_vgpu.program import background, call_stack, lines_not_run, lines_run, program_frames

from . import compiled_names, pjrt, processes, report

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

# What an execution is told of that has so much of the step's bytes at least: an evaluation, or another training.
TOLD_SHARE = 0.25
MOST_SAID = 4
# It is asked at each such step which loops go round.
OBSERVED_EVERY = 4
# Turns of a loop before any is left out: what each of them leaves is to be seen.
FIRST_TURNS = 8
# What all turns together leave, if it is more than that, is worth a word.
LEAST_LEFT_BYTES = 1 << 20


class Later:
    """The names that the parts of the time-lapse know a watch by are those of the watch of PyTorch."""

    def __init__(self, watch: Any, seconds: float, waited_seconds: float) -> None:
        self.looking, self.fault = watch.looking, watch.fault
        self.begin, self.done = watch.begin, lambda: watch.done
        self.lapse = time_lapse.TimeLapse(seconds, 1, waited_seconds)
        self.loops = counting_loops.Loops(self.lapse, self.peak, report.live_bytes, watch.fault, FIRST_TURNS, held_is_exact=True)
        self.passed, self.turns = lines_run.Passed(), call_stack.Turns()
        self.ahead = lines_not_run.Blocks({}, self.turns)
        self.networks, self.held_functions, self.called_again = set(), [], set()
        self.afterwards: list[str] = []
        self.children: Any = _NoChildren()
        self.most_live = 0
        self.step, self.steps = -1, {}  # the computation that is the step; computation -> what stands for its training
        self.compiling = 0
        self.named: dict[int, Any] = {}  # computations that were told of -> what they are called
        self.told = pjrt.Told(self.executed)
        self.wanted = False

    def peak(self) -> int:
        """What the program has asked for at most, by its arrays and the largest computation: XLA gives back in its own time, and its allocator's peak rises a little with
        every step until it does."""
        self.most_live = max(self.most_live, report.live_bytes())
        return self.most_live + pjrt.largest(pjrt.computations())

    # -- before the first answer

    def hook(self, compiler: Any) -> None:
        """A program that is not followed keeps its own ranges."""
        self.wanted = time_lapse.wanted() and processes.place()[1] <= 1
        if not self.wanted:
            return
        original = compiler.compile_or_get_cached

        def compile_or_get_cached(*args: Any, **kwargs: Any) -> Any:
            self.looking(self.loops.arm, sys._getframe(1))
            self.compiling += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.compiling -= 1

        compiler.compile_or_get_cached = compile_or_get_cached
        self.looking(self.loops.arm, sys._getframe(1))
        for module in counting_loops.PASSES_ON:
            guard.quietly(after_import, module, lambda found: self.looking(self.loops.arm_module, vars(found)))
        guard.quietly(background.hook_exit)

    # -- from the first answer on

    def go_on(self, computations: list[Any]) -> None:
        """The first answer is known: the next execution of the step begins the time-lapse, in the thread that makes steps."""
        if self.wanted and processes.place()[1] <= 1:
            self.step = pjrt.step(computations)
            self.told.begin(int(TOLD_SHARE * computations[self.step].bytes()))

    def executed(self, number: int) -> None:
        if not self.done():
            self.looking(self._executed, number, sys._getframe(1))

    def _executed(self, number, frame):
        if not self.lapse.active:
            if self.lapse.ended:
                return
            self.looking(self._before_it_goes_on, frame)
            if not self.lapse.start(self.begin, report.peak_bytes()):
                self.lapse.active = False
                self.end("budget")
            return
        self.loops.steps += 1
        if number not in self.named:
            self.looking(self._name, number)
        if number == self.step:
            self.looking(self.loops.stepped, self.steps.setdefault(number, _Training()), frame)
        frames = program_frames.running(frame)
        self.looking(loops_over_items.begin, self.loops, frames)
        if self.loops.steps % OBSERVED_EVERY == 0:
            self.looking(self.turns.observe, frames)

    def _name(self, number):
        name = pjrt.computations()[number].name
        self.loops.variants += name in self.named.values()
        self.named[number] = name

    def _before_it_goes_on(self, frame):
        frames = program_frames.running(frame)
        self.turns.observe(frames)
        self.held_functions = call_stack.held(frames)
        self.called_again = set(call_stack.again(frame))
        self.passed.watch(frame)

    def look(self, computations: list[Any]) -> None:
        """Asked every now and then, from a thread of ours."""
        self.step = pjrt.step(computations)
        if self.compiling:
            self.lapse.news()
        self.lapse.see(self.loops.steps, self.peak(), 0, len(computations))

    # -- the end

    def end(self, how: str) -> None:
        self.lapse.ended = self.lapse.ended or how

    def program_ends(self, raised: BaseException | None) -> bool:
        """Whether the program, which ends by itself, was followed in time-lapse."""
        self.told.end()
        if not self.lapse.active:
            return False
        self.lapse.end(raised)
        gc.collect()  # what only looks at the program hold of it: its finalizers are seen, too
        return self.left_out()

    def left_out(self) -> bool:
        return self.loops.left_out_turns()

    def look_beyond(self) -> None:
        if not self.lapse.active:
            return
        if self.lapse.whole():
            background.came()
        self.ahead = blocks_ahead.look(self, compiled_names.makers(program_frames.running_now()))
        self.afterwards = background.places(self.ahead, self.children)

    def leaves(self) -> tuple[int, int]:
        """What each turn leaves, in whole bytes and upwards, and how many there are."""
        if not self.lapse.active or self.lapse.whole() and not self.left_out():
            return 0, program_counters.UNTOLD_STEPS
        each, turns = self.loops.leaves()
        return (int(math.ceil(each)), turns) if each * turns > LEAST_LEFT_BYTES else (0, turns)

    def flat(self, before: bool) -> bool:
        """before: whether the peak rested at the first answer. What each step leaves is known after that."""
        return self.lapse.rests() if self.lapse.active else before

    def said(self, faults: list[str]) -> dict[str, Any]:
        """For the report."""
        leaves, turns = self.looking(self.leaves) or (0, 0)
        return {
            "time_lapse": self.lapse.said(),
            "changes_ahead": faults + self.ahead.doubts + sorted(self.loops.unread),
            "not_run": self.ahead.advice,
            "growth_ahead": self.loops.kept[:MOST_SAID] + (self.looking(self.loops.rising_in_words) or []),
            "afterwards": self.afterwards,
            "step_leaves_bytes": leaves,
            "steps_in_all": turns,
            "first_answer_bytes": self.lapse.first_peak,
        }


class _Training:
    """Stands for the training that a computation makes steps of."""


class _NoChildren:
    """Processes that the program starts are seen by themselves."""

    answer = False
