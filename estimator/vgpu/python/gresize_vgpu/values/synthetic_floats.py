"""What a program reads where it fetches floats that only a kernel could have computed.

Zeros end programs that a GPU would not: probabilities that do not sum to 1, sums that something is divided by. The result of a softmax reads as
one of as many equal shares, that of a sigmoid as a half, everything else as one small number above zero; the high side is sure of one class and reads large
numbers, of which every other one is more than the rest, as it is in the middle. Nothing is decided on the card by this:
there shadow.py and the policy stand, and a read counts as one of what nobody computed, whatever it gives.
"""
from __future__ import annotations

import functools
import math
import weakref

from ..process import guard
from .policy import HALF, HIGH
from .shadow_tensors import MOST_ELEMENTS, MOST_FLOATS, ByTensor

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Iterable

    from gresize_types import Tensor

# What the high side leaves for all classes but the one that it is sure of.
DOUBT = 1e-3


class Entry:
    __slots__ = ("ref", "version", "value", "total_of", "terms", "classes", "log")
    version: int
    value: float | None
    total_of: Any  # a weak reference to the tensor whose sum it is
    terms: int
    classes: int
    log: bool


def _noted(note):
    """A call of which note says what its result holds; a fault of note is not the program's."""

    def make(self, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if args and isinstance(args[0], self.tensor) and args[0].is_cuda and self.calls.shadow.on:
                try:
                    note(self, result, *args, **kwargs)
                except Exception:
                    guard.complain()
            return result

        return call

    return make


def _mapped(function):
    def note(self, result, source, *digits, **named):
        entry = self.find(source)
        if entry is not None and entry.value is not None and not digits and not named:
            inverse = function in (math.exp, math.log)
            self.put(result, float(function(entry.value)), classes=entry.classes if inverse else 0, log=function is math.log)

    return _noted(note)


class Plausible(ByTensor):
    """The one number that stands for all elements of a tensor of the card, by the tensor's Python object."""

    def __init__(self, calls: Any) -> None:
        super().__init__()
        self.calls = calls
        self.torch = calls.torch
        self.tensor = calls.torch.Tensor

    def find(self, tensor: Tensor) -> Any:
        entry = self.table.get(id(tensor))
        if entry is None or entry.ref() is not tensor or entry.version != _version(tensor):
            return None
        return entry

    def put(self, tensor: Tensor, value: float | None, total_of: Tensor | None = None, terms: int = 0, classes: int = 0, log: bool = False) -> None:
        if type(tensor) is not self.tensor or not tensor.is_cuda or not tensor.is_floating_point():
            return
        if value is not None and not math.isfinite(value) or self.torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return
        entry = Entry()
        entry.version, entry.value, entry.terms, entry.classes, entry.log = _version(tensor), value, terms, classes, log
        entry.total_of = weakref.ref(total_of) if total_of is not None else None
        self.keep(tensor, entry)

    def value(self, tensor: Tensor) -> float | None:
        """What each element reads as; None where the tensor is too large for somebody to decide by it."""
        entry = self.find(tensor)
        known, policy = entry is not None and entry.value is not None, self.calls.shadow.policy
        if tensor.numel() > (MOST_ELEMENTS if known or policy.side in (HALF, HIGH) else MOST_FLOATS):
            return None
        if known:
            return entry.value
        return policy.scalar() if tensor.numel() == 1 else policy.element()

    def show(self, tensor: Tensor, result: Tensor) -> None:
        """Write what tensor reads as to result, on the host. A square matrix that is not known to be of shares has more on its diagonal, so that it has an inverse."""
        value, entry, side = self.value(tensor), self.find(tensor), self.calls.shadow.policy.side
        if value is None:
            return
        result.fill_(value)
        if entry is not None:
            if side == HIGH and entry.classes > 1 and result.dim() and result.shape[-1] == entry.classes:
                rest, sure = DOUBT / (entry.classes - 1), 1.0 - DOUBT
                result.fill_(math.log(rest) if entry.log else rest)
                result.select(-1, entry.classes - 1).fill_(math.log(sure) if entry.log else sure)
        elif result.dim() > 1 and result.shape[-1] == result.shape[-2]:
            result.diagonal(dim1=-2, dim2=-1).add_(value)
        elif side in (HALF, HIGH) and result.dim():
            result.mul_((self.torch.arange(result.numel(), device="cpu") % 2 + 1).view(result.shape))

    # -- calls

    def alike(self, original: Callable[..., Any]) -> Callable[..., Any]:
        table = self.table

        @functools.wraps(original)
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if table and args and id(args[0]) in table:
                entry = self.find(args[0])
                if entry is not None and entry.value is not None:
                    for part in result if isinstance(result, (tuple, list)) else (result,):
                        self.put(part, entry.value, classes=entry.classes, log=entry.log)
            return result

        return call

    def joined(self, original: Callable[..., Any]) -> Callable[..., Any]:
        table = self.table

        @functools.wraps(original)
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if table and args and type(args[0]) in (list, tuple):
                entries = [self.find(part) for part in args[0]]
                if entries and None not in entries and len({entry.value for entry in entries}) == 1 and entries[0].value is not None:
                    self.put(result, entries[0].value, classes=entries[0].classes, log=entries[0].log)
            return result

        return call

    def install(self, operators: Iterable[Any]) -> None:
        for operator in operators:
            rule = operator.floats
            if rule is not None:
                for name in operator.names:
                    self.calls.both(name, functools.partial(rule, self))
        for name in ("T", "mT"):
            self.calls.replace(self.tensor, name, lambda original: property(self.alike(original.__get__)))

    # -- rules of operators: what the result of a call holds

    @_noted
    def softmax(self, result: Tensor, source: Tensor, dim: Any = None, *_: Any, **__: Any) -> None:
        self._share(result, dim, lambda n: 1.0 / n, False)

    @_noted
    def log_softmax(self, result: Tensor, source: Tensor, dim: Any = None, *_: Any, **__: Any) -> None:
        self._share(result, dim, lambda n: -math.log(n), True)

    def _share(self, result, dim, number, log):
        if type(dim) is int and result.numel():
            n = result.shape[dim] if result.dim() else 1
            self.put(result, number(n), classes=n, log=log)

    @_noted
    def half(self, result: Tensor, *_: Any, **__: Any) -> None:
        self.put(result, 1.0 - DOUBT if self.calls.shadow.policy.side == HIGH else 0.5)

    log, exp = _mapped(math.log), _mapped(math.exp)
    round, floor, ceil = _mapped(round), _mapped(math.floor), _mapped(math.ceil)

    @_noted
    def total(self, result: Tensor, source: Tensor, *_: Any, **__: Any) -> None:
        if not result.numel():
            return
        terms, entry = source.numel() // result.numel(), self.find(source)
        if entry is not None and entry.value is not None:
            self.put(result, entry.value * terms, source, terms)
        else:
            self.put(result, None, source, terms)

    @_noted
    def divided(self, result: Tensor, source: Tensor, divisor: Any, *_: Any, **__: Any) -> None:
        """Anything over its own sum is so many equal shares."""
        if not isinstance(divisor, self.tensor):
            return
        by, entry = self.find(divisor), self.find(source)
        if by is not None and by.total_of is not None and by.total_of() is source:
            self.put(result, 1.0 / by.terms)
        elif by is not None and by.value and entry is not None and entry.value is not None:
            self.put(result, entry.value / by.value)

    @_noted
    def subtracted(self, result: Tensor, source: Tensor, other: Any, *_: Any, **__: Any) -> None:
        entry = self.find(source)
        if entry is not None and entry.value is not None and type(other) in (int, float):
            self.put(result, other - entry.value)


def _version(tensor):
    return None if tensor.is_inference() else tensor._version
