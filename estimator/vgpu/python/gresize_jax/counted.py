"""Whole numbers that the card would have computed and that follow from what the host knows: the step that a training state counts, the size of a batch.

Before each execution of a computation that has plans (stablehlo.py), numpy works out those of its results whose arguments are known. The native layer keeps
them with the arrays. What the program then reads is the number of a real run, and no side is taken.
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
    from typing import Any, Callable

MOST_COMPUTATIONS = 4096


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """None after a fault of ours: the number is not known then, so the program gets one that is made up, which is a doubt of its own."""
    try:
        return function(*args)
    except Exception:
        guard.complain()
        return None


class Counted:
    """Turns that are left out make what was counted before them less than in a real run: it is not known any more."""

    def __init__(self) -> None:
        self.computations: dict[int, dict[int, stablehlo.Output]] = {}
        self.numbers = itertools.count(1)
        self.follow = pjrt.FOLLOW(self._follow)

    def hook(self, compiler: Any) -> None:
        layer = native.library()
        if layer is None or not hasattr(layer, "gresize_pjrt_follow"):
            return
        original = compiler.compile_or_get_cached

        @functools.wraps(original)
        def compile_or_get_cached(backend: Any, computation: Any, *args: Any, **kwargs: Any) -> Any:
            layer.gresize_pjrt_compiles(attempt(self.learn, computation) or 0)
            try:
                return original(backend, computation, *args, **kwargs)
            finally:
                layer.gresize_pjrt_compiles(0)

        compiler.compile_or_get_cached = compile_or_get_cached
        layer.gresize_pjrt_follow(self.follow)

    @staticmethod
    def turns_left_out() -> None:
        leave = getattr(native.library(), "gresize_pjrt_left_out", None)
        if leave is not None:
            leave()

    def learn(self, computation: Any) -> int:
        """The number of a computation that has plans, from 1; 0 where it has none."""
        if len(self.computations) >= MOST_COMPUTATIONS:
            return 0
        outputs = stablehlo.Module(computation).outputs()
        if not outputs:
            return 0
        number = next(self.numbers)
        self.computations[number] = outputs
        return number

    def _follow(self, number, arguments, count, to, room):
        return attempt(self.results, self.computations[number], arguments, count, to, room) or 0

    def results(self, outputs: dict[int, stablehlo.Output], arguments: Any, count: int, to: Any, room: int) -> int:
        """Puts down what is known of an execution's results, and says how many there are."""
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
        return found

    def read(self, array: Any, unknown: Any) -> Any:
        """What the program gets for an array that no kernel computed, as one of numpy; None where it is not known. unknown is what was read of it."""
        return attempt(self._read, array, unknown)

    def _read(self, array, unknown):
        parts = getattr(array, "_arrays", ())
        if not parts or unknown.dtype.kind not in "biu" or unknown.nbytes > pjrt.KNOWN_BYTES:
            return None
        value, _ = pjrt.known(None, parts[0].unsafe_buffer_pointer())
        if len(value) != unknown.nbytes:
            return None
        return sys.modules["numpy"].frombuffer(value, dtype=unknown.dtype).reshape(unknown.shape)
