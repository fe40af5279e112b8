"""Between which numbers whole numbers lie that only a kernel could have computed: a class that is found is one of so many.

What is made of them in plain ways lies between such numbers as well. A size that is the same for all of these is known, whatever the card finds:
a table of counts has the places that the program says that it has at least.
"""
from __future__ import annotations

import operator
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

def _whole(dtype):
    return not dtype.is_floating_point and not dtype.is_complex


def of(entry: Any) -> tuple[int, int] | None:
    """(least, most) of what a followed tensor may hold on the card; None where nobody knows."""
    mirror, taint = entry.mirror, entry.taint
    if not _whole(mirror.dtype) or not mirror.numel():
        return None
    if not taint.kind:
        return int(mirror.min()), int(mirror.max())
    return taint.span[:2] if taint.span is not None and taint.span[2] is mirror.dtype else None


def kept(entry: Any, dtype: Any) -> Any:
    """The span of what is converted; None where it does not fit."""
    found = of(entry) if entry.taint.kind else None
    return _fits(found, dtype)


def _fits(span, dtype):
    if span is None or not _whole(dtype):
        return None
    if dtype is sys.modules["torch"].bool:
        return None
    most = (1 << dtype.itemsize * 8 - dtype.is_signed) - 1
    return span + (dtype,) if (-most - 1 if dtype.is_signed else 0) <= span[0] and span[1] <= most else None


def after(shadow: Any, rule: Callable[..., Any], args: tuple[Any, ...], plan: Any, result: Any) -> Any:
    """The span of what a call gave, from those of what it was given, by the rule of its operator."""
    if plan.kwargs or not args or not isinstance(result, shadow.tensor) or not _whole(result.dtype):
        return None

    def operand(value):
        if type(value) is int:
            return value, value
        entry = shadow.find(value) if isinstance(value, shadow.tensor) and value.is_cuda else None
        return of(entry) if entry is not None else None

    return _fits(rule(args, result, operand), result.dtype)


# The rules: (least, most) of the result of a call, from those of its arguments.


def same(args: tuple[Any, ...], result: Any, operand: Callable[..., Any]) -> Any:
    """Its elements are elements of the first argument, or an extreme of some."""
    return operand(args[0]) if args[0].dtype is result.dtype else None


def cast(args: tuple[Any, ...], result: Any, operand: Callable[..., Any]) -> Any:
    return operand(args[0])


def joined(args: tuple[Any, ...], result: Any, operand: Callable[..., Any]) -> Any:
    parts = [operand(part) for part in args[0]] if len(args) == 1 else []
    return (min(p[0] for p in parts), max(p[1] for p in parts)) if parts and None not in parts else None


def _of_pairs(function):
    """The least and the most that a function gives of two numbers each of which lies between two."""

    def rule(args, result, operand):
        a, b = (operand(args[0]), operand(args[1])) if len(args) == 2 else (None, None)
        if a is None or b is None:
            return None
        corners = [function(x, y) for x in a for y in b]
        return min(corners), max(corners)

    return rule


plus, minus, times = _of_pairs(operator.add), _of_pairs(operator.sub), _of_pairs(operator.mul)
