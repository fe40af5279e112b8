"""What a policy says of a result that only a kernel could have computed: a mask, a count, a class, an order. A function for each kind of result."""
from __future__ import annotations

from .shadow_tensors import GUESSED, NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Sequence

    from gresize_types import Tensor


def found(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    calls.shadow.guess(out, lambda: calls.shadow.policy.mask(out.shape, True))


def missing(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """The opposite question."""
    calls.shadow.guess(out, lambda: calls.shadow.policy.mask(out.shape, False))


def cast(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    source, shadow, torch = args[0], calls.shadow, calls.torch
    if not isinstance(source, torch.Tensor) or not source.is_cuda:
        return
    if out.dtype == torch.bool:
        shadow.guess(out, lambda: shadow.policy.mask(out.shape))
    elif source.is_floating_point():
        entry = calls.plausible.find(source)
        known = entry is not None and entry.value is not None
        number = int(entry.value) if known else shadow.policy.number(0)
        shadow.guess(out, lambda: torch.full(out.shape, number, dtype=out.dtype, device="cpu"), GUESSED if known else NUMBER)


def count(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    source, torch, policy = args[0], calls.torch, calls.shadow.policy
    if source.dtype == torch.bool and out.numel():
        most = source.numel() // max(out.numel(), 1)
        calls.shadow.guess(out, lambda: torch.full(out.shape, policy.count(most), dtype=out.dtype, device="cpu"))


def best(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    source, shadow, torch = args[0], calls.shadow, calls.torch
    if out.dtype != torch.int64 or not isinstance(source, torch.Tensor) or calls.is_integer(source) and out.dim() == 0:
        return
    dim = _dim(args, kwargs, 1, None)
    classes = source.numel() if dim is None or not source.dim() else source.shape[dim]
    shadow.guess(out, lambda: shadow.policy.routes(tuple(out.shape), classes), shadow.kind_of(classes), (0, classes - 1))


def chosen(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    source, shadow = args[0], calls.shadow
    dim = _dim(args, kwargs, 2, -1)
    classes = source.shape[dim] if source.dim() else 1
    shadow.guess(out, lambda: shadow.policy.routes(tuple(out.shape), classes, dim), shadow.kind_of(classes), (0, classes - 1))


def order(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    dim, shadow = _dim(args, kwargs, 1, -1), calls.shadow
    shadow.guess(out, lambda: shadow.policy.order(tuple(out.shape), dim), shadow.kind_of(out.shape[dim] if out.dim() else 1))


def drawn(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    classes, shadow = args[0].shape[-1], calls.shadow
    shadow.guess(out, lambda: shadow.policy.routes(tuple(out.shape), classes, -1), shadow.kind_of(classes), (0, classes - 1))


def place(calls: Any, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    shadow, torch = calls.shadow, calls.torch
    borders = [a for a in args if isinstance(a, torch.Tensor)]
    most = max([b.shape[-1] for b in borders if b.dim()] + [0])
    shadow.guess(out, lambda: torch.full(out.shape, shadow.policy.count(most), dtype=out.dtype, device="cpu"))


def _dim(args, kwargs, position, default):
    dim = args[position] if len(args) > position else kwargs.get("dim", default)
    return dim if isinstance(dim, int) and not isinstance(dim, bool) else default
