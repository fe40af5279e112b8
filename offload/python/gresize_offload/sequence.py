"""The order in which autograd saves tensors and takes them back: the clock by which a plan is made and carried out.

A call of one of the two hooks is an event. An iteration begins with the first tensor that is saved when none is held, or after an optimizer's step; in it,
tensors and events are counted from 0. Identity is this place in the sequence, checked by what a tensor is: an address may be another tensor's a moment later.
"""
from __future__ import annotations

import sys
import threading
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Tensor, Torch


class Saved:
    """What autograd holds in place of one tensor."""

    __slots__ = ("sequence", "iteration", "ordinal", "tensor", "held", "view", "guard", "version")

    def __init__(self, sequence: Sequence, ordinal: int, tensor: Tensor) -> None:
        self.sequence = sequence
        self.iteration = sequence.iteration
        self.ordinal = ordinal
        self.tensor = tensor  # None where the storage is held by held, which others may share
        self.held: Any = None
        self.view: Any = None
        self.guard: Any = None
        self.version = tensor._version  # a counter of changes, which detach() shares: PyTorch does not look at it where there are hooks

    def __del__(self):
        try:
            self.sequence.dropped(self)
        except Exception:  # at the end of the interpreter
            pass


def identity(before: int, tensor: Tensor) -> int:
    """A number for a tensor, and for those before it in the iteration: equal in every process for the same program."""
    text = "%d %s %s %s %d" % (tensor.untyped_storage().nbytes(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())
    return zlib.crc32(text.encode(), before)


class Sequence:
    """The hooks. What is done at an event is said by the methods that a subclass has: begun, saved, taken and dropped."""

    def __init__(self, torch: Torch, device_type: str = "cuda") -> None:
        self.torch = torch
        self.device_type = device_type
        self.lock = threading.RLock()
        self.iteration = 0
        self.live = 0  # saved tensors that are still held
        self.ordinal = 0
        self.event = 0
        self.prefix = 0
        self.stepped = False
        self.hooks: Any = None
        self.failures = 0
        self.types = (torch.Tensor, torch.nn.Parameter)

    # -- what a subclass does

    def begun(self) -> None:
        """A new iteration begins."""

    def arriving(self) -> None:
        """An event begins: self.event is its number."""

    def saved(self, item: Saved, tensor: Tensor) -> None:
        """A tensor is saved: self.prefix names it and those before it."""

    def taken(self, item: Saved) -> Tensor:
        """A tensor is wanted back; returns it."""
        return item.tensor

    def forgotten(self, item: Saved) -> None:
        """A saved tensor is no longer held."""

    def failed(self, error: Exception) -> None:
        """An event has failed of itself; the program goes on."""
        if self.failures == 0:
            print("gresize: the plan is not followed: %s" % (str(error).splitlines() or [type(error).__name__])[0], file=sys.stderr)
        self.failures += 1

    # -- hooks

    def concerns(self, tensor: Tensor) -> bool:
        """Whether a tensor counts. Those of tracers (FakeTensor) and of other devices do not."""
        return type(tensor) in self.types and tensor.device.type == self.device_type and tensor.layout == self.torch.strided

    def pack(self, tensor: Tensor) -> Any:
        if not self.concerns(tensor):
            return tensor
        with self.lock, self.torch.no_grad():
            try:
                return self._packed(tensor)
            except Exception as e:  # nothing has left yet of what the program holds: this tensor stays where it is
                self.failed(e)
                return tensor

    def _packed(self, tensor: Tensor) -> Saved:
        if self.live == 0 or self.stepped:
            self.stepped = False
            self.iteration += 1
            self.ordinal = self.event = self.prefix = 0
            self.begun()
        self.arriving()
        self.prefix = identity(self.prefix, tensor)
        tensor = tensor.detach()  # a result knows the node that saves it: nobody would ever be rid of the two
        item = Saved(self, self.ordinal, tensor)
        self.live += 1
        self.saved(item, tensor)
        self.ordinal += 1
        self.event += 1
        return item

    def unpack(self, item: Any) -> Tensor:
        if not isinstance(item, Saved):
            return item
        with self.lock, self.torch.no_grad():
            try:
                self.arriving()
            except Exception as e:  # what did not come back at its event comes when it is wanted
                self.failed(e)
            now = (item.guard if item.tensor is None else item.tensor)._version
            if now != item.version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: it is at version %d; expected version %d instead"
                    % (now, item.version)
                )
            tensor = self.taken(item)
            self.event += 1
            return tensor

    def dropped(self, item: Saved) -> None:
        with self.lock:
            self.live -= 1
            self.forgotten(item)

    def updates(self, *_: Any) -> None:
        """An optimizer is about to make a step."""

    def step(self, *_: Any) -> None:
        self.stepped = True

    def enter(self) -> None:
        """Puts the hooks under everything that this thread does. The transformations of torch.func refuse to work beside hooks: they go without."""
        torch = self.torch
        graph = torch.autograd.graph
        self.hooks = graph.saved_tensors_hooks(self.pack, self.unpack)
        self.hooks.__enter__()
        disable = torch._C._autograd._saved_tensors_hooks_disable
        enable = torch._C._autograd._saved_tensors_hooks_enable
        main = threading.get_ident()
        stack = []

        def without(*args, **kwargs):
            if threading.get_ident() == main and not stack:
                self.hooks.__exit__()
                stack.append(True)
            return disable(*args, **kwargs)

        def again(*args, **kwargs):
            result = enable(*args, **kwargs)
            if threading.get_ident() == main and stack:
                stack.pop()
                self.hooks.__enter__()
            return result

        torch._C._autograd._saved_tensors_hooks_disable = without
        torch._C._autograd._saved_tensors_hooks_enable = again
        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self.updates)
        optimizer.register_optimizer_step_post_hook(self.step)
