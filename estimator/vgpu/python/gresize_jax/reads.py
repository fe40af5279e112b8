"""What the program reads of arrays that no kernel computed.

All that JAX gives of an array to Python, by whatever name it is asked for, comes by one property. A run takes a side there, as with PyTorch: a program that
goes by what it reads needs something else on another side, and is run with both. What is only printed decides nothing.
"""
from __future__ import annotations

import functools
import weakref

from gresize_vgpu.process import native
from gresize_vgpu.values import branch_steering
from gresize_vgpu.values.policy import HALF, HIGH, OFF, Side

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

    from . import counted

# The uses by which estimator/vgpu/values.go judges.
FETCHED, COPIED, UNBOUNDED, TRUTH = "fetched", "copy_to_host", "unbounded", "bool"
PRINTED = ("__repr__", "__str__", "__format__")


class Reads:
    """Counts, by their use, the reads of what a kernel would have computed, and answers them."""

    def __init__(self, counts: counted.Counted) -> None:
        self.counts = counts
        self.side = Side()
        self.uses: dict[str, int] = {}
        self.silent = 0
        self.answered: dict[int, Any] = {}  # id -> a reference to an array of numpy that JAX keeps for the next read

    def said(self) -> dict[str, Any]:
        return {"policy": self.side.side, "uses": dict(self.uses)}

    def use(self, name: str) -> None:
        if not self.silent:
            self.uses[name] = self.uses.get(name, 0) + 1

    def hook(self, module: Any) -> None:
        if self.side.side == OFF:
            return
        kind = module.ArrayImpl
        value, whole, truth = kind._value.fget, kind.__int__, kind.__bool__

        @functools.wraps(value)
        def to_host(array: Any) -> Any:
            before = native.unknown_reads()
            read = value(array)
            known = self.answered.get(id(read))
            if known is None or known() is not read:
                if native.unknown_reads() == before:
                    return read  # what the host has put there, or an array of the CPU
                computed = self.counts.read(array, read)
                if computed is not None:
                    array._npy_value = computed
                    return computed
                read = self.answer(read)
                array._npy_value = read
            self.use(_use(read))
            return read

        @functools.wraps(whole)
        def to_int(array: Any) -> int:
            result = whole(array)
            if array.dtype.kind in "iub" or not self.made_up(array):
                return result
            self.use(UNBOUNDED)  # a whole number that is made of a float may become a size
            return self.side.number(result)

        @functools.wraps(truth)
        def to_bool(array: Any) -> bool:
            result = truth(array)
            return branch_steering.settle(self, result) if self.made_up(array) else result

        kind._value, kind.__int__, kind.__bool__ = property(to_host), to_int, to_bool
        for name in PRINTED:
            setattr(kind, name, self.silently(getattr(kind, name)))
        if hasattr(module, "_array_mlir_constant_handler"):  # an array that becomes a part of a program is nothing that the program has read
            module._array_mlir_constant_handler = self.silently(module._array_mlir_constant_handler)
            module.mlir.register_constant_handler(kind, module._array_mlir_constant_handler)

    def made_up(self, array: Any) -> bool:
        """Whether what was read of an array is this side's answer."""
        known = self.answered.get(id(array._npy_value))
        return known is not None and known() is array._npy_value

    def silently(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.silent += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.silent -= 1

        return call

    def answer(self, read: Any) -> Any:
        """The array that this side has in the place of one that was not computed."""
        kind, side = read.dtype.kind, self.side
        answer = read.copy()
        if kind == "b":
            answer[...] = side.true()
        elif kind in "iu":
            answer[...] = side.number(0) if read.ndim == 0 else side.true()
        else:
            answer[...] = side.scalar() if read.size == 1 else side.element()
        if read.ndim and side.side in (HALF, HIGH):  # every other one is another
            others = answer.reshape(-1)[::2]
            if kind not in "biu":
                others *= others.dtype.type(2)
            elif side.side == HALF:
                others[...] = 1
        answer.flags.writeable = False
        place = id(answer)
        self.answered[place] = weakref.ref(answer, lambda _: self.answered.pop(place, None))
        return answer


def _use(read: Any) -> str:
    if read.dtype.kind not in "biu":
        return FETCHED
    if read.ndim:
        return COPIED
    return TRUTH if read.dtype.kind == "b" else UNBOUNDED
