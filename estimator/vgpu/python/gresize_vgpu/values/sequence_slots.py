"""A tensor is no sequence to C, and does not become one by a __getitem__ in Python.

Python fills two slots of a class for a __getitem__ of its own, that of mappings and that of sequences; PyTorch's tensors have the first alone,
and torch.tensor([a, b]) takes what is a sequence apart, which a tensor of one number cannot be.
"""
from __future__ import annotations

import ctypes
import sys

from ..process import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time

    from gresize_types import Torch

# In PyTypeObject and PySequenceMethods, the same in every CPython since 3.8 but the ones without a global lock; what is found there is looked at first.
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_AS_SEQUENCE = 13 * _POINTER
_ITEM = 3 * _POINTER


class _Own:
    def __getitem__(self, index):
        raise IndexError


def _item(kind):
    """The sequence slot of a class that was made in Python: its place lies within the class itself."""
    methods = ctypes.c_void_p.from_address(id(kind) + _AS_SEQUENCE).value
    if not methods or not id(kind) < methods < id(kind) + type.__sizeof__(kind):
        return None
    return ctypes.c_void_p.from_address(methods + _ITEM)


def no_sequence(torch: Torch) -> None:
    """Take the slot out of tensors and of the classes made of them, where it is the one that Python put there."""
    try:
        if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
            return
        put = _item(_Own)
        if put is None or not put.value:
            return
        waiting = [torch.Tensor]
        while waiting:
            kind = waiting.pop()
            waiting += type.__subclasses__(kind)
            slot = _item(kind)
            if slot is not None and slot.value == put.value and not _has_own(kind, torch.Tensor):
                slot.value = None
    except Exception:
        guard.complain()


def _has_own(kind, base):
    """Whether a class between kind and base has a __getitem__ of its own."""
    return any("__getitem__" in vars(c) for c in kind.__mro__[: kind.__mro__.index(base)])
