"""Notes what the program was doing while its allocator worked, and what the memory that it holds is for.

The allocator's own history knows sizes and addresses only. Marks (a module's forward begins, a step ends) and owners (this address is that
parameter) are laid beside it. Nothing here may allocate or free memory of the GPU, nor change what the program computes.
"""
from __future__ import annotations

import os
import weakref

from ..compiler import tracing
from ..process import allocator, guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterable, Iterator

    from gresize_types import Torch

MOST_EVENTS = 500000
# After so many notes the rest of the run has no names; sizes are in the history all the same.
MOST_MARKS = 200000
MOST_OWNERS = 200000
MOST_NAMES = 50000
MOST_NAME_BYTES = 200


def place(torch: Torch) -> tuple[int, int, int] | None:
    """Where the history of the current device is now; None before the first use of the GPU."""
    if not torch.cuda.is_initialized():
        return None
    device = torch.cuda.current_device()
    blocks = torch.cuda.memory_stats_as_nested_dict(device).get("allocation", {}).get("all")
    return blocks and (device, blocks["allocated"], blocks["freed"])


class Ledger:
    """The marks and owners of one process. A place in the history is told by how many blocks had been handed out and given back."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.marks = []  # device, blocks handed out, blocks given back, kind, name or step
        self.owners = []  # device, handed out, given back, category, address, name
        self.names = {}
        self.paths = weakref.WeakKeyDictionary()
        self.roots = weakref.WeakSet()
        self.hooks = []
        self.free_at_start = {}

    def begin(self) -> None:
        """The first use of the GPU: from here on the allocator keeps its history."""
        torch = self.torch
        if torch.cuda.get_allocator_backend() != "native":
            return  # the others have no history
        # No stacks: what they would tell is told by the marks, for less.
        torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=MOST_EVENTS)
        device = torch.cuda.current_device()
        self.free_at_start[device] = torch.cuda.mem_get_info(device)[0]

    def place(self) -> tuple[int, int, int] | None:
        return place(self.torch)

    def name(self, text: str) -> int:
        text = str(text)[:MOST_NAME_BYTES]
        if text not in self.names and len(self.names) >= MOST_NAMES:
            text = ""
        return self.names.setdefault(text, len(self.names))

    def mark(self, kind: str, value: Any = 0) -> None:
        if len(self.marks) >= MOST_MARKS:
            return
        place = self.place()
        if place is None:
            return
        last = self.marks[-1] if self.marks else None
        if kind == "leave" and last is not None and last[3] == "enter" and last[:3] == place:
            self.marks.pop()  # nothing happened in between
            return
        self.marks.append(place + (kind, value))

    # -- modules

    def hook_modules(self) -> None:
        module = self.torch.nn.modules.module

        def enter(m, args):
            try:
                path = self.paths.get(m)
                if path is None:
                    path = self._add_root(m)
                self.mark("enter", self.name(path))
            except Exception:
                guard.complain()

        def leave(m, args, output):
            try:
                self.mark("leave")
            except Exception:
                guard.complain()

        self.hooks = [
            module.register_module_forward_pre_hook(enter),
            module.register_module_forward_hook(leave, always_call=True),
        ]
        tracing.before(self.torch, self._retire)

    def _add_root(self, root):
        self.roots.add(root)
        for path, m in root.named_modules():
            self.paths.setdefault(m, path or type(m).__name__)
        return self.paths[root]

    def _retire(self, target):
        """torch.compile would trace through the hooks and split its graphs at them: then the program goes without module names."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    # -- owners

    def observe(self, optimizers: Iterable[Any]) -> None:
        """Look at what parameters, gradients, optimizers and buffers hold now."""
        place = self.place()
        if place is None:
            return
        names = {}
        for root in list(self.roots):
            for path, p in root.named_parameters():
                names.setdefault(id(p), path)
            for path, b in root.named_buffers():
                self._own(place, "buffer", b, path)
        for optimizer in list(optimizers):
            number = 0
            for group in optimizer.param_groups:
                for p in group["params"]:
                    path = names.get(id(p)) or "parameter %d" % number
                    number += 1
                    self._own(place, "parameter", p, path)
                    self._own(place, "gradient", p.grad, path)
                    state = optimizer.state.get(p)
                    if isinstance(state, dict):
                        for key, value in state.items():
                            self._own(place, "optimizer", value, "%s of %s" % (key, path))

    def _own(self, place, category, tensor, path):
        if len(self.owners) >= MOST_OWNERS or not isinstance(tensor, self.torch.Tensor):
            return
        tensor = getattr(tensor, "_local_tensor", tensor)  # the part of a distributed tensor that lies here
        if tensor.is_cuda and tensor.device.index == place[0] and tensor.layout == self.torch.strided:
            address = tensor.untyped_storage().data_ptr()
            if address:
                self.owners.append(place + (category, address, self.name(path)))

    # -- the whole

    def lines(self) -> Iterator[Any]:
        """The history of every device with the notes at their places, one value a line."""
        torch = self.torch
        snapshot = torch.cuda.memory._snapshot()
        conf, expandable = _settings(snapshot)
        pooled = {s.get("device", 0) for s in snapshot.get("segments", []) if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)}
        for index, text in enumerate(self.names):
            yield {"name": index, "text": text}
        for device, events in enumerate(snapshot.get("device_traces", [])):
            if not events:
                continue
            blocks = torch.cuda.memory_stats_as_nested_dict(device).get("allocation", {}).get("all", {})
            yield {
                "history": 1,
                "device": device,
                "conf": conf,
                "expandable_segments": expandable,
                "fraction": allocator.memory_fraction(torch, device),
                "total_bytes": torch.cuda.get_device_properties(device).total_memory,
                "free_bytes": self.free_at_start.get(device, 0),
                "allocations": blocks.get("allocated", 0),
                "private_pools": device in pooled,
            }
            notes = [m for m in self.marks if m[0] == device] + [o for o in self.owners if o[0] == device]
            notes.sort(key=lambda note: note[1:3])  # stable: marks of the same place keep their order
            handed_out = given_back = at = 0
            for e in events:
                while at < len(notes) and notes[at][1] <= handed_out and notes[at][2] <= given_back:
                    yield _note(notes[at])
                    at += 1
                line = {k: e[k] for k in ("action", "addr", "size", "stream") if k in e}
                if "device_free" in e:
                    line["device_free"] = e["device_free"]
                yield line
                handed_out += e["action"] == "alloc"
                given_back += e["action"] == "free_requested"
            for note in notes[at:]:
                yield _note(note)


def _settings(snapshot):
    conf = snapshot.get("allocator_settings") or {}
    text = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    for key in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        text = conf.get(key) or text
    return text, bool(conf.get("expandable_segments"))


def _note(note):
    if len(note) == 5:
        return {"mark": note[3], "value": note[4]}
    return {"own": note[3], "addr": note[4], "name": note[5]}
