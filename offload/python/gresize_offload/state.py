"""Moves the state of an optimizer between its steps: it leaves the card after one, and is back before the next.

A tensor of the state stays the object that it is; only its storage is given up and asked for again. Whoever reads optimizer.state or optimizer.state_dict() in
between has all of it brought back first; a tensor that somebody else holds as well does not leave.
"""
from __future__ import annotations

import collections
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Iterator, Sequence

    from gresize_types import Tensor, Torch

    from .plan import StateMove

MIN_BYTES = 1 << 20  # of the smallest storage that is moved


def storages(torch: Torch, optimizer: Any, device_type: str) -> Iterator[Tensor]:
    """The tensors of an optimizer's state that fill a storage of their own, in the order of its parameters: the n-th is the same in every process."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for value in optimizer.state.get(parameter, {}).values():
                if type(value) is not torch.Tensor or value.device.type != device_type or value.layout != torch.strided:
                    continue
                size = value.untyped_storage().nbytes()
                if size >= MIN_BYTES and size == value.numel() * value.element_size():
                    yield value


# What refers to a tensor that nobody else holds, in stepped(): the state, the list, enumerate, the loop, and the question itself.
OWN_REFERENCES = 5


class Watched(collections.defaultdict):
    """The state of an optimizer that tells when it is read."""

    def __init__(self, state: Any, wanted: Callable[[], Any]) -> None:
        super().__init__(getattr(state, "default_factory", dict), state)
        self.wanted = wanted

    def __reduce__(self) -> Any:
        return collections.defaultdict, (self.default_factory, dict(self))


def _telling(name):
    plain = getattr(collections.defaultdict, name)

    def told(self, *args):
        self.wanted()
        return plain(self, *args)

    return told


for _name in ("__getitem__", "__iter__", "get", "items", "values", "pop", "popitem", "copy", "__copy__"):
    setattr(Watched, _name, _telling(_name))


class Away:
    """A tensor whose storage has a copy on the host. data are its bytes on the card; None once they have left."""

    __slots__ = ("tensor", "move", "host", "data", "stream", "out", "back")
    tensor: Tensor
    move: Any
    host: Any
    data: Tensor
    stream: Any
    out: Any
    back: Any


class State:
    """The state of one optimizer. With a second one nothing is moved any more."""

    def __init__(self, swapper: Any, moves: Sequence[StateMove]) -> None:
        self.swapper = swapper
        self.moves = {move.state: move for move in moves}
        self.away = []
        self.buffers = {}  # number of a tensor -> its place on the host
        self.optimizer = None

    def begun(self) -> None:
        """A new iteration begins: events are counted anew."""
        swapper = self.swapper
        for one in self.away:
            swapper.at(one.move.gone, False, self.leave, one)
            if one.move.back >= 0:
                swapper.at(max(one.move.back, one.move.gone), True, self.fetch, one)

    def stepped(self, optimizer: Any) -> None:
        """The copies begin."""
        swapper = self.swapper
        if not self.moves or not swapper.engine.usable() or not self._alone(optimizer):
            return
        for number, tensor in enumerate(list(storages(swapper.torch, optimizer, swapper.device_type))):
            move = self.moves.get(number)
            size = tensor.untyped_storage().nbytes()
            if move is None or size != move.bytes or sys.getrefcount(tensor) > OWN_REFERENCES:
                continue
            if number not in self.buffers:
                self.buffers[number] = swapper.pool.take(size)
            if self.buffers[number] is None:
                swapper.counts["no_room"] += 1
                continue
            one = Away()
            one.tensor, one.move, one.back = tensor, move, None
            one.host, after = self.buffers[number]
            one.data = self._bytes(tensor, size)
            one.stream = swapper.engine.current(tensor.device)
            one.out = swapper.engine.out(one.host, one.data, after)
            self.away.append(one)
            swapper.counts["state_moves"] += 1
            swapper.counts["moved_bytes"] += size
        if self.away and type(optimizer.state) is not Watched:
            optimizer.state = Watched(optimizer.state, self.read)

    def read(self) -> None:
        """Somebody reads the state."""
        if self.away:
            with self.swapper.lock, self.swapper.torch.no_grad():
                self.wanted()

    def _alone(self, optimizer):
        if self.optimizer is None:
            self.optimizer = optimizer
            for register in (optimizer.register_state_dict_pre_hook, optimizer.register_load_state_dict_pre_hook):
                register(self.wanted)
        elif self.optimizer is not optimizer:
            self.wanted()
            self.moves = {}
            print("gresize: a second optimizer makes a step: the optimizer's state stays on the card from here on, and what the job takes may be more than was planned", file=sys.stderr)
        return bool(self.moves)

    def _bytes(self, tensor, size):
        torch = self.swapper.torch
        return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage(), 0, (size,), (1,))

    def leave(self, one: Away) -> None:
        """From here on the memory is free for what comes after the copy."""
        if one.data is None or one.back is not None:
            return
        self.swapper.engine.wait(one.stream, one.out)
        one.data = None
        one.tensor.untyped_storage().resize_(0)

    def fetch(self, one: Away) -> None:
        """The storage begins to come back, if it is away."""
        if one.data is not None:
            return
        storage = one.tensor.untyped_storage()
        storage.resize_(one.move.bytes)
        one.data = self._bytes(one.tensor, one.move.bytes)
        one.stream = self.swapper.engine.current(one.tensor.device)
        one.back = self.swapper.engine.back(one.host, one.data)

    def wanted(self, *_: Any) -> None:
        """All of it is wanted now."""
        swapper = self.swapper
        away, self.away = self.away, []
        swapper.due = [due for due in swapper.due if due[-1] not in away]
        for one in away:
            self.fetch(one)
        for one in away:
            last = one.out if one.back is None else one.back
            swapper.engine.wait(swapper.engine.current(one.tensor.device), last)
            one.data = None
            self.buffers[one.move.state] = one.host, last
