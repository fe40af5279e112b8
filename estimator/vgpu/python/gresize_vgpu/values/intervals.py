"""Between which numbers whole numbers lie that only a kernel could have computed: a class that is found is one of so many.

What is made of them in plain ways lies between such numbers as well. A size that is the same for all of these is known, whatever the card finds:
a table of counts has the places that the program says that it has at least.
"""
from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

# Their elements are elements of their first argument, or the mean or an extreme of some.
ALIKE = """
view reshape flatten unflatten squeeze unsqueeze transpose t permute expand expand_as select narrow chunk split tensor_split unbind movedim flip
roll repeat contiguous clone detach view_as reshape_as index_select gather __getitem__ float double half bfloat16 type type_as to cuda mean amax amin
""".split()
CASTS = set("long int short char byte to type type_as cuda".split())
# Of whole numbers, without what averages them.
SAME = set(ALIKE) - {"mean", "float", "double", "half", "bfloat16"} | CASTS | set("ravel masked_select take take_along_dim swapaxes swapdims".split())
PLUS, MINUS, TIMES = {"add", "__add__", "__radd__"}, {"sub", "subtract", "__sub__"}, {"mul", "multiply", "__mul__", "__rmul__"}
JOINED = {"cat", "concat", "concatenate", "stack", "hstack", "vstack"}


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


def after(shadow: Any, original: Callable[..., Any], args: tuple[Any, ...], plan: Any, result: Any) -> Any:
    """The span of what a call gave, from those of what it was given."""
    if plan.kwargs or not isinstance(result, shadow.tensor) or not _whole(result.dtype):
        return None

    def operand(value):
        if type(value) is int:
            return value, value
        entry = shadow.find(value) if isinstance(value, shadow.tensor) and value.is_cuda else None
        return of(entry) if entry is not None else None

    name = getattr(original, "__name__", "")
    if name in SAME and args and (name in CASTS or args[0].dtype is result.dtype):
        return _fits(operand(args[0]), result.dtype)
    if name in JOINED and len(args) == 1:
        parts = [operand(part) for part in args[0]]
        return _fits((min(p[0] for p in parts), max(p[1] for p in parts)), result.dtype) if parts and None not in parts else None
    if name not in PLUS | MINUS | TIMES or len(args) != 2:
        return None
    a, b = operand(args[0]), operand(args[1])
    if a is None or b is None:
        return None
    if name in TIMES:
        corners = [x * y for x in a for y in b]
    else:
        corners = [x + y if name in PLUS else x - y for x in a for y in b]
    return _fits((min(corners), max(corners)), result.dtype)
