"""Calls whose results are as large as the values say: the kernel's own code asks the card for a number, and is told one."""
from __future__ import annotations

import functools
import warnings

from ..process import native
from . import intervals
from .shadow_tensors import NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

    from gresize_types import Tensor

    from .shadow_tensors import Plan


def install(calls: Any) -> None:
    _install_nonzero(calls)
    _install_number(calls)
    for name in ("unique", "unique_consecutive"):
        calls.both(name, _sized(calls, Distinct))
    calls.both("bincount", _sized(calls, Counts))
    calls.replace(calls.torch.nn.functional, "one_hot", _sized(calls, Classes))
    calls.both("repeat_interleave", _sized(calls, Repeats))


def _install_nonzero(calls):
    torch, shadow, policy = calls.torch, calls.shadow, calls.shadow.policy

    def nonzero(mask):
        """The kernel's own code, which asks the card how many there are, and is told."""
        entry = shadow.find_view(mask) if mask.is_cuda else None
        if entry is not None and (shadow.small(mask) or not any(entry.mirror.stride())):
            count = int(entry.mirror[(0,) * mask.dim()] != 0) * mask.numel() if mask.numel() and not any(entry.mirror.stride()) else int(entry.mirror.count_nonzero())
            if entry.taint.kind:
                shadow.use("nonzero")
        else:
            count = policy.count(mask.numel())
            shadow.use("nonzero")
        out = torch.empty(0, dtype=torch.int64, device=mask.device)
        with shadow.answering([count]):
            torch.ops.aten.nonzero.out(mask, out=out)
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced is meant
        calls.library = torch.library.Library("aten", "IMPL")
        calls.library.impl("nonzero", nonzero, "CUDA")


def _install_number(calls):
    """The read of one number: C++ does it where a tensor of the card is given for a size, and no function of Python sees that."""
    torch, shadow = calls.torch, calls.shadow

    def read(tensor):
        return torch.ops.aten._to_copy.default(tensor, device="cpu").item()

    def number(tensor):
        if not shadow.on or shadow.read_by_python:
            return read(tensor)
        entry = shadow.find_view(tensor)
        if entry is not None:
            if entry.taint.kind:
                shadow.use("size")
            if entry.taint.kind == NUMBER:
                shadow.use("unbounded")
                return max(int(entry.mirror), shadow.policy.number(1))
            with shadow.showing([entry.mirror]):
                return read(tensor)
        before = native.unknown_reads()
        value = read(tensor)
        if native.unknown_reads() == before or tensor.dtype is torch.bool:
            return value
        if tensor.is_floating_point():
            return calls.plausible.value(tensor)
        shadow.use("unbounded")
        return shadow.policy.number(1)  # of nothing there is no program

    calls.library.impl("_local_scalar_dense", number, "CUDA")


def _sized(calls, kind):
    torch, shadow = calls.torch, calls.shadow

    def make(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            first = args[0] if args else kwargs.get("input")
            if not shadow.on or not isinstance(first, torch.Tensor) or not first.is_cuda:
                return original(*args, **kwargs)
            plan = shadow.plan(args, kwargs)
            size = kind(calls, original, first, args, kwargs, plan)
            if not size.known():
                shadow.use(getattr(original, "__name__", "sized"))
            with shadow.answering(shadow.answer(size.answers) or []):
                result = original(*args, **kwargs)
            if plan is not None:
                shadow.follow(original, plan, args, result)
            return result

        return call

    return make


class Size:
    """What one call will read: whether its size is known, and the numbers that it is told."""

    def __init__(self, calls: Any, original: Callable[..., Any], first: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Plan | None) -> None:
        self.calls, self.shadow, self.original = calls, calls.shadow, original
        self.first, self.args, self.kwargs, self.plan = first, args, kwargs, plan

    def given(self, name: str, position: int, default: Any = None) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


class Distinct(Size):
    def known(self) -> bool:
        return self.plan is not None and not self.plan.kind()

    def answers(self) -> list[int]:
        if self.plan is None or self.plan.kind() == NUMBER:
            dim = self.given("dim", 4 if self.original.__name__ == "unique" else 3)
            return [self.shadow.policy.kept(self.first.numel() if dim is None else self.first.shape[dim])]
        result = self.original(*self.plan.args, **self.plan.kwargs)
        return [(result[0] if isinstance(result, tuple) else result).shape[0]]


class Classes(Size):
    def known(self) -> bool:
        return self.given("num_classes", 1, -1) != -1 or self.plan is not None and not self.plan.kind()

    def answers(self) -> list[int]:
        return [int(self.plan.args[0].max())] if self.plan is not None and self.first.numel() else [0]


class Counts(Size):
    """The weights may be anything; the numbers that are counted say the size, if they go beyond what the table has at least."""

    def known(self) -> bool:
        entry = self.shadow.find(self.first)
        if entry is None or not entry.taint.kind:
            return entry is not None
        span, least = self.shadow.answer(intervals.of, entry), self.given("minlength", 2, 0)
        return span is not None and span[0] >= 0 and type(least) is int and span[1] < least

    def answers(self) -> list[int]:
        entry = self.shadow.find(self.first)
        return [int(entry.mirror.min()), int(entry.mirror.max())] if entry is not None and self.first.numel() else [0]


class Repeats(Size):
    """By known numbers: the values may be anything, the sizes are not."""

    def _numbers(self):
        return self.given("repeats", 1, self.first)

    def known(self) -> bool:
        numbers = self._numbers()
        if not isinstance(numbers, self.calls.torch.Tensor) or not numbers.is_cuda:
            return True
        entry = self.shadow.find(numbers)
        return entry is not None and not entry.taint.kind

    def answers(self) -> list[int]:
        numbers = self._numbers()
        entry = self.shadow.find(numbers) if isinstance(numbers, self.calls.torch.Tensor) and numbers.is_cuda else None
        return [int(entry.mirror.sum())] if entry is not None else [0]
