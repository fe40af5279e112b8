"""Counters that a program counts up by itself, in time-lapse: they are set forward to where the program's own tests of them have another answer.

Which numbers are counters is seen, not read: those in reach of the program's running functions that grew by the same number in each of some training steps.
They then note what is asked of them (turn_numbers.py), wherever they lie, and so tell after how many steps something else comes. Steps in between are left out.
"""
from __future__ import annotations

import collections
import ctypes
import dis
import inspect
import operator
import sys
import time

from ..program import call_stack, own_files, program_frames
from . import turn_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType
    from typing import Any, Callable

    from gresize_types import Frames, Place

SAMPLES = 5
MOST_FRAMES = 60
MOST_OBJECTS = 3000
MOST_ENTRIES = 64
DEEPEST = 6
MOST_COUNTERS = 48
# Turns on the way to the last.
BETWEEN = 4
# Steps of other optimizers between two of one, as where a critic steps five times.
MOST_IN_TURN = 6
# So many steps come after each that was gone on to.
STEPS_AFTER = 3
MOST_TRIED = 3 * turn_numbers.MOST_OF_A_KIND  # for one answer of one test
# Of the time for which a stream is read, before its counter is set forward.
OF_A_STREAM = 0.4
# What looking for such steps may cost of the processor, of one training.
MOST_LOOKING_SECONDS = 3.0
# Of a program that does not say how many steps it makes; more are rarely made.
UNTOLD_STEPS = 1000000
PLAIN = ("Namespace", "SimpleNamespace")
NO_LISTS = (str, bytes, int, float, type, type(sys), type(None))


class Counters:
    """The counters of the training that goes on, of which turn t is the t-th step since they are known."""

    def __init__(self, peak: Callable[[], int], held: Callable[[], int], fault: Callable[[Exception], None]) -> None:
        self.peak, self.held, self.fault = peak, held, fault
        self.optimizer, self.others = 0, 0  # the id of the one whose steps are counted, and steps of others since its last
        self.rising = {}  # as of a loop
        self.unsettled = self.retired = False
        self.left_out_steps = 0
        self.cut = False  # passes of the training were left out, or cut short: steps that the counters do not know of
        self.room: int | None = None  # steps that are left of the pass over a loader which feeds the training
        self.open_ended = self.within_passes = False  # within_passes: all passes come one after the other, and each is as long as it says
        self.bounded = False  # a test of the program's says how far they go, and they were set forward to that
        self.trainings = 0
        self.source: Any = None  # a generator of the program's that feeds the training, and until when it is read
        self.answered: set[Place] = set()
        self.anew = set()  # (code of a function, or file; name) of those that are given anew in each turn, such as by enumerate
        self.notes: Any = None  # from the first step on: turn_numbers.Notes
        self._begin()

    def _begin(self):
        self.unsettled = self.unsettled or self.trainings > 1 and self.open()
        self.room, self.within_passes = None, False
        self.answered |= self.places()
        self.samples, self.counters, self.notes, self.tried = [], {}, None, {}
        self.between: dict[Any, list[int]] = {}  # a test that has always had one answer -> turns on the way to the other
        self.turn = self.waits = 0
        self.spent, self.landed = 0.0, None
        self.since = time.process_time()

    def step(self, optimizer: Any, frame: FrameType, seconds: float, free: bool, alone: bool) -> None:
        """An optimizer has stepped. free: no loop that leaves out turns by itself is the next around it; alone: nor any. seconds: for how long it is left as it is."""
        if self.retired:
            return
        if id(optimizer) != self.optimizer:
            self.others += 1
            if self.optimizer and self.others <= MOST_IN_TURN:
                return
            self.optimizer, self.trainings = id(optimizer), self.trainings + 1
            self._begin()
        self.others = 0
        frames = running(frame)
        if self.source is not None:
            generator, until = self.source
            if generator.gi_frame is not None:
                frames.setdefault(generator.gi_code, generator.gi_frame)
                seconds = min(seconds, OF_A_STREAM * (until[0] - self.since))
        if self.notes is None:
            self.samples.append(_numbers(frames))
            if len(self.samples) >= SAMPLES:
                self._know(frames)
            return
        self.within_passes = alone and not self.open_ended
        self.turn, self.waits = self.turn + 1, self.waits - 1
        self._renew(frames, 0)
        if free and self.waits <= 0 and time.process_time() - self.since > seconds / self.trainings:
            ahead = self.ahead()
            if ahead is not None:
                self.set_forward(frames, ahead)
                self.waits = STEPS_AFTER

    def feed(self, iterator: Any, until: Any) -> None:
        """A loader goes through a stream for so long."""
        generator = getattr(getattr(iterator, "_dataset_fetcher", None), "dataset_iter", None)
        if until is not None and inspect.isgenerator(generator) and own_files.is_users(generator.gi_code.co_filename):
            worker = vars(iterator).get("_gresize_worker")
            if worker is not None and worker.worker.id and self.source is not None and self.source[0] is not generator:
                self._begin()  # the share of another worker, whose items may differ otherwise
            self.source = generator, until

    def stream_goes_on(self) -> bool:
        """Whether a test of the stream's own would have another answer further on, or whether that is not known yet."""
        if self.source is None or self.source[0].gi_frame is None:
            return False
        code = self.source[0].gi_code
        lines = {line for _, line in dis.findlinestarts(code)}
        return self.notes is None or self.notes.given_up or any(q.place[0] == code.co_filename and q.place[1] in lines for q in self._to_come())

    def _to_come(self):
        """Tests that would have an answer further on that they never had."""
        return [
            question for turn, question, answer in self.notes.landings(self.turn - 1)
            if question is not None and not question.came[answer] and self.tried.get((question, answer), 0) < MOST_TRIED and self._is_near(turn)
        ]

    def _is_near(self, turn):
        """Whether a turn is of the pass that goes on, where those to come begin where the program's counters are by then."""
        return not self.within_passes or self.room is None or turn - self.turn <= self.room

    def come(self) -> bool:
        """Whether something else comes by the counters in the pass or the training that goes on, or whether that is not known."""
        return self.notes is None or self.notes.given_up or bool(self._to_come())

    def open(self) -> bool:
        """As come, of a training of which turns were left out as well."""
        return self.cut and not self.within_passes and self.come()

    def pass_over(self, frames: Frames, steps: int | None) -> None:
        """A pass over the loader that feeds the training ends so many steps early: they are counted, as the program counts them."""
        if self.notes is None:
            self.open_ended = call_stack.open_ended(set(frames.values()))
        if not self.open_ended:
            self.unsettled = self.unsettled or self.come()
            if self.notes is not None and not self.retired:
                self.set_forward(frames, steps or 0)

    def hurry(self) -> bool:
        """As come; they are not left as they are any more."""
        self.since = float("-inf")
        return not self.retired and self.spent <= MOST_LOOKING_SECONDS and not (self.notes is not None and self.notes.given_up) and self.come()

    def _know(self, frames):
        first, second = self.samples[:2]
        strides = {path: second[path] - n for path, n in first.items() if path in second and second[path] != n}
        for one, other in zip(self.samples[1:], self.samples[2:]):
            strides = {path: stride for path, stride in strides.items() if path in other and other[path] - one[path] == stride}
        self.samples = []
        self.open_ended = call_stack.open_ended(set(frames.values()))
        self.counters = {path: [stride, None] for path, stride in list(strides.items())[:MOST_COUNTERS]}
        self.notes = turn_numbers.Notes(range(turn_numbers.MOST_TURNS), own_files.is_users)
        self._renew(frames, 0)

    def _renew(self, frames, ahead):
        """Has each counter note what is asked of it from here on, so many steps later than it is."""
        self.turn += ahead
        for path, counter in list(self.counters.items()):
            stride, given = counter
            number = _get(frames, path)
            if not isinstance(number, int):
                continue  # out of reach for now
            if ahead == 0 and given is not None and int(number) == given:
                del self.counters[path]  # it is not counted up, but given anew
                if len(path) == 2:
                    self.anew.add((frames[path[0]].f_code.co_filename if isinstance(path[0], str) else path[0], path[1]))
                _set(frames, path, int(number))
                continue
            value = int(number) + stride * ahead
            counter[1] = int(number) + stride if ahead > STEPS_AFTER else None
            terms = (operator.add, (operator.mul, (None, self.notes), stride), value - stride * self.turn)
            _set(frames, path, self.notes.known(value, terms))

    def levels(self) -> tuple[int, int]:
        """What was allocated at most, and what is held now."""
        return self.peak(), self.held()

    def risen(self, since: tuple[int, int]) -> int:
        """By how much either has risen: what a turn keeps raises the peak only once its successor has let go of its own."""
        return max(now - then for now, then in zip(self.levels(), since))

    def ahead(self) -> int | None:
        """In how many steps something new comes; None where that is never, or is not known."""
        begin = time.process_time()
        if self.landed is not None:
            (question, answer), levels = self.landed
            self.landed = None
            if question is not None and self.notes.rose(question, answer, self.risen(levels)):
                self.rising[question.place[:2]] = question.rise[answer] / turn_numbers.MOST_OF_A_KIND * self.notes.times(question, answer) * UNTOLD_STEPS // turn_numbers.MOST_TURNS
        if self.notes is None or self.notes.given_up or self.spent > MOST_LOOKING_SECONDS:
            self.unsettled = self.unsettled or self.notes is not None
            return None
        self.notes.sizes.clear()  # how far they go is not known
        landings = [l for l in self.notes.landings(self.turn - 1) if self.tried.get(l[1:], 0) < MOST_TRIED] if self.counters else []
        self.spent += time.process_time() - begin
        landings = sorted([l for l in landings + self._on_the_way(landings) if self._is_near(l[0])], key=lambda landing: landing[0])
        if not landings:
            return None
        self.landed = landings[0][1:], self.levels()
        self.tried[self.landed[0]] = self.tried.get(self.landed[0], 0) + 1
        return max(landings[0][0] - self.turn, 0)

    def _on_the_way(self, landings):
        """Turns before the last at which a test has the answer that it never had: a number that is reckoned from a counter may be largest there."""
        end = max([landing for landing in landings if not landing[1].came[landing[2]]], key=lambda landing: landing[0], default=None)
        if end is None:
            return []
        turn = end[0]
        between = self.between.setdefault(end[1].place, [self.turn + (turn - self.turn) * k // BETWEEN for k in range(1, BETWEEN)])
        found = [t for t in between + [turn - 1] if t > self.turn]
        self.bounded = self.bounded or not found
        return [(t, None, None) for t in found[:1] if self.tried.get((None, None), 0) < MOST_TRIED]

    def places(self) -> set[Place]:
        """(file, line) of the program's tests of its counters that had either answer."""
        return self.answered | (self.notes.places() if self.notes is not None else set())

    def set_forward(self, frames: Frames, steps: int) -> None:
        if steps > 0:
            self.left_out_steps += steps
            self._renew(frames, steps)

    def retire(self, frame: FrameType | None) -> None:
        """A compiler reads what the program holds, and wants to find plain numbers."""
        self.retired = True
        frames = running(frame)
        for path in self.counters:
            number = _get(frames, path)
            if isinstance(number, int):
                _set(frames, path, int(number))


def running(frame: FrameType | None) -> Frames:
    """The running functions of the program's own, by their code and by the name of their module; the innermost of each."""
    found = {}
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if own_files.is_users(frame.f_code.co_filename):
            if frame.f_code.co_flags & inspect.CO_NEWLOCALS:  # a module's own names are its globals
                found.setdefault(frame.f_code, frame)
            found.setdefault(frame.f_globals.get("__name__"), frame)
        frame = frame.f_back
    return found


def _numbers(frames):
    """path -> whole number, of those in reach: a path begins at a local of a function or a global, and goes on by attributes, keys and places."""
    found, seen, queue = {}, set(), collections.deque()
    for root in reversed(list(frames)):  # what the outer ones hold is longer in reach
        for name, value in list(space(frames, root).items()):
            queue.append(((root, name), value))
    for _ in range(MOST_OBJECTS):
        if not queue:
            break
        path, value = queue.popleft()
        if type(value) is int:
            found[path] = value
        elif len(path) <= DEEPEST and id(value) not in seen:
            seen.add(id(value))
            for key, inner in parts(value):
                if type(inner) is int:
                    found[path + (key,)] = inner
                elif not isinstance(inner, (str, bytes, float, type, type(sys))) and inner is not None:
                    queue.append((path + (key,), inner))
    return found


def parts(value: Any) -> list[Any]:
    """(key, value) of what a thing holds: an attribute by its name, an entry of a table by its key or, for keys that may be large, its place."""
    if isinstance(value, dict):
        return [((k,) if isinstance(k, (str, int)) else n, v) for n, (k, v) in zip(range(MOST_ENTRIES), list(value.items())[:MOST_ENTRIES])]
    if type(value) in (list, tuple):
        return list(enumerate(value[:MOST_ENTRIES]))
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        own = own_files.is_users(own_files.file_of_type(type(value)))
        return [(n, v) for n, v in list(vars(value).items()) if own or n in ("param_groups", "state")]
    if torch is not None and isinstance(value, torch.nn.Module):
        own = own_files.is_users(own_files.file_of_type(type(value)))
        return [(n, v) for n, v in list(vars(value).items()) if n == "_modules" or own and n[:1] != "_"]
    held = getattr(value, "__dict__", None)
    return list(held.items())[:MOST_ENTRIES] if type(held) is dict and (type(value).__name__ in PLAIN or own_files.is_users(own_files.file_of_type(type(value)))) else []


def space(frames: Frames, root: Any) -> Any:
    """The locals of a function, as a copy that nothing keeps, or the globals of a module."""
    frame = frames.get(root)
    return None if frame is None else frame.f_globals if isinstance(root, str) else program_frames.names_of(frame)


def _holder(frames, path):
    """What holds the number at the end of a path."""
    value = space(frames, path[0])
    if value is None or len(path) == 2:
        return value
    value = value.get(path[1])
    for key in path[2:-1]:
        value = _inner(value, key)
    return value


def _inner(value, key):
    try:
        if isinstance(key, str):
            return vars(value)[key]
        if isinstance(key, tuple):
            return dict.__getitem__(value, key[0])
        return list(value.values())[key] if isinstance(value, dict) else value[key]
    except (TypeError, LookupError):
        return None


def _get(frames, path):
    holder = _holder(frames, path)
    return holder.get(path[1]) if len(path) == 2 and holder is not None else _inner(holder, path[-1])


def _set(frames, path, number):
    key = path[-1]
    if len(path) == 2:
        frame = frames[path[0]]
        if isinstance(path[0], str) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED or sys.version_info >= (3, 13):
            (frame.f_globals if isinstance(path[0], str) else frame.f_locals)[key] = number
            return
        names = frame.f_locals
        names[key] = number
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        names.clear()  # what is in it, such as the last batch, would live longer
        return
    holder = _holder(frames, path)
    if isinstance(key, str):
        vars(holder)[key] = number
    elif isinstance(key, tuple):
        dict.__setitem__(holder, key[0], number)
    elif isinstance(holder, list):
        holder[key] = number
