"""Notes what a plan is made from: which tensors autograd saves and takes back, in which order, and where in the allocator's history. It runs in a probe only."""
from __future__ import annotations

from gresize_vgpu.record import memory_history, operators

from . import sequence, state

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterator

    from gresize_types import Tensor, Torch

MOST_EVENTS = 400000

current: Any = None  # the recorder of this process, for whoever writes the report


class Recorder(sequence.Sequence):
    def __init__(self, torch: Torch) -> None:
        super().__init__(torch)
        self.lines = []
        self.lost = 0
        self.items = {}  # name of a storage -> tensors of it that autograd keeps
        self.shared = {}  # name of a storage that somebody else holds, too -> the tensor that it was saved with first
        self.optimizers = set()
        self.holders = getattr(torch._C, "_storage_Use_Count", lambda name: 0)

    def _note(self, line):
        if len(self.lines) >= MOST_EVENTS:
            self.lost += 1
            return
        line["at"] = (memory_history.place(self.torch) or (0, 0, 0))[1:]
        if operators.looking is not None:
            line["calls"] = len(operators.looking.calls)
        self.lines.append(line)

    def failed(self, error: Exception) -> None:
        super().failed(error)
        self.lost += 1

    def begun(self) -> None:
        self._note({"begin": self.iteration})

    def arriving(self) -> None:
        for name, (iteration, ordinal) in list(self.shared.items()):
            if self.holders(name) <= self.items[name]:
                del self.shared[name]
                if iteration == self.iteration:
                    self._note({"alone": ordinal})

    def saved(self, item: sequence.Saved, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        name = storage._cdata
        self.items[name] = self.items.get(name, 0) + 1
        if self.items[name] == 1:
            self.shared[name] = self.iteration, item.ordinal
        self._note({"save": item.ordinal, "prefix": self.prefix, "address": storage.data_ptr(), "bytes": storage.nbytes(), "device": tensor.device.index})

    def taken(self, item: sequence.Saved) -> Tensor:
        self._note({"take": item.ordinal, "of": item.iteration})
        return item.tensor

    def forgotten(self, item: sequence.Saved) -> None:
        name = item.tensor.untyped_storage()._cdata
        self.items[name] -= 1
        if self.items[name] == 0:
            del self.items[name]
            self.shared.pop(name, None)

    def updates(self, *_: Any) -> None:
        if self.torch.cuda.is_initialized():
            self._note({"updates": self.iteration})

    def step(self, optimizer: Any, *_: Any) -> None:
        super().step()
        if not self.torch.cuda.is_initialized():
            return
        self.optimizers.add(id(optimizer))
        kept = [t.untyped_storage() for t in state.storages(self.torch, optimizer, "cuda")] if len(self.optimizers) == 1 else []
        self._note({"step": self.iteration, "state": [[s.data_ptr(), s.nbytes()] for s in kept], "optimizers": len(self.optimizers)})


def begin(torch: Torch) -> None:
    global current
    current = Recorder(torch)
    current.enter()


def lines() -> Iterator[dict[str, Any]]:
    """What was noted, one value a line; the head says whether all of it."""
    yield {"saved": 1, "lost": current.lost}
    yield from current.lines
