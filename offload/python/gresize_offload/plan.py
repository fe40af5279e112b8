"""Reads a plan. It may come from a stranger: it can be refused, and do nothing else."""
from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Sequence

SCHEMA = "gresize.offload/1"
MOST_BYTES = 64 << 20
MOST_ITERATIONS = 64
MOST_TENSORS = 1 << 20
MOST_REGIONS = 8
MOST_NAME = 200

# The keys of a plan, which are offload.Plan's: what one reader passes over the other may obey.
KEYS = {"schema", "torch_version", "gpu", "regions", "target_bytes", "allocator_bytes", "host_bytes", "expandable_segments", "base_ns", "total_ns", "moved_bytes", "slowdown", "iterations", "state"}
ITERATION_KEYS = {"prefixes", "moves"}
MOVE_KEYS = {"save", "bytes", "gone", "back"}
STATE_KEYS = {"state", "bytes", "gone", "back"}


class Refused(Exception):
    pass


class Move:
    """A storage that goes to host memory: after which saved tensor, by which event it has left, and at which event it begins to come back."""

    __slots__ = ("save", "bytes", "gone", "back")

    def __init__(self, save: int, size: int, gone: int, back: int) -> None:
        self.save, self.bytes, self.gone, self.back = save, size, gone, back


class StateMove:
    """A tensor of an optimizer's state, by its number, that leaves after a step: by which event, and at which it begins to come back; -1: before the next step."""

    __slots__ = ("state", "bytes", "gone", "back")

    def __init__(self, state: int, size: int, gone: int, back: int) -> None:
        self.state, self.bytes, self.gone, self.back = state, size, gone, back


class Iteration:
    """One sequence of saved tensors. prefixes names each by all up to it; moves are by the tensor with which the storage was first saved."""

    __slots__ = ("prefixes", "moves")

    def __init__(self, prefixes: list[int], moves: dict[int, Move]) -> None:
        self.prefixes, self.moves = prefixes, moves


class Plan:
    __slots__ = ("iterations", "host_bytes", "target_bytes", "torch_version", "state", "regions", "gpu")

    def __init__(self, iterations: list[Iteration], host_bytes: int, target_bytes: int, torch_version: str, state: Sequence[StateMove] = (), regions: Sequence[int] = (), gpu: str = "") -> None:
        self.iterations, self.host_bytes, self.target_bytes, self.torch_version, self.state = iterations, host_bytes, target_bytes, torch_version, state
        self.regions, self.gpu = regions, gpu

    def moves(self) -> bool:
        """Whether anything leaves the card."""
        return bool(self.state) or any(iteration.moves for iteration in self.iterations)


def _number(value, name, least=0, most=1 << 48):
    if type(value) is not int or not least <= value <= most:
        raise Refused("%s: %.40r is no number from %d to %d" % (name, value, least, most))
    return value


def _get(value, key, kind, name):
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise Refused("%s.%s is missing or of another kind" % (name, key))
    return found


def _name(value, key):
    found = _get(value, key, str, "plan")
    if len(found) > MOST_NAME or not found.isprintable():
        raise Refused("plan.%s: %s is no name of %d letters at most" % (key, ascii(found)[:80], MOST_NAME))
    return found


def _once(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("a key stands twice among %s" % sorted(key[:40] for key, _ in pairs)[:12])
    return found


def _only(value, keys, name):
    if not isinstance(value, dict):
        raise Refused("%s is of another kind" % name)
    for key in value:
        if key not in keys:
            raise Refused("%s.%.40s: no key of a plan" % (name, key))


def _iteration(value, name):
    _only(value, ITERATION_KEYS, name)
    prefixes = [_number(v, name + ".prefixes", 0, 0xFFFFFFFF) for v in _get(value, "prefixes", list, name)]
    if not 0 < len(prefixes) <= MOST_TENSORS:
        raise Refused("%s.prefixes: %d tensors" % (name, len(prefixes)))
    moves = {}
    for m in _get(value, "moves", list, name):
        where = name + ".moves"
        _only(m, MOVE_KEYS, where)
        save = _number(m.get("save"), where + ".save", 0, len(prefixes) - 1)
        if save in moves:
            raise Refused("%s: tensor %d twice" % (where, save))
        gone, back = _number(m.get("gone"), where + ".gone"), _number(m.get("back"), where + ".back")
        if back < gone:
            raise Refused("%s: tensor %d is back before it has left" % (where, save))
        moves[save] = Move(save, _number(m.get("bytes"), where + ".bytes", 1), gone, back)
    return Iteration(prefixes, moves)


def _state(value):
    moves = {}
    for m in value if isinstance(value, list) else []:
        _only(m, STATE_KEYS, "plan.state")
        number = _number(m.get("state"), "plan.state.state", 0, MOST_TENSORS)
        gone, back = _number(m.get("gone"), "plan.state.gone"), _number(m.get("back"), "plan.state.back", -1)
        if number in moves or -1 < back < gone:
            raise Refused("plan.state: tensor %d twice, or back before it has left" % number)
        moves[number] = StateMove(number, _number(m.get("bytes"), "plan.state.bytes", 1), gone, back)
    return list(moves.values())


def _regions(value):
    regions = [_number(v, "plan.regions", 1) for v in (value if isinstance(value, list) else [])]
    if len(regions) > MOST_REGIONS:
        raise Refused("plan.regions: %d of them" % len(regions))
    return regions


def parse(text: str) -> Plan:
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as e:
        raise Refused("it is no JSON: %s" % e) from None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise Refused("it is no %s" % SCHEMA)
    _only(value, KEYS, "plan")
    iterations = _get(value, "iterations", list, "plan")
    if not 0 < len(iterations) <= MOST_ITERATIONS:
        raise Refused("plan.iterations: %d of them" % len(iterations))
    return Plan(
        [_iteration(v, "plan.iterations[%d]" % i) for i, v in enumerate(iterations)],
        _number(value.get("host_bytes"), "plan.host_bytes"),
        _number(value.get("target_bytes"), "plan.target_bytes", 1),
        _name(value, "torch_version"),
        _state(value.get("state")),
        _regions(value.get("regions")),
        _name(value, "gpu") if "gpu" in value else "",
    )


def read(path: str) -> Plan:
    with open(path, "rb") as f:
        data = f.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Refused("%s: more than %d bytes" % (path, MOST_BYTES))
    try:
        return parse(data.decode())
    except (Refused, UnicodeDecodeError) as e:
        raise Refused("%s: %s" % (path, e)) from None
