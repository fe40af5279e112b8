"""Counting loops that train, in time-lapse: most of their turns are left out.

A `for` over a range in a module of the program's own gets its numbers from here, which nothing in the program can tell. While the first answer is not known they are
those of the range. Then a loop in whose turns optimizers step goes on as it is for a short time, and from there to the turns at which a comparison of its number has an
answer that was hardly seen, at which a number that is reckoned from it is largest, to some in between, and to its last.
"""
from __future__ import annotations

import builtins
import dis
import os
import sys
import time

from ..program import own_files
from ..steady import kept_by_turns
from . import kept_on_host, program_counters, turn_numbers, worker_streams

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType
    from typing import Any, Callable, Iterator

    from gresize_types import Place

    from .time_lapse import TimeLapse

# Of the time that is left, for the turns of a loop before any is left out: at its first time, and an n-th of the second share at its n-th; for one around others.
FIRST_SHARE, NEXT_SHARE, OUTER_SHARE = 0.08, 0.04, 0.4
MOST_SECONDS = 3.0
# At least so many turns come before any is left out, and after each that was gone on to, so many steps of an optimizer or so many turns.
FIRST_TURNS, STEPS_AFTER, TURNS_AFTER = 4, 2, 66
BETWEEN = 4
# Of the time without anything new after which the run ends: from here on, loops go on to the turns that differ.
SOON = 0.5
# Of the time for which a stream is read, for its turns before any is left out.
OF_A_STREAM = 0.4
# Turns in a row that raised the peak, of a loop that has not ended: more are no chance.
MOST_BY_CHANCE = 3
# What goes through a range of its own for whoever calls it.
PASSES_ON = ("tqdm.std", "tqdm.asyncio", "tqdm.notebook")
# A training step in more sizes than that beside its first, in the turns of one loop before any is left out, may come in others, too: the last batches of two sets are no sign.
MOST_VARIANTS = 2
# So much of what the turns of a loop left is there at the next turn of the loop around it, if it stays.
STAYS_SHARE = 0.5
# What all turns of a test may take more without being worth a word.
MOST_RISEN_BYTES = 16 << 20
MOST_ROWS = 40  # from a range to the loop


class Loops:
    def __init__(self, lapse: TimeLapse, peak: Callable[[], int], held: Callable[[], int], fault: Callable[[Exception], None], first_turns: int = FIRST_TURNS, held_is_exact: bool = False) -> None:
        """held_is_exact: what is held where turns were left out is so much more for the turns that were run since."""
        self.lapse, self.held, self.fault = lapse, held, fault
        self.first_turns, self.held_is_exact = first_turns, held_is_exact
        self.open = []  # how many turns the loops have that are gone through now
        self.leaving: list[_Left] = []  # of each loop in time-lapse
        self.around: list[_Left] = []  # of those that are gone through now, the innermost last
        self.steps_leave = kept_by_turns.Leaves(held)  # of a training without such loops
        self.steps = 0  # of all optimizers
        self.counters = program_counters.Counters(peak, held, fault)
        self.rising = {}  # (file, line) of a test -> what turns with one of its answers would need in all, where each needed more than the one before
        self.noted = []  # what was asked in each loop
        self.going = []  # what is asked in those that go on
        self.within: Any = None  # until when the stream is read that is asked for its next items now
        self.inner = []  # loops that leave out turns by themselves, the innermost last, and whether others are in them
        self.kept: list[str] = []  # in words: lists into which turns that were left out would have put arrays
        self.lengths: tuple[dict[int, int], int] | None = None  # of the lists that a training which counts by itself began with, and at which of its steps
        self.begun = 0  # loops, and passes over loaders, in time-lapse
        self.times_left_out = 0  # turns that follow one another count once
        self.asks: Any = _NobodyAsks()
        self.unsettled = False  # of some loop not all kinds of turns came, or each was another
        self.visits = {}  # place of a loop -> how often it was gone through in time-lapse
        self.variants, self.most_variants = 0, MOST_VARIANTS  # of computations that large arrays go through: another one of the same name, where that is told
        self.items_of: dict[Any, int] = {}  # place of a loop over items -> how many there are
        self.read: set[Any] = set()  # places of those that were gone through to their end once
        self.unread: set[str] = set()  # in words: those of which that is not so
        self._places = {}
        self._armed, self.given, self.retired = set(), [], False
        self.range = _range(self)

    def arm(self, frame: FrameType | None) -> None:
        """Gives the modules of the program their range: those that run, and those that were imported."""
        for _ in range(60):
            if frame is None:
                break
            self.arm_module(frame.f_globals)
            frame = frame.f_back
        for module in list(sys.modules.values()):
            space = getattr(module, "__dict__", None)
            if type(space) is dict:
                self.arm_module(space)

    def arm_module(self, space: dict[str, Any]) -> None:
        if id(space) in self._armed:
            return
        self._armed.add(id(space))
        name = space.get("__file__")
        if not self.retired and isinstance(name, str) and "range" not in space and (own_files.is_users(name) or space.get("__name__") in PASSES_ON) and not any(_is_compiled(v) for v in list(space.values())):
            space["range"] = self.range
            self.given.append(space)

    def stepped(self, optimizer: Any, frame: FrameType) -> None:
        """An optimizer has stepped, in time-lapse."""
        if not self.leaving:
            self.steps_leave.turn()
        counters = self.counters
        left_out, trainings = counters.left_out_steps, counters.trainings
        counters.step(optimizer, frame, min(FIRST_SHARE * self.lapse.left_seconds(), MOST_SECONDS), self._are_free(), not self.inner)
        if not self.held_is_exact:
            return
        if self.lengths is None or counters.trainings > trainings:
            self.lengths = kept_on_host.lengths(program_counters.running(frame)), self.steps
        elif counters.left_out_steps > left_out:
            self.asks.left_out(None, 0)
            self._keeps(self.lengths[0], program_counters.running(frame), self.steps - self.lengths[1], counters.left_out_steps)

    def _are_free(self):
        """Whether no loop that leaves out turns by itself stands around the training."""
        return not self.inner or self.inner[-1][0]

    def counters_come(self) -> bool:
        """Whether the program's counters are set forward from here on, since there is more to come by them."""
        return self._are_free() and self.counters.hurry()

    def pass_over(self, frame: FrameType, steps: int | None) -> None:
        """A pass over the loader that feeds the training ends so many steps early."""
        self.counters.cut = True
        if not self.inner:  # those around it leave out whole passes
            self.counters.pass_over(program_counters.running(frame), steps)

    def stream(self, iterator: Any, until: Any, asked: bool) -> None:
        """A loader is asked for a batch of its own, or has given it."""
        if worker_streams.is_read_here(iterator):
            self.within = until if asked else None
            if asked:
                self.counters.feed(iterator, until)

    def stream_goes_on(self) -> bool:
        """Whether the stream that is read has turns before it that differ, or its last one."""
        return any(notes.of_stream and notes.turn + 1 < len(notes.span) for notes in self.going) or self.counters.stream_goes_on()

    def leaves(self) -> tuple[float, int]:
        """(bytes, times): what each turn leaves that was not run, of the loop of which that is the most."""
        found = [(left.bytes(), left.times()) for left in self.leaving] or [(self.steps_leave.bytes(), program_counters.UNTOLD_STEPS)]
        return max(found, key=lambda left: left[0] * left[1])

    def steps_in_all(self, fed: int) -> int:
        """How many steps a program makes whose loops are open, if they say so. fed: of a loader that feeds them, how many batches it has."""
        product = 1
        for count in self.open:
            product *= max(count, 1)
        return product * (fed or 1) if self.open else program_counters.UNTOLD_STEPS

    def retire(self, _: Any = None) -> None:
        """A compiler reads the program's own source, and wants to find Python's range there."""
        self.retired = True
        self.counters.retire(sys._getframe(1))
        for space in self.given:
            if space.get("range") is self.range:
                del space["range"]

    def span(self, span: range, frame: FrameType) -> Any:
        """What a call of range gives: the range itself, but where a loop takes its turns from it, at once or by way of something that goes through it."""
        place = frame.f_code, frame.f_lasti
        if place not in self._places:
            passes_on = frame.f_globals.get("__name__") in PASSES_ON
            self._places[place] = (_Span if passes_on else None) if not own_files.is_users(frame.f_code.co_filename) else _goes_into(*place)
        kind = self._places[place]
        return kind(self, span, place) if kind is not None and len(span) > self.first_turns else span

    def turns(self, span: range, place: Place) -> Iterator[Any]:
        steps, lapse = self.steps, self.lapse
        self.open.append(len(span))
        try:
            for turn, value in enumerate(span):
                yield value
                if lapse.active and self.steps != steps:
                    break
                steps = self.steps
            else:
                return
            for value in self._in_time_lapse(span, place, turn + 1):
                yield value
        finally:
            self.open.remove(len(span))

    def turns_of_items(self, items: Any, span: range, place: Any) -> Iterator[Any]:
        """The turns that a loop over items has in time-lapse. items: loops_over_items.Items."""
        return self._in_time_lapse(span, place, 0, items)

    def _in_time_lapse(self, span, place, turn, items=None):
        count, notes = len(span), turn_numbers.Notes(span)
        if items is not None:
            items.notes = notes
        self.noted.append(notes)
        self.going.append(notes)
        visits = self.visits[place] = self.visits.get(place, 0) + 1
        share = NEXT_SHARE / (visits - 1) if visits > 1 else FIRST_SHARE
        begin, seconds = time.process_time(), self.lapse.left_seconds()
        until, run, outer = begin + min(share * seconds, MOST_SECONDS if items is None else MOST_SECONDS / visits), 0, False
        notes.of_stream = self.within is not None
        lengths = self.looking(lambda: kept_on_host.lengths(program_counters.running(sys._getframe(3)))) if self.held_is_exact else None
        if self.within is not None:
            until = min(until, begin + OF_A_STREAM * (self.within[0] - begin))
        left, variants = kept_by_turns.Leaves(self.held), self.variants
        leaving = _Left(left, count if items is None else 0, self.around[-1] if self.around and self.held_is_exact else None)
        self.leaving.append(leaving)
        self.around.append(leaving)
        self.begun += 1
        stands = [False]
        self.inner.append(stands)
        self.looking(self.asks.turned, notes)
        try:
            while turn < count:
                begun = self.begun
                self.looking(left.turn)
                yield notes.number(turn)
                self.looking(self.asks.turned, notes)
                turn, run = turn + 1, run + 1
                if not outer and self.begun != begun:
                    outer, until = True, begin + OUTER_SHARE * seconds
                    stands[0] = True
                if (items.goes_by_values() if items is not None else self.variants - variants > MOST_VARIANTS):
                    continue
                if run >= self.first_turns and time.process_time() > until or (outer or run >= self.first_turns) and self.lapse.quiet(SOON):
                    break
            if turn < count:
                self.times_left_out, self.counters.cut = self.times_left_out + 1, self.counters.cut or outer
                if lengths is not None and items is None:
                    self.looking(self._keeps, lengths, program_counters.running(sys._getframe(2)), run, count - turn)
                for value in self._landings(notes, turn, count, outer, left, items):
                    yield value
        finally:
            if items is not None:
                leaving.count = items.next
                self.looking(self._keeps, lengths, program_counters.running(sys._getframe(1)), items.given, items.next - items.given)
            self.going = [other for other in self.going if other is not notes]
            self.inner = [other for other in self.inner if other is not stands]
            self.around = [other for other in self.around if other is not leaving]

    def places(self) -> set[Place]:
        """(file, line) of the program's tests that had either answer."""
        return self.counters.places().union(*[notes.places() for notes in self.noted])

    def rising_so_far(self) -> dict[Place, float]:
        """As rising, of loops that go on: where each turn so far that was gone on to for an answer has raised the peak."""
        found = dict(self.rising)
        for notes in self.going:
            for question in list(notes.questions.values()):
                for answer, rise in question.rise.items():
                    times = question.rises[answer]
                    if times >= MOST_BY_CHANCE and question.came[answer] <= question.needed[answer]:
                        found[question.place[:2]] = rise / times * notes.times(question, answer)
        return found

    def rising_in_words(self) -> list[str]:
        """Tests of which turns with one answer need more each time, and more in all than an upper end holds."""
        rising = {**self.rising_so_far(), **self.counters.rising}
        return ["each turn that %s line %d leads to needs more than the one before" % (os.path.basename(name), line) for (name, line), rise in rising.items() if rise > MOST_RISEN_BYTES]

    def left_out_turns(self) -> bool:
        """Whether turns were left out."""
        return self.times_left_out > 0 or self.counters.left_out_steps > 0

    def due(self) -> set[Place]:
        """(file, line) where numbers are reckoned that later turns would make larger."""
        return {place for notes in self.going for place in notes.due()}

    def looking(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as e:
            self.fault(e)
            return None

    def _keeps(self, lengths, frames, turns, more):
        left = kept_on_host.left_out(lengths, frames, turns, more)
        text = "a list grows with each turn of a loop, and the turns that were left out would have put %d MiB into it" % (left >> 20)
        if left > kept_on_host.MOST_LEFT_BYTES and text not in self.kept:
            self.kept.append(text)

    def _landings(self, notes, turn, count, outer, left, items):
        between = [turn + (count - turn) * k // BETWEEN for k in range(1, BETWEEN)] + [count - 1]
        if items is not None and items.untold:
            between = [turn << k for k in range(1, count.bit_length()) if turn << k < count]
        while turn < count:
            if items is not None and items.untold:
                notes.sizes.clear()  # how far they go is not known
                between = between if items.reads else []
            try:
                landings = [] if notes.given_up else notes.landings(turn - 1)
            except Exception as e:
                self.fault(e)
                notes.given_up, landings = True, []
            ahead = None if outer else self.looking(self.counters.ahead)
            if ahead is not None:
                landings = landings + [(min(turn + ahead, count - 1), None, None)]
            between = [t for t in between if t >= turn]
            landings = landings + [(t, None, None) for t in between[:1]]
            if not landings:
                break
            at, question, answer = min(landings, key=lambda landing: landing[0])
            if items is not None:
                reached = items.reach(at)
                if reached is None:
                    break
                if reached != at:
                    at, question, answer = reached, None, None
            if at > turn:
                self.looking(self.asks.left_out, notes, at - turn)
            if at > turn and not outer and self.within is None:
                self.looking(self.counters.set_forward, program_counters.running(sys._getframe(2)), at - turn - 1)  # what is asked behind its step is of the turn before
            if outer:
                self.lapse.news()  # there are few of these, and what they begin is waited for
            levels, came = (self.looking(self.counters.levels), sum(question.came.values())) if question is not None else (None, 0)
            steps, turn = self.steps, at
            for _ in range(TURNS_AFTER):
                yield notes.number(turn)
                self.looking(self.asks.turned, notes)
                turn += 1
                if turn >= count or self.steps >= steps + (1 if outer else STEPS_AFTER):
                    break
            if self.held_is_exact:
                self.looking(left.landed, turn - at)
            if question is None:
                continue
            if sum(question.came.values()) == came:
                question.missed += 1
            if notes.rose(question, answer, self.looking(self.counters.risen, levels) or 0):
                self.rising[question.place[:2]] = question.rise[answer] / turn_numbers.MOST_OF_A_KIND * notes.times(question, answer)
        if turn < count:
            self.looking(self.asks.left_out, notes, 0)
        self.unsettled = self.unsettled or notes.given_up


class _Left:
    """What the turns of a loop leave, of which there are so many each time that it is gone through; outer: of the loop around it."""

    def __init__(self, leaves, count, outer):
        self.leaves, self.count, self.outer = leaves, count, outer

    def bytes(self):
        return self.leaves.bytes()

    def times(self):
        """How many turns there are in all of which what each leaves stays: those of one time, or of all where what they left is there when the loop around goes on."""
        each, times, outer = self.bytes() * self.leaves.turns, self.count, self.outer
        while outer is not None and each > 0 and outer.bytes() >= STAYS_SHARE * each:
            times, outer = times * max(outer.count, 1), outer.outer
        return times


class _NobodyAsks:
    """Who is told of the turns of loops in time-lapse, by what was noted of the loop."""

    def turned(self, loop: Any) -> None:
        """One was run, or the first begins."""

    def left_out(self, loop: Any, turns: int) -> None:
        """So many of a loop's come next that are not run; 0 where that is not known. What counts by itself has no loop."""


def _is_compiled(value):
    """Whether something is a function that a compiler reads, when it is called first."""
    return (type(value).__module__ or "").split(".", 1)[0] in ("triton", "numba", "taichi")


def _range(loops):
    class Kind(type):
        def __call__(cls, *args):
            return loops.span(builtins.range(*args), sys._getframe(1))

        def __instancecheck__(cls, value):
            return isinstance(value, builtins.range)

        def __subclasscheck__(cls, kind):
            return issubclass(kind, builtins.range)

        def __eq__(cls, other):
            return other is builtins.range or other is cls

        def __hash__(cls):
            return hash(builtins.range)

        def __repr__(cls):
            return repr(builtins.range)

    return Kind("range", (), {"__module__": "builtins", "__doc__": builtins.range.__doc__})


class _Span:
    """A range, as far as anybody can tell, that is gone through turn by turn."""

    __class__ = property(lambda self: builtins.range)

    def __init__(self, loops, span, place):
        self._loops, self._span, self._place = loops, span, place

    def __iter__(self):
        return self._loops.turns(self._span, self._place)

    def __reversed__(self):
        return self._loops.turns(self._span[::-1], self._place)

    def __getattr__(self, name):
        return getattr(self._span, name)

    def __reduce__(self):
        return builtins.range, (self._span.start, self._span.stop, self._span.step)


def _as_range(name):
    return lambda self, *args: getattr(self._span, name)(*args)


_Span.__name__ = _Span.__qualname__ = "range"
for _name in ("__len__", "__getitem__", "__contains__", "__eq__", "__ne__", "__hash__", "__repr__", "__bool__"):
    setattr(_Span, _name, _as_range(_name))


def _goes_into(code, at):
    """What the result of the call at a place is to be, where a loop goes through it and nobody else has it; None where not."""
    rows = [row for row in dis.get_instructions(code) if row.opname not in ("CACHE", "NOP", "EXTENDED_ARG")]
    behind = next((i for i, row in enumerate(rows) if row.offset > at), len(rows))
    for i in range(behind, min(behind + MOST_ROWS, len(rows) - 1)):
        if rows[i].opname == "GET_ITER":
            return (Loops.turns if i == behind else _Span) if rows[i + 1].opname == "FOR_ITER" else None
        if not rows[i].opname.startswith(("LOAD_", "CALL", "PRECALL", "PUSH_NULL", "KW_NAMES")):
            return None
    return None
