"""The number of a loop's turn, which notes what the program asks of it: at which later turn another answer comes is then computed, not guessed.

In time-lapse a counting loop hands out such numbers. They are ints (or floats, once divided) in every respect; what is reckoned from them knows how,
and a comparison, or a use as a size, is noted with its place.
"""
from __future__ import annotations

import operator
import sys

from ..program import own_files, program_frames

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

    from gresize_types import Place

MOST_NOTES = 64
MOST_KEYS = 24  # of a table in which a number is looked up
DEEPEST = 12
CHUNK = 1 << 20
MOST_TURNS = 1 << 24
# Without numpy every turn is asked by itself.
MOST_TURNS_ALONE = 1 << 17
# A turn that raised the peak is followed by others like it, up to so many.
MOST_OF_A_KIND = 40
BITS = ("__and__", "__or__", "__xor__", "__rshift__")  # the others make numbers that an int64 does not hold
# Each answer is to come so often.
NEEDED = 3
# An answer that comes at so few turns is gone on to once more in any case: what those turns leave is seen then.
RARE = 50


class Question:
    """A comparison at a place of the program: what was asked last, and how often each answer came."""

    def __init__(self, place: Any) -> None:
        self.place = place
        self.terms: Any = None
        self.compare: Any = None
        self.came = {True: 0, False: 0}
        self.gone_on: set[bool] = set()  # answers for which turns were gone on to
        self.missed = 0  # turns in a row that were gone on to for an answer of it, and at which it was not asked: another question stands before it
        self.needed = {True: NEEDED, False: NEEDED}
        self.next = {}  # answer -> the turn at which it comes next, or None
        self.rise = {True: 0, False: 0}  # of the peak, at turns that were gone on to for that answer
        self.rises = {True: 0, False: 0}

    def ask(self, compare: Callable[[Any, Any], Any], left: Any, right: Any, answer: bool) -> None:
        if compare is not self.compare or (left, right) != self.terms:
            self.compare, self.terms, self.next = compare, (left, right), {}
        self.came[answer] += 1
        self.missed = 0

    def wanted(self, answer: bool) -> bool:
        """Whether a turn with this answer is to be gone on to."""
        return self.missed < NEEDED and (self.came[answer] < self.needed[answer] or answer not in self.gone_on and RARE * self.came[answer] <= self.came[not answer])

    def rose(self, answer: bool, rise: int) -> bool:
        """A turn with this answer has raised the peak by so much; returns whether enough of them did."""
        self.gone_on.add(answer)
        if rise <= 0:
            return False
        self.rise[answer] += rise
        self.rises[answer] += 1
        self.needed[answer] = max(self.needed[answer], self.came[answer] + NEEDED)  # some find what they need in a block that is larger
        if self.rises[answer] < MOST_OF_A_KIND:
            return False
        self.needed[answer] = 0
        return True

    def holds(self, notes: Notes, turns: Any) -> Any:
        return self.compare(_value(self.terms[0], notes, turns), _value(self.terms[1], notes, turns))

    def turn_of(self, answer: Any, notes: Notes, after: int) -> int | None:
        """The next turn with this answer; None where it comes no more."""
        known = self.next.get(answer, -1)
        if known is not None and known <= after:
            known = self.next[answer] = _first(lambda turns: self.holds(notes, turns), answer, after + 1, notes)
        return known


class Notes:
    """What is asked of the numbers of one loop."""

    def __init__(self, span: range, listens: Callable[[str], bool] | None = None) -> None:
        self.span, self.listens = span, listens  # listens(filename): whether what is asked there counts; None: everywhere
        self.now: Any = None
        self.turn = -1
        self.terms = None, self
        self.questions = {}  # place -> Question
        self.keys = {}  # place -> the keys of the tables that may be asked there
        self.sizes = {}  # place -> terms of a number that was reckoned there
        self.largest = {}  # place -> (terms, the turn at which that number is largest)
        self.given_up = False  # too much was asked
        self.of_stream = False  # the loop is one of a stream's, which gives the batches

    def due(self) -> set[Place]:
        """(file, line) where numbers are reckoned that are larger at a turn which has not come."""
        return {place[:2] for _, question, place in self.landings(self.turn) if question is None}

    def number(self, turn: int) -> Any:
        self.turn = turn
        self.now = self.span[turn]
        return _of(self.now, self, self.terms)

    def known(self, value: Any, terms: Any) -> Any:
        """A number of which it is known how it comes of the turn."""
        self.now = value
        return _of(value, self, terms)

    def asked(self, compare: Callable[[Any, Any], Any], left: Any, right: Any, answer: Any) -> None:
        frame = sys._getframe(2)
        if self.listens is not None and not self.listens(frame.f_code.co_filename):
            return
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
        self._question(place).ask(compare, left, right, bool(answer))

    def _question(self, place):
        if place not in self.questions and len(self.questions) >= MOST_NOTES:
            self.given_up = True
            return Question(place)
        return self.questions.setdefault(place, Question(place))

    def looked_up(self, value: Any, terms: Any) -> None:
        """A number is looked up in a table or a set, which asks nothing but its hash: as if each of the keys at hand were compared with it."""
        frame = sys._getframe(2)
        if not own_files.is_users(frame.f_code.co_filename):
            return
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
        if place not in self.keys:
            self.keys[place] = _keys(frame) if len(self.keys) < MOST_NOTES else ()
        for key in self.keys[place]:
            self._question(place + (key,)).ask(operator.eq, terms, key, value == key)

    def reckoned(self, value: Any, terms: Any) -> Any:
        """What was reckoned from a number may become a size: C asks an int for nothing."""
        terms = _shortened(terms)
        if _is_deep(terms, DEEPEST):  # it is reckoned from itself, turn after turn
            return value
        frame = sys._getframe(2)
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
        if place in self.sizes or len(self.sizes) < MOST_NOTES:
            self.sizes[place] = terms
        else:
            self.given_up = True
        return _of(value, self, terms)

    def rose(self, question: Question, answer: bool, rise: int) -> bool:
        """The turn at which a question had an answer has raised the peak by so much; returns whether enough of them did. Of the questions beside it the rare answer may be what did."""
        for other in list(self.questions.values()) if rise > 0 else ():
            if other is not question and other.place[:2] == question.place[:2]:
                rare = other.came[True] < other.came[False]
                other.needed[rare] = max(other.needed[rare], other.came[rare] + NEEDED)
        return question.rose(answer, rise)

    def places(self) -> set[Place]:
        """(file, line) of the questions that had either answer."""
        return {place[:2] for place, question in self.questions.items() if all(question.came.values())}

    def times(self, question: Any, answer: Any) -> int:
        """At how many turns a question has an answer."""
        count = 0
        for _, turns, numpy in _chunks(0, len(self.span)):
            found = question.holds(self, turns)
            count += int((found == answer).sum()) if hasattr(found, "shape") else bool(found) == answer
        return count

    def landings(self, after: int) -> list[Any]:
        """(turn, question, answer) of those behind one at which something is new, the next first; of a number that is largest there, its place in place of an answer."""
        found = []
        for question in list(self.questions.values()):
            for answer in (True, False):
                if question.wanted(answer):
                    turn = question.turn_of(answer, self, after)
                    if turn is not None:
                        found.append((turn, question, answer))
        for place, terms in list(self.sizes.items()):
            known = self.largest.get(place)
            if known is None or known[0] != terms:
                known = self.largest[place] = terms, _largest(terms, self)
            if known[1] is not None and known[1] > after:
                found.append((known[1], None, place))
        return sorted(found, key=lambda landing: landing[0])


def _value(terms, notes, turns):
    """What a number is at some turns of one loop; other loops stand still."""
    if type(terms) is not tuple:
        return terms
    if terms[0] is None:
        return turns * notes.span.step + notes.span.start if terms[1] is notes else terms[1].now
    return terms[0](*[_value(t, notes, turns) for t in terms[1:]])


def _shortened(terms):
    """A sum of a sum with a number that is known, as one sum."""
    function, left, right = terms
    if function in (operator.add, operator.sub) and type(right) is int and type(left) is tuple and len(left) == 3 and left[0] is operator.add and type(left[2]) is int:
        return operator.add, left[1], left[2] + (right if function is operator.add else -right)
    return terms


def _is_deep(terms, most):
    return type(terms) is tuple and (most == 0 or any(_is_deep(t, most - 1) for t in terms[1:]))


def _chunks(first, count):
    numpy = sys.modules.get("numpy")
    if numpy is None:
        for turn in range(first, min(count, first + MOST_TURNS_ALONE)):
            yield turn, turn, None
        return
    for begin in range(first, min(count, first + MOST_TURNS), CHUNK):
        yield begin, numpy.arange(begin, min(begin + CHUNK, count), dtype=numpy.int64), numpy


def _first(ask, answer, first, notes):
    for begin, turns, numpy in _chunks(first, len(notes.span)):
        found = ask(turns)
        if numpy is None or not hasattr(found, "shape"):
            if bool(found) == answer:
                return begin
        else:
            places = numpy.flatnonzero(found if answer else ~found)
            if len(places):
                return begin + int(places[0])
    return None


def _largest(terms, notes):
    best = None
    for begin, turns, numpy in _chunks(0, len(notes.span)):
        values = _value(terms, notes, turns)
        if numpy is not None and hasattr(values, "shape"):
            at = int(values.argmax())
            value, turn = values[at], begin + at
        else:
            value, turn = values, begin
        if best is None or value > best[0]:
            best = value, turn
    return None if best is None else best[1]


def _keys(frame):
    """The whole numbers by which something is found in the tables and sets that a function has a name for, by itself or within what it has a name for."""
    names = set(frame.f_code.co_names)
    named = list(program_frames.names_of(frame).values()) + [frame.f_globals[name] for name in names if name in frame.f_globals]
    inner = [value for found in named if not isinstance(found, (type, type(sys))) for value in _inside(found, names)]
    tables = named + inner + [value for found in inner if isinstance(found, dict) for value in _inside(found, names)] + list(frame.f_code.co_consts)
    return sorted({key for table in tables if _is_table(table) for key in table})[:MOST_NOTES]


def _inside(value, names):
    if isinstance(value, dict):
        return list(value.values())[:MOST_NOTES]
    spaces = [vars(part) for part in (value, type(value)) if hasattr(part, "__dict__")]
    return [space[name] for space in spaces for name in names if name in space]


def _is_table(value):
    return isinstance(value, (dict, set, frozenset)) and len(value) <= MOST_KEYS and all(type(key) is int for key in value)


def _reckoned(name, base):
    function, original = getattr(operator, name), getattr(base, name)
    reflected = getattr(base, "__r" + name[2:])

    def forward(self, other):
        result = original(self, other) if base is float or not isinstance(other, float) else getattr(float, name)(float(self), other)
        return result if type(result) not in (int, float) else self.notes.reckoned(result, (function, self.terms, _terms(other)))

    def backward(self, other):
        result = reflected(self, other) if base is float or not isinstance(other, float) else getattr(float, name)(other, float(self))
        return result if type(result) not in (int, float) else self.notes.reckoned(result, (function, _terms(other), self.terms))

    return {name: forward, "__r" + name[2:]: backward}


def _compared(name, base):
    function, original = getattr(operator, name.strip("_")), getattr(base, name)

    def compare(self, other):
        answer = original(self, other)
        if answer is not NotImplemented:
            self.notes.asked(function, self.terms, _terms(other), answer)
        return answer

    return {name: compare}


def _terms(value):
    return value.terms if isinstance(value, (Turn, Part)) else value  # type: ignore[attr-defined]


def _of(value, notes, terms):
    kind: Any = Turn if type(value) is int else Part
    found = kind(value)
    found.notes, found.terms = notes, terms
    return found


def _members(base):
    members = {}
    for name in ("__add__", "__sub__", "__mul__", "__floordiv__", "__truediv__", "__mod__") + BITS * (base is int):
        members.update(_reckoned(name, base))
    for name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        members.update(_compared(name, base))

    def asked(self):
        answer = base.__bool__(self)
        self.notes.asked(operator.ne, self.terms, 0, answer)
        return answer

    members["__bool__"] = asked
    def hashed(self):
        self.notes.looked_up(self, self.terms)
        return base.__hash__(self)

    members["__hash__"] = hashed
    members["__reduce__"] = lambda self: (base, (base(self),))  # it leaves the process as a plain number
    members["__deepcopy__"] = lambda self, memo: base(self)
    members["__copy__"] = base
    return members


Turn, Part = type("int", (int,), _members(int)), type("float", (float,), _members(float))
