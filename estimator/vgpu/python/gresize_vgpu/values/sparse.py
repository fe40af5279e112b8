"""Sparse tensors of the card: how many entries are left once equal ones are joined, and how large a matrix is whose size its indices say.

PyTorch's C++ reads both from what its own kernels made. Where the indices are known the numbers are computed from them; else a policy says one, from
hardly any to all, and the estimate says that it went by that.
"""
from __future__ import annotations

import functools

from ..process import guard
from .operators import OPERATORS
from .shadow_tensors import ByTensor

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Iterable

    from gresize_types import Tensor

# How many blocks there are is read as well.
BLOCKED = "to_sparse_bsr to_sparse_bsc".split()


class Entry:
    __slots__ = ("ref", "indices", "kind")
    indices: Tensor
    kind: int


class Sparse(ByTensor):
    """What is known of the indices of sparse tensors, which is not to go with the tensor that the program gave."""

    def __init__(self, calls: Any) -> None:
        super().__init__()
        self.torch, self.shadow = calls.torch, calls.shadow
        self.tensor = calls.torch.Tensor

    def install(self, calls: Any) -> None:
        torch = self.torch
        calls.replace(torch, "sparse_coo_tensor", self.made)
        owners = {"Tensor": torch.Tensor, "torch": torch, "sparse": torch.sparse}
        for operator in OPERATORS:
            for place in operator.joins:
                for name in operator.names:
                    calls.replace(owners[place], name, self.joining(operator.joins_backward))
        for name in BLOCKED:
            calls.replace(torch.Tensor, name, self.blocked)

    def arrived(self, source: Tensor, result: Tensor) -> None:
        """A sparse tensor of the host has come to the card."""
        if self.shadow.on and result.is_cuda and not source.is_cuda and self.shadow.small(source._indices()):
            indices = self.shadow.compute(lambda: source._indices().clone())
            if indices is not None:
                self._keep(result, indices, 0)

    # -- how large

    def made(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """sparse_coo_tensor reads the least and the largest index of each dimension where it is given no size."""

        @functools.wraps(original)
        def sparse_coo_tensor(indices, values, *args, **kwargs):
            shadow = self.shadow
            if not shadow.on:
                return original(indices, values, *args, **kwargs)
            given = "size" in kwargs or args and type(args[0]) in (tuple, list, self.torch.Size)
            known, kind = self._indices(indices)
            shown = []
            if not given and known is not None:
                shown = shadow.answer(lambda: [known.amin(1), known.amax(1) + 1] if known.dim() == 2 and known.numel() else []) or []
            with shadow.showing(shown):
                result = original(indices, values, *args, **kwargs)
            if result.is_cuda:
                if not given and (kind or known is None):
                    shadow.use("sparse_coo_tensor")
                if known is not None:
                    self._keep(result, known, kind)
            return result

        return sparse_coo_tensor

    def _indices(self, indices):
        """A copy of the indices on the host, or None, and where it comes from."""
        if isinstance(indices, self.tensor) and indices.is_cuda:
            entry = self.shadow.find_view(indices)
            return (entry.mirror, entry.taint.kind) if entry is not None else (None, 0)
        if isinstance(indices, self.tensor):
            return (indices.detach(), 0) if self.shadow.small(indices) else (None, 0)
        return self.shadow.answer(lambda: self.torch.as_tensor(indices, device="cpu")), 0

    def _keep(self, tensor, indices, kind):
        entry = Entry()
        entry.indices, entry.kind = indices, kind
        self.keep(tensor, entry)

    # -- how many

    def uncoalesced(self, args: Iterable[Any], kwargs: dict[str, Any]) -> list[Tensor]:
        return [a for a in (*args, *kwargs.values()) if isinstance(a, self.tensor) and a.is_sparse and a.is_cuda and not a.is_coalesced() and a._nnz() > 1]

    def _entries(self, tensor, name):
        """How many entries a tensor has once equal ones are joined."""
        shadow = self.shadow
        entry, indices, kind = self.table.get(id(tensor)), None, 0
        if entry is not None and entry.ref() is tensor and tuple(entry.indices.shape) == (tensor.sparse_dim(), tensor._nnz()):
            indices, kind = entry.indices, entry.kind
        else:
            view = shadow.find_view(tensor._indices())
            if view is not None:
                indices, kind = view.mirror, view.taint.kind
        places = 1
        for n in tensor.shape[: tensor.sparse_dim()]:
            places *= n
        if indices is not None and shadow.small(indices):
            count = shadow.answer(self._distinct, indices, tensor.shape)
            if count is not None:
                if kind:
                    shadow.use(name)
                return count
        shadow.use(name)
        return shadow.policy.kept(min(tensor._nnz(), places))

    def _distinct(self, indices, shape):
        place = self.torch.zeros(indices.shape[1], dtype=self.torch.int64, device="cpu")
        for row, n in zip(indices, shape):
            place = place * n + row
        return place.unique().numel()

    def joining(self, backward: bool) -> Callable[..., Any]:
        """backward: PyTorch joins again in the backward pass."""
        tensor = self.tensor

        def make(original):
            name = getattr(original, "__name__", "sparse").strip("_")

            @functools.wraps(original)
            def call(*args, **kwargs):
                for a in args:
                    if isinstance(a, tensor) and a.is_sparse:
                        break
                else:
                    return original(*args, **kwargs)
                counts = []
                if self.shadow.on:
                    try:
                        counts = [self._entries(a, name) for a in self.uncoalesced(args, kwargs)]
                        if counts and backward and self.torch.is_grad_enabled() and any(isinstance(a, tensor) and a.requires_grad for a in args):
                            self.shadow.use("sparse_backward")
                    except Exception:
                        guard.complain()
                if not counts:
                    return original(*args, **kwargs)
                with self.shadow.answering(counts):
                    return original(*args, **kwargs)

            return call

        return make

    def blocked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The number of blocks is not computed, only said to be one that nobody knows."""

        @functools.wraps(original)
        def call(self_, *args, **kwargs):
            if not self.shadow.on or not self_.is_cuda:
                return original(self_, *args, **kwargs)
            self.shadow.use(original.__name__)
            with self.shadow.answering([self._entries(a, original.__name__) for a in self.uncoalesced((self_,), {})]):
                return original(self_, *args, **kwargs)

        return call
