"""The doors by which a tensor of the card comes to the host, other than those of patches.py: it holds there what is known of it."""
from __future__ import annotations

import functools

from ..process import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any


def install(calls: Any) -> None:
    torch, tensor = calls.torch, calls.torch.Tensor
    for name in ("type", "type_as"):
        calls.replace(tensor, name, lambda original: _fetched(calls, original))
    for name in ("as_tensor", "asarray", "tensor"):
        calls.replace(torch, name, lambda original: _fetched(calls, original))
    calls.replace(tensor, "numpy", lambda original: _forced(calls, original))
    calls.replace(tensor, "__setitem__", lambda original: _put_in(calls, original))


def _fetched(calls, original):
    shadow, tensor = calls.shadow, calls.torch.Tensor

    @functools.wraps(original)
    def call(*args, **kwargs):
        first: Any = args[0] if args else kwargs.get("data")
        if shadow.on and type(first) is tensor and first.is_cuda:
            entry = shadow.find(first)
            result = calls.reading(original, *args, **kwargs)
            if isinstance(result, tensor) and not result.is_cuda:
                calls.to_host(first, entry, result)
            return result
        numbers = None
        if shadow.on and type(first) in (list, tuple) and first and type(first[0]) is tensor:
            numbers = _numbers(calls, first)
        result = original(*args, **kwargs)
        if numbers is not None and not result.is_cuda and result.dim() == 1:
            shadow.answer(lambda: result.copy_(calls.torch.tensor(numbers, device="cpu")))
        return result

    return call


def _numbers(calls, parts):
    """What a list of single numbers of the card holds; None where it is not such a list."""
    if not all(type(part) is calls.torch.Tensor and part.is_cuda and part.numel() == 1 for part in parts):
        return None
    try:
        return [part.item() for part in parts]
    except Exception:
        guard.complain()
        return None


def _forced(calls, original):
    @functools.wraps(original)
    def numpy(self_, *args, **kwargs):
        if calls.shadow.on and kwargs.get("force") and self_.is_cuda:
            self_ = self_.detach().cpu()
        return original(self_, *args, **kwargs)

    return numpy


def _put_in(calls, original):
    tensor = calls.torch.Tensor

    @functools.wraps(original)
    def setitem(self_, index, value):
        if isinstance(value, tensor) and value.is_cuda and not self_.is_cuda and calls.shadow.on:
            value = value.cpu()
        return original(self_, index, value)

    return setitem
