"""Writes down which arrays lived on the first card of a process, when, and what each was for: events-<pid>.jsonl, as PyTorch's allocator has it.

XLA gives an array no purpose, so each gets it from its way through the computation that is executed as the training step. What is given to a step, used by
what makes the next step's, and given to that in its place, is carried from step to step: parameters, and the optimizer's state. All else that a step is
given is an argument, all else that is made an output, and what XLA needs for the time of an execution a temporary.
"""
from __future__ import annotations

import ctypes
import re
import sys

from gresize_vgpu.process import guard, native, report_file

from . import pjrt

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterator

MOVED, MADE, USED, GONE, BEGINS, ENDS = range(1, 7)
MOST_EVENTS = 1 << 19
MOST_LINES = 300000
MOST_NAMES, MOST_NAME_LENGTH = 4096, 200
TEMPORARY_AFTER = 256
TEMPORARIES_FROM = 1 << 61  # where no card has memory: XLA does not say where they lie
# Programs call it so, whatever the optimizer's own parts are called: opt_state, opt, optimizer.
OPTIMIZER = re.compile(r"(^|[^a-z])opt(im(izer|iser)?)?([^a-z]|$)", re.IGNORECASE)


class Event(ctypes.Structure):
    """native/pjrt_arrays.c has the same."""

    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_int64), ("computation", ctypes.c_uint32), ("position", ctypes.c_uint16), ("kind", ctypes.c_uint16)]


def events() -> list[Any]:
    layer = native.library()
    if layer is None:
        return []
    room, lost = (Event * MOST_EVENTS)(), ctypes.c_uint(0)
    return list(room[: min(layer.gresize_pjrt_events(room, MOST_EVENTS, ctypes.byref(lost)), MOST_EVENTS)])


class Names:
    """What the program calls the arguments of what it compiles: state.params['w']."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {}

    def hook(self, compiler: Any) -> None:
        original = compiler.compile_or_get_cached

        def compile_or_get_cached(backend: Any, computation: Any, *args: Any, **kwargs: Any) -> Any:
            guard.quietly(self.learn, computation)
            return original(backend, computation, *args, **kwargs)

        compiler.compile_or_get_cached = compile_or_get_cached

    def learn(self, module: Any) -> None:
        if len(self.of) >= MOST_NAMES:
            return
        name = str(module.operation.attributes["sym_name"]).strip('"')
        for operation in module.body.operations:
            if str(operation.attributes["sym_name"]).strip('"') == "main":
                block = operation.regions[0].blocks[0]
                self.of.setdefault(name, [_location(argument) for argument in block.arguments])

    def argument(self, computation: str, position: int) -> str:
        names = self.of.get(computation, ())
        return names[position] if position < len(names) and names[position] else "argument %d of %s" % (position, computation)


def _location(argument):
    found = re.match(r'loc\("(.*?)"', str(getattr(argument, "location", "")))
    return found.group(1).replace('\\22', '"')[:MOST_NAME_LENGTH] if found else ""


class Array:
    """One array, from the event that brought it; maker is the execution that made it."""

    def __init__(self, event: Any, maker: Any) -> None:
        self.bytes, self.position, self.maker = event.bytes, event.position, maker
        self.holders = 1  # handles of XLA on the same memory
        self.purpose: tuple[str, str] | None = None


class Execution:
    def __init__(self, computation: int) -> None:
        self.computation = computation
        self.given: dict[int, Array] = {}


class Record:
    """The events of one process, read once: what lived when, and for what."""

    def __init__(self, recorded: list[Any], computations: list[Any], names: Names) -> None:
        self.computations, self.names = computations, names
        self.step = pjrt.step(computations)
        self.told: list[tuple[str, Any, Any]] = []  # in their order: an array is born or goes, an execution begins or ends
        self.steps: list[Execution] = []
        self._read(recorded)
        self._carried()

    def _read(self, recorded):
        live: dict[int, Array] = {}
        running: list[Execution] = []
        coming = Execution(-1)  # what is told of arguments comes before the execution begins
        for e in recorded:
            if e.kind in (MOVED, MADE):
                there = live.get(e.address)
                if there is not None and there.bytes == e.bytes:
                    there.holders += 1  # a donated array becomes the result in its place
                    continue
                if there is not None:
                    self.told.append(("gone", e.address, there))
                live[e.address] = array = Array(e, running[-1] if e.kind == MADE and running else None)
                self.told.append(("born", e.address, array))
            elif e.kind == USED:
                if e.address in live:
                    coming.given[e.position] = live[e.address]
            elif e.kind == GONE:
                held = live.get(e.address)
                if held is not None:
                    held.holders -= 1
                    if not held.holders:
                        self.told.append(("gone", e.address, live.pop(e.address)))
            elif e.kind == BEGINS:
                coming.computation = e.computation
                running.append(coming)
                if e.computation == self.step:
                    self.steps.append(coming)
                self.told.append(("begins", e.bytes, coming))
                coming = Execution(-1)
            elif e.kind == ENDS and running:
                self.told.append(("ends", e.bytes, running.pop()))

    def _carried(self):
        """Gives the arrays of the step their purposes, and those that come later from the same places."""
        places: dict[int, tuple[str, str]] = {}
        made: dict[tuple[int, int], tuple[str, str]] = {}
        name = self.name(self.step)
        for before, after in zip(self.steps, self.steps[1:]):
            for position, array in after.given.items():
                old = before.given.get(position)
                maker = array.maker
                if old is None or old is array or maker is None or all(given is not old for given in maker.given.values()):
                    continue
                path = self.names.argument(name, position)
                places[position] = ("optimizer" if OPTIMIZER.search(path) else "parameter", path)
                made[(maker.computation, array.position)] = places[position]
        for step in self.steps:
            for position, array in step.given.items():
                array.purpose = places.get(position) or ("argument", self.names.argument(name, position))
        for what, _, array in self.told:
            if what == "born" and array.purpose is None:
                if array.maker is None:
                    array.purpose = ("argument", "moved to the card")
                else:
                    of = array.maker.computation
                    array.purpose = made.get((of, array.position)) or ("output", self.name(of))

    def name(self, computation: int) -> str:
        return self.computations[computation].name.decode("ascii", "replace") if 0 <= computation < len(self.computations) else ""

    def lines(self, head: dict[str, Any]) -> Iterator[Any]:
        """The lines of the file."""
        texts: dict[str, int] = {}
        body: list[Any] = []
        temporaries: dict[int, int] = {}
        steps = blocks = 0
        for what, place, of in self.told:
            if len(body) >= MOST_LINES and what == "begins":
                break
            if what == "born":
                blocks += 1
                body.append({"action": "alloc", "addr": place, "size": of.bytes, "stream": 0})
                purpose, owner = of.purpose
                body.append({"own": purpose, "addr": place, "name": texts.setdefault(owner, len(texts))})
            elif what == "gone":
                body.append({"action": "free_completed", "addr": place, "size": of.bytes, "stream": 0})
            elif what == "begins" and place > 0:
                blocks += 1
                at = TEMPORARIES_FROM + blocks * TEMPORARY_AFTER
                temporaries[id(of)] = at
                body.append({"action": "alloc", "addr": at, "size": place, "stream": 0})
                body.append({"own": "temporary", "addr": at, "name": texts.setdefault(self.name(of.computation), len(texts))})
            elif what == "ends":
                if id(of) in temporaries:
                    body.append({"action": "free_completed", "addr": temporaries.pop(id(of)), "size": place, "stream": 0})
                if of.computation == self.step:
                    steps += 1
                    body.append({"mark": "step", "value": steps})
        for text, index in texts.items():
            yield {"name": index, "text": text}
        yield dict(head, history=1, allocator="xla", allocations=blocks)
        yield from body


NAMES = Names()


def write(device: int, computations: list[Any]) -> None:
    """A picture helps; without one the answer is the same."""
    recorded = events() if "torch" not in sys.modules else []  # PyTorch's allocator has its own history, in the same file
    if recorded:
        head = {"device": device, "conf": "", "expandable_segments": False, "fraction": 1, "total_bytes": 0, "free_bytes": 0, "private_pools": False}
        report_file.write_lines("events", Record(recorded, computations, NAMES).lines(head))
