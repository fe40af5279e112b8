"""Carries out a plan: storages that autograd keeps leave the card and come back, each at its event.

An iteration is followed as long as its saved tensors are those of an iteration of the plan. From the first that is not, tensors stay where they are, as
without us; what has left comes back when it is wanted. A value is never another one: what leaves is a copy of the whole storage, taken when it was saved,
and a tensor that was changed since is refused with PyTorch's own error.
"""
from __future__ import annotations

import atexit
import bisect
import json
import os

from . import copies, fitting, regions, sequence, state

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Iterator

    from gresize_types import Tensor, Torch

    from .plan import Move, Plan


class Held:
    """A storage that has a copy on the host, or will have one."""

    __slots__ = ("name", "storage", "weak", "host", "out", "back", "stream", "items", "device")

    def __init__(self, name: int, storage: Tensor, weak: Any, host: Tensor, stream: Any) -> None:
        self.name = name
        self.storage = storage  # bytes on the device; None once it has left
        self.weak = weak  # keeps the name of the storage from being given to another
        self.host = host
        self.out = None
        self.back = None
        self.stream = stream
        self.items = 0
        self.device = storage.device


class Swapper(sequence.Sequence):
    def __init__(self, torch: Torch, plan: Plan, engine: copies.Cuda | copies.Host, device_type: str = "cuda") -> None:
        super().__init__(torch, device_type)
        from torch.multiprocessing.reductions import StorageWeakRef

        self.weak_of = StorageWeakRef
        self.plan = plan
        self.engine = engine
        self.pool = copies.Pool(torch, plan.host_bytes, engine.pinned)
        self.by_prefix = {}  # (ordinal, prefix) -> iterations of the plan that have it there
        for iteration in plan.iterations:
            for ordinal, prefix in enumerate(iteration.prefixes):
                self.by_prefix.setdefault((ordinal, prefix), []).append(iteration)
        self.following = False
        self.held = {}  # name of a storage -> Held
        self.due = []  # event, whether it comes back, order, what to do, Held
        self.order = 0
        self.counts = {"iterations": 0, "followed": 0, "moves": 0, "state_moves": 0, "moved_bytes": 0, "no_room": 0, "late": 0, "revived": 0}
        self.state = state.State(self, plan.state)
        self.regions = regions.Regions(())
        self.program = fitting.Program()

    # -- the sequence

    def begun(self) -> None:
        due, self.due = self.due, []
        for _, back, _, action, held in due:  # of an iteration that did not come to its end
            if not back:
                action(held)
        self.state.begun()
        self.engine.begun()
        self.counts["iterations"] += 1
        self.following = True

    def arriving(self) -> None:
        while self.due and self.due[0][0] <= self.event:
            _, _, _, action, held = self.due.pop(0)
            action(held)

    def at(self, event: int, back: bool, action: Callable[[Any], None], held: Any) -> None:
        self.order += 1
        bisect.insort(self.due, (event, back, self.order, action, held))

    def updates(self, *_: Any) -> None:
        with self.lock, self.torch.no_grad():
            self.state.wanted()

    def step(self, optimizer: Any, *_: Any) -> None:
        super().step()
        with self.lock, self.torch.no_grad():
            try:
                self.state.stepped(optimizer)
            except Exception as e:  # the tensors that are not on their way stay
                self.failed(e)

    def failed(self, error: Exception) -> None:
        super().failed(error)
        self.following = False

    def saved(self, item: sequence.Saved, tensor: Tensor) -> None:
        candidates = self.by_prefix.get((self.ordinal, self.prefix)) if self.following else None
        if not candidates:
            if self.following:
                self.program.differs(self.iteration, self.ordinal)
            self.following = False
            return
        if self.ordinal + 1 == len(candidates[0].prefixes):
            self.counts["followed"] += 1
        move = candidates[0].moves.get(self.ordinal)
        storage = tensor.untyped_storage()
        held = self.held.get(storage._cdata)
        if held is None:
            held = self.begin(storage, move) if move is not None and self.engine.usable() else None
            if held is None:
                return
            self.at(move.gone, False, self.leave, held)
            self.at(max(move.back, move.gone), True, self.fetch, held)
        elif held.storage is None:
            return  # it was away, and somebody still had it: this one keeps it
        held.items += 1
        item.held = held
        item.view = tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.is_conj(), tensor.is_neg()
        # The counter of changes is shared with the program's tensor, the memory is not.
        item.guard = tensor.detach()
        item.guard.data = tensor.new_empty(0)
        item.tensor = None

    def taken(self, item: sequence.Saved) -> Tensor:
        held = item.held
        if held is None:
            return item.tensor
        if held.storage is None:
            self.counts["late"] += 1
            self.fetch(held)
        stream = self.engine.current(held.device)
        if held.back is not None:
            self.engine.wait(stream, held.back)
        dtype, offset, shape, stride, conj, neg = item.view
        tensor = self.torch.empty(0, dtype=dtype, device=held.device).set_(held.storage.untyped_storage(), offset, shape, stride)
        if conj:
            tensor = tensor.conj()
        if neg:
            tensor = tensor._neg_view()
        return tensor

    def forgotten(self, item: sequence.Saved) -> None:
        held = item.held
        if held is None:
            return
        held.items -= 1
        if held.items == 0:
            self.end(held)

    # -- storages

    def begin(self, storage: Any, move: Move) -> Held | None:
        """Starts the copy to the host of a storage that the plan moves; None where it is another one, or where the host has no room for it."""
        if storage.nbytes() != move.bytes:
            return None
        buffer = self.pool.take(move.bytes)
        if buffer is None:
            self.counts["no_room"] += 1
            return None
        host, after = buffer
        torch = self.torch
        data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (move.bytes,), (1,))
        held = Held(storage._cdata, data, self.weak_of(storage), host, self.engine.current(data.device))
        held.out = self.engine.out(host, data, after)
        self.held[held.name] = held
        self.counts["moves"] += 1
        self.counts["moved_bytes"] += move.bytes
        return held

    def leave(self, held: Held) -> None:
        """From here on the memory is free for what comes after the copy."""
        if held.items == 0 or held.storage is None or held.back is not None:
            return
        self.engine.wait(held.stream, held.out)
        held.storage = None

    def fetch(self, held: Held) -> None:
        """The storage begins to come back, if it is away."""
        if held.items == 0 or held.storage is not None:
            return
        torch = self.torch
        if not held.weak.expired():
            # Somebody else kept it: it is where it was.
            storage = torch.UntypedStorage._new_with_weak_ptr(held.weak.cdata)
            if storage is not None:
                held.storage = torch.empty(0, dtype=torch.uint8, device=held.device).set_(storage, 0, (held.host.numel(),), (1,))
                self.counts["revived"] += 1
                return
        held.storage = torch.empty(held.host.numel(), dtype=torch.uint8, device=held.device)
        held.stream = self.engine.current(held.device)
        held.back = self.engine.back(held.host, held.storage)

    def end(self, held: Held) -> None:
        """Nobody wants it any more."""
        if self.held.get(held.name) is held:
            del self.held[held.name]
        if held.storage is not None and held.back is None:
            self.engine.wait(held.stream, held.out)  # the copy reads memory that may be another's next
        if held.back is not None:
            self.engine.wait(held.stream, held.back)
        held.storage = None
        self.pool.give(held.host, held.back or held.out)

    # -- the report

    def report(self) -> dict[str, int]:
        return dict(self.counts, host_bytes=self.pool.taken_bytes, region_bytes=self.regions.taken_bytes)


current: Any = None  # the swapper of this process


def lines() -> Iterator[dict[str, Any]]:
    """What became of the plan, for the report of a run on the virtual GPU."""
    yield {"saved": 1, "lost": 0}
    yield {"carried_out": current.report()}


def begin(torch: Torch, plan: Plan) -> None:
    global current
    if os.environ.get("GRESIZE_OFFLOAD_DEVICE") == "cpu":  # for tests: the host's memory stands for the card's
        current = Swapper(torch, plan, copies.Host(torch), "cpu")
    else:
        current = Swapper(torch, plan, copies.Cuda(torch))
        fitting.release(torch, plan)
        fitting.card(torch, plan)
        current.regions = regions.Regions(plan.regions)
        current.regions.begin(torch)
    if plan.moves():
        current.enter()
    path = os.environ.get("GRESIZE_OFFLOAD_REPORT")
    if path:
        atexit.register(_write, path)


def _write(path):
    with open(path, "w") as f:
        json.dump(dict(current.report(), slowdown=current.engine.slowdown()), f)
