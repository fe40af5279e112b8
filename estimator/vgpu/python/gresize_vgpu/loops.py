"""Counting loops that train, in time-lapse: most of their turns are left out.

A `for` over a range in a module of the program's own gets its numbers from here, which nothing in the program can tell. While the first answer is not known they are
those of the range. Then a loop in whose turns optimizers step goes on as it is for a short time, and from there to the turns at which a comparison of its number has an
answer that was hardly seen, at which a number that is reckoned from it is largest, to some in between, and to its last.
"""
import builtins
import dis
import sys
import time

from . import counters, sources, turning

# Of the time that is left, for the turns of a loop before any is left out: at its first time, and an n-th of the second share at its n-th; for one around others.
FIRST_SHARE, NEXT_SHARE, OUTER_SHARE = 0.08, 0.04, 0.4
MOST_SECONDS = 3.0
# At least so many turns come before any is left out, and after each that was gone on to, so many steps of an optimizer or so many turns.
FIRST_TURNS, STEPS_AFTER, TURNS_AFTER = 4, 2, 66
BETWEEN = 4


class Loops:
    def __init__(self, lapse, peak, fault):
        self.lapse, self.peak, self.fault = lapse, peak, fault
        self.steps = 0  # of all optimizers
        self.counters = counters.Counters(peak, fault)
        self.ran = set()  # (file, line) of the program's that called for a step in time-lapse
        self.noted = []  # what was asked in each loop
        self.inner = []  # loops that leave out turns by themselves, the innermost last, and whether others are in them
        self.begun = 0  # loops, and passes over loaders, in time-lapse
        self.left_out = False
        self.unsettled = False  # of some loop not all kinds of turns came, or each was another
        self.visits = {}  # place of a loop -> how often it was gone through in time-lapse
        self._places = {}
        self._armed, self.given, self.retired = set(), [], False
        self.range = _range(self)

    def arm(self, frame):
        """Gives the modules of the program their range: those that run, and those that were imported."""
        for _ in range(60):
            if frame is None:
                break
            self._arm(frame.f_globals)
            frame = frame.f_back
        for module in list(sys.modules.values()):
            space = getattr(module, "__dict__", None)
            if type(space) is dict:
                self._arm(space)

    def _arm(self, space):
        if id(space) in self._armed:
            return
        self._armed.add(id(space))
        name = space.get("__file__")
        if not self.retired and isinstance(name, str) and "range" not in space and sources.is_users(name) and not any(_is_compiled(v) for v in list(space.values())):
            space["range"] = self.range
            self.given.append(space)

    def stepped(self, optimizer, frame):
        """An optimizer has stepped, in time-lapse."""
        self.ran.update((f.f_code.co_filename, f.f_lineno) for f in counters.running(frame).values())
        self.counters.step(optimizer, frame, min(FIRST_SHARE * self.lapse.left_seconds(), MOST_SECONDS), not self.inner or self.inner[-1][0])

    def retire(self, _=None):
        """A compiler reads the program's own source, and wants to find Python's range there."""
        self.retired = True
        self.counters.retire(sys._getframe(1))
        for space in self.given:
            if space.get("range") is self.range:
                del space["range"]

    def span(self, span, frame):
        """What a call of range gives: the range itself, but where a loop takes its turns from it at once."""
        place = frame.f_code, frame.f_lasti
        if place not in self._places:
            self._places[place] = _is_gone_through(*place)
        return self._turns(span, place) if self._places[place] and len(span) > FIRST_TURNS else span

    def _turns(self, span, place):
        steps, lapse = self.steps, self.lapse
        for turn, value in enumerate(span):
            yield value
            if lapse.active and self.steps != steps:
                break
            steps = self.steps
        else:
            return
        for value in self._in_time_lapse(span, place, turn + 1):
            yield value

    def _in_time_lapse(self, span, place, turn):
        count, notes = len(span), turning.Notes(span)
        self.noted.append(notes)
        visits = self.visits[place] = self.visits.get(place, 0) + 1
        share = NEXT_SHARE / (visits - 1) if visits > 1 else FIRST_SHARE
        begin, left = time.process_time(), self.lapse.left_seconds()
        until, run, outer = begin + min(share * left, MOST_SECONDS), 0, False
        self.begun += 1
        stands = [False]
        self.inner.append(stands)
        try:
            while turn < count:
                begun = self.begun
                yield notes.number(turn)
                turn, run = turn + 1, run + 1
                if not outer and self.begun != begun:
                    outer, until = True, begin + OUTER_SHARE * left
                    stands[0] = True
                if run >= FIRST_TURNS and time.process_time() > until:
                    break
            if turn < count:
                self.left_out = True
                for value in self._landings(notes, turn, count, outer):
                    yield value
        finally:
            self.inner = [other for other in self.inner if other is not stands]

    def places(self):
        """(file, line) of what led to a step since the first answer, and of the program's tests that had either answer."""
        return self.ran | self.counters.places().union(*[notes.places() for notes in self.noted])

    def looking(self, function, *args):
        try:
            return function(*args)
        except Exception as e:
            self.fault(e)
            return None

    def _landings(self, notes, turn, count, outer):
        between = [turn + (count - turn) * k // BETWEEN for k in range(1, BETWEEN)] + [count - 1]
        while turn < count:
            try:
                landings = [] if notes.given_up else notes.landings(turn - 1)
            except Exception as e:
                self.fault(e)
                notes.given_up, landings = True, []
            ahead = None if outer else self.looking(self.counters.ahead)
            if ahead is not None:
                landings = landings + [(min(turn + ahead, count - 1), None, None)]
            between = [t for t in between if t >= turn]
            at, question, answer = min(landings + [(t, None, None) for t in between[:1]], key=lambda landing: landing[0])
            if at > turn and not outer:
                self.looking(self.counters.set_forward, counters.running(sys._getframe(2)), at - turn - 1)  # what is asked behind its step is of the turn before
            peak, steps, turn = self.peak(), self.steps, at
            for _ in range(TURNS_AFTER):
                yield notes.number(turn)
                turn += 1
                if turn >= count or self.steps >= steps + (1 if outer else STEPS_AFTER):
                    break
            if question is not None and self.peak() > peak:
                question.needed[answer] += 1
                if question.needed[answer] > turning.MOST_OF_A_KIND:
                    question.needed[answer], self.unsettled = 0, True
        self.unsettled = self.unsettled or notes.given_up


def _is_compiled(value):
    """Whether something is a function that a compiler reads, when it is called first."""
    return (type(value).__module__ or "").split(".", 1)[0] in ("triton", "numba", "taichi", "jax")


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


def _is_gone_through(code, at):
    """Whether the result of the call at a place goes into a loop, and nowhere else."""
    rows = list(dis.get_instructions(code))
    for row, after in zip(rows, rows[1:]):
        if row.offset == at or row.offset < at < after.offset:
            following = [r.opname for r in rows[rows.index(after) :][:4] if r.opname not in ("CACHE", "NOP", "EXTENDED_ARG")]
            return following[:1] == ["GET_ITER"] and following[1:2] == ["FOR_ITER"]
    return False
