"""Whole numbers that the card would have computed and that follow from what the host knows: the step that a training state counts, the size of a batch.

Before each execution of a computation that has plans (stablehlo.py), numpy works out those of its results whose arguments are known. The native layer keeps
them with the arrays. What the program then reads is the number of a real run, and no side is taken. After a fault of ours a number is not known: the program gets one
that is made up, which is a doubt of its own.
"""
from __future__ import annotations

import ctypes
import functools
import itertools
import sys

from gresize_vgpu.process import guard, native

from . import pjrt, stablehlo

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

MOST_COMPUTATIONS, MOST_COUNTERS, MOST_LOOPS = 4096, 256, 64
# A counter is one that rose by the same at each of so many turns, or of as many as there were.
COUNTED_TURNS = 5


class Counter:
    """What a result of a computation came to at the last turns of a loop, the latest last."""

    def __init__(self) -> None:
        self.turns: list[int] = []

    def turned(self, value: int) -> None:
        self.turns = self.turns[1 - COUNTED_TURNS :] + [value]

    def each(self) -> int:
        """How much more it is at each turn; 0 where that is not always the same."""
        more = {after - before for before, after in zip(self.turns, self.turns[1:])}
        return more.pop() if len(more) == 1 else 0


class Counted:
    """Turns that are left out make what was counted before them less than in a real run. A counter is set forward, and what else followed from such is not known any more."""

    def __init__(self) -> None:
        self.computations: dict[int, dict[int, stablehlo.Output]] = {}
        self.numbers = itertools.count(1)
        self.follow = pjrt.FOLLOW(self._follow)
        self.names: dict[int, str] = {}
        self.latest: dict[Any, tuple[int, int, int]] = {}  # (computation or its name, output) -> the single number that it is, and of which computation and output
        self.given: dict[int, dict[int, bytes]] = {}  # computation -> what is known of its latest arguments
        self.loops: dict[int, dict[Any, Counter]] = {}

    def hook(self, compiler: Any) -> None:
        layer = native.library()
        if layer is None or not hasattr(layer, "gresize_pjrt_follow"):
            return
        original = compiler.compile_or_get_cached

        @functools.wraps(original)
        def compile_or_get_cached(backend: Any, computation: Any, *args: Any, **kwargs: Any) -> Any:
            layer.gresize_pjrt_compiles(guard.quietly(self.learn, computation) or 0)
            try:
                return original(backend, computation, *args, **kwargs)
            finally:
                layer.gresize_pjrt_compiles(0)

        compiler.compile_or_get_cached = compile_or_get_cached
        layer.gresize_pjrt_follow(self.follow)

    def turned(self, loop: Any) -> None:
        """A turn of a loop in time-lapse was run, or the first begins."""
        counters = self.loops[id(loop)] = self.loops.pop(id(loop), {})  # the last, so that the first is the one that has not turned for longest
        if len(self.loops) > MOST_LOOPS:
            del self.loops[next(iter(self.loops))]
        for key, (value, _, _) in list(self.latest.items()):
            counters.setdefault(key, Counter()).turned(value)

    def left_out(self, loop: Any, turns: int) -> None:
        layer = native.library()
        if hasattr(layer, "gresize_pjrt_left_out"):
            layer.gresize_pjrt_left_out()
            for key, counter in list(self.loops.get(id(loop), {}).items()):
                guard.quietly(self._set_forward, key, counter, turns)

    def _set_forward(self, key, counter, turns):
        value, computation, place = self.latest[key]
        output, given, each = self.computations[computation][place], self.given[computation], counter.each()
        later = value + each * turns
        if not each or not turns or value != counter.turns[-1] or not output.fits(later):
            return
        for number in output.counted_from:
            before = output.packed(later - value + output.unpacked(given[number]))
            if output.value({**given, number: before}) == output.packed(later):  # it counts on as far as that
                self._execute_again(computation, {**given, number: before}, number)
                self.latest[key] = later, computation, place
                counter.turns = [later - each, later]
                break

    def _execute_again(self, computation, given, number):
        """What a computation's latest results would be with another argument of that number."""
        for place, output in self.computations[computation].items():
            if number in output.given and all(n in given for n in output.given):
                was, now = output.value(self.given[computation]), output.value(given)
                if was is not None and now is not None:
                    native.library().gresize_pjrt_set_forward(computation, place, was, now, len(now))
        self.given[computation] = given

    def learn(self, computation: Any) -> int:
        """The number of a computation that has plans, from 1; 0 where it has none."""
        if len(self.computations) >= MOST_COMPUTATIONS:
            return 0
        outputs = stablehlo.Module(computation).outputs()
        if not outputs:
            return 0
        number = next(self.numbers)
        self.computations[number], self.names[number] = outputs, str(computation.operation.attributes["sym_name"])
        return number

    def _follow(self, number, arguments, count, to, room):
        return guard.quietly(self.results, number, arguments, count, to, room) or 0

    def results(self, computation: int, arguments: Any, count: int, to: Any, room: int) -> int:
        """Puts down what is known of an execution's results, and says how many there are."""
        outputs = self.computations[computation]
        found, now = 0, native.library().gresize_pjrt_age()
        values: dict[int, bytes] = {}
        ages: dict[int, int] = {}
        for n in {n for output in outputs.values() for n in output.given}:
            if n < count and arguments[n]:
                values[n], ages[n] = pjrt.known(arguments[n])
        for number, output in outputs.items():
            if found == room or not all(values.get(n) for n in output.given):
                continue
            value = output.value(values)
            if value is not None:
                to[found].output, to[found].bytes, to[found].age = number, len(value), min([ages[n] for n in output.given], default=now)
                ctypes.memmove(to[found].value, value, len(value))
                found += 1
                if output.counted_from:
                    for key in (computation, number), (self.names[computation], number):  # one function is compiled for several sizes
                        if len(self.latest) < MOST_COUNTERS or key in self.latest:
                            self.latest[key] = output.unpacked(value), computation, number
        self.given[computation] = {n: value for n, value in values.items() if value}
        return found

    def read(self, array: Any, unknown: Any) -> Any:
        """What the program gets for an array that no kernel computed, as one of numpy; None where it is not known. unknown is what was read of it."""
        return guard.quietly(self._read, array, unknown)

    def _read(self, array, unknown):
        parts = getattr(array, "_arrays", ())
        if not parts or unknown.dtype.kind not in "biu" or unknown.nbytes > pjrt.KNOWN_BYTES:
            return None
        value, _ = pjrt.known(None, parts[0].unsafe_buffer_pointer())
        if len(value) != unknown.nbytes:
            return None
        return sys.modules["numpy"].frombuffer(value, dtype=unknown.dtype).reshape(unknown.shape)
