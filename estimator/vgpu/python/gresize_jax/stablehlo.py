"""Which small whole numbers that a computation gives follow from those that it is given, and how: a step that is counted on the card, a size, a test of either.

XLA's compiler is given StableHLO. From each output of few whole numbers its operations are followed back. An output that comes to an end at arguments and
constants alone has a plan: what numpy has to do for the same numbers. One that meets anything else, such as a float, has none.
"""
from __future__ import annotations

import functools
import json
import re
import sys

from . import pjrt

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Sequence

# What is asked of one output, and how many operations an execution may come to, with the turns of its loops.
MOST_ASKED, MOST_EVALUATED = 4000, 20000
TENSOR = re.compile(r"tensor<((?:\d+x)*)(i1|u?i(?:8|16|32|64))>")
SAME_ON_ONE_CARD = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")
UFUNCS = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "maximum": "maximum",
    "minimum": "minimum",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "not": "invert",
    "negate": "negative",
    "abs": "absolute",
    "sign": "sign",
}
REDUCED_BY = ("add", "maximum", "minimum", "and", "or")
COMPARISONS = {"EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal"}


class NotFollowed(Exception):
    """What is asked for depends on more than few whole numbers, or on an operation that has no like here."""


class Plan:
    """Operations in an order in which each finds what it needs: operands are the places of earlier ones. given: number of an argument -> its place."""

    def __init__(self) -> None:
        self.operations: list[tuple[Callable[..., Any] | Loop | None, tuple[int, ...]]] = []
        self.given: dict[int, int] = {}
        self.results: list[int] = []

    def add(self, function: Callable[..., Any] | Loop | None, *operands: int) -> int:
        self.operations.append((function, operands))
        return len(self.operations) - 1

    def argument(self, number: int) -> int:
        if number not in self.given:
            self.given[number] = self.add(None)
        return self.given[number]

    def evaluate(self, given: dict[int, Any], left: list[int]) -> list[Any]:
        """given are the values of the arguments; left, how many operations there may still be."""
        left[0] -= len(self.operations)
        if left[0] < 0:
            raise NotFollowed
        values: list[Any] = [None] * len(self.operations)
        for number, at in self.given.items():
            values[at] = given[number]
        for at, (function, operands) in enumerate(self.operations):
            if function is not None:
                found = [values[operand] for operand in operands]
                values[at] = function.go_round(found, left) if isinstance(function, Loop) else function(*found)
        return [values[at] for at in self.results]


class Loop:
    """A while loop, as far as its whole numbers go. carried: their numbers, and behind them those of what the loop takes from outside."""

    def __init__(self, wanted: int, carried: Sequence[int], condition: Plan, body: Plan) -> None:
        self.wanted, self.carried, self.condition, self.body = wanted, carried, condition, body

    def go_round(self, first: list[Any], left: list[int]) -> Any:
        values = dict(zip(self.carried, first))
        while self.condition.evaluate(values, left)[0]:
            values.update(zip(self.carried, self.body.evaluate(values, left)))
        return values[self.wanted]


class Output:
    """A result of a computation that has a plan. given: the numbers of the arguments that it follows from."""

    def __init__(self, numpy: Any, plan: Plan, kinds: dict[int, tuple[tuple[int, ...], Any]], kind: tuple[tuple[int, ...], Any]) -> None:
        self.numpy, self.plan, self.kinds, self.kind = numpy, plan, kinds, kind
        self.given = sorted(kinds)
        # The arguments that a single whole number may be one more than: those of its own type.
        self.counted_from = [n for n in self.given if kinds[n][1] == kind[1] and self._is_number(kinds[n]) and self._is_number(kind)]

    def _is_number(self, kind):
        shape, of = kind
        return of.kind in "iu" and self.numpy.prod(shape, dtype=int) == 1

    def fits(self, number: int) -> bool:
        limits = self.numpy.iinfo(self.kind[1])
        return bool(limits.min <= number <= limits.max)

    def packed(self, number: int) -> bytes:
        return bytes(self.numpy.array(number, dtype=self.kind[1]).tobytes())

    def unpacked(self, value: bytes) -> int:
        return int(self.numpy.frombuffer(value, dtype=self.kind[1])[0])

    def value(self, given: dict[int, bytes]) -> bytes | None:
        """None where the arguments are others than those that were compiled for, or the way to it is too long."""
        numpy = self.numpy
        values = {}
        for number, (shape, kind) in self.kinds.items():
            array = numpy.frombuffer(given[number], dtype=kind)
            if array.size != numpy.prod(shape, dtype=int):
                return None
            values[number] = array.reshape(shape)
        shape, kind = self.kind
        with numpy.errstate(all="ignore"):
            try:
                result = self.plan.evaluate(values, [MOST_EVALUATED])[0]
            except (NotFollowed, TypeError, ValueError, IndexError):  # numpy may refuse what XLA defines
                return None
        return bytes(numpy.ascontiguousarray(numpy.broadcast_to(result, shape), dtype=kind).tobytes())


class Module:
    """What is handed to XLA's compiler."""

    def __init__(self, module: Any) -> None:
        self.ir, self.numpy = sys.modules["jaxlib.mlir.ir"], sys.modules["numpy"]
        self.functions = {_text(operation.attributes["sym_name"]): operation for operation in module.body.operations if "sym_name" in operation.attributes}
        counts = module.operation.attributes
        self.replicas, self.partitions = (_numbers(counts[name])[0] if name in counts else 1 for name in ("mhlo.num_replicas", "mhlo.num_partitions"))
        self.asked = 0

    def outputs(self) -> dict[int, Output]:
        """By their numbers, those that have a plan."""
        found: dict[int, Output] = {}
        main = self.functions.get("main")
        if main is None or self.replicas != 1:
            return found
        block = main.regions[0].blocks[0]
        for number, result in enumerate(_last(block).operands):
            self.asked = 0
            plan = Plan()
            try:
                plan.results.append(_Scope(self, plan, block, plan.argument).place(result))
                found[number] = Output(self.numpy, plan, {n: self.kind(block.arguments[n]) for n in plan.given}, self.kind(result))
            except (NotFollowed, RecursionError):
                pass
        return found

    def kind(self, value: Any) -> tuple[tuple[int, ...], Any]:
        """The shape and the type of few whole numbers. Of several cards each may have a part of an array, and all have the same single number."""
        found = TENSOR.fullmatch(str(value.type))
        if found is None:
            raise NotFollowed
        shape = tuple(int(n) for n in found[1].split("x")[:-1])
        kind = self.numpy.dtype(re.sub("^(u?)i", r"\1int", found[2]) if found[2] != "i1" else "bool")
        if self.numpy.prod(shape, dtype=int) * kind.itemsize > pjrt.KNOWN_BYTES or shape and self.partitions != 1:
            raise NotFollowed
        return shape, kind


class _Scope:
    """A block whose values a plan computes. argument says where the plan has the block's own arguments; outer is the scope around a loop."""

    def __init__(self, module: Module, plan: Plan, block: Any, argument: Callable[[int], int], outer: _Scope | None = None) -> None:
        self.module, self.plan, self.block, self.argument, self.outer = module, plan, block, argument, outer
        self.found: dict[tuple[Any, int], int] = {}
        self.captured: list[Any] = []

    def place(self, value: Any) -> int:
        """Where the plan has a value, of which it is made here if it has not been yet."""
        module = self.module
        module.asked += 1
        if module.asked > MOST_ASKED:
            raise NotFollowed
        shape, kind = module.kind(value)
        owner = value.owner
        if isinstance(owner, module.ir.Block):
            number = module.ir.BlockArgument(value).arg_number
            return self.argument(number) if owner == self.block else self._from_outside(value)
        owner = getattr(owner, "operation", owner)
        number = module.ir.OpResult(value).result_number
        if (owner, number) not in self.found:
            self.found[(owner, number)] = self._made(owner, number, shape, kind)
        return self.found[(owner, number)]

    def _from_outside(self, value):
        if self.outer is None:
            raise NotFollowed
        if value not in self.captured:
            self.captured.append(value)
        return self.plan.argument(-1 - self.captured.index(value))

    def _made(self, operation, number, shape, kind):
        dialect, _, name = operation.name.partition(".")
        make = getattr(self, "_" + name, None) if dialect in ("stablehlo", "func") and name in _MADE else None
        if make is not None:
            return make(operation, number)
        simple = _simple(self.module.numpy, operation, name, shape, kind) if dialect == "stablehlo" else None
        if simple is None:
            raise NotFollowed
        return self.plan.add(simple, *[self.place(operand) for operand in operation.operands])

    def _call(self, operation, number):
        block = self.module.functions[str(operation.attributes["callee"]).lstrip("@").strip('"')].regions[0].blocks[0]
        called = _Scope(self.module, self.plan, block, lambda argument: self.place(operation.operands[argument]))
        return called.place(_last(block).operands[number])

    def _custom_call(self, operation, number):
        if _text(operation.attributes["call_target_name"]) not in SAME_ON_ONE_CARD:
            raise NotFollowed
        return self.place(operation.operands[0])

    def _optimization_barrier(self, operation, number):
        return self.place(operation.operands[number])

    def _case(self, operation, number):
        return self._chosen(operation, number, lambda at, *found: found[int(at) if 0 <= at < len(found) else -1])

    def _if(self, operation, number):
        return self._chosen(operation, number, lambda test, yes, no: yes if test else no)

    def _chosen(self, operation, number, choose):
        branches = [self.place(_last(region.blocks[0]).operands[number]) for region in operation.regions]
        return self.plan.add(choose, self.place(operation.operands[0]), *branches)

    def _while(self, operation, number):
        needed = {number}
        while True:
            condition, body = (self._region(region, operation) for region in operation.regions)
            carried = sorted(needed)
            captured: list[Any] = []
            for scope, wanted in ((condition, [0]), (body, carried)):
                scope.captured = captured
                scope.plan.results = [scope.place(_last(scope.block).operands[n]) for n in wanted]
            more = {n for scope in (condition, body) for n in scope.plan.given if n >= 0}
            if more <= needed:
                break
            needed |= more
        begin = [self.place(operation.operands[n]) for n in carried] + [self.place(value) for value in captured]
        return self.plan.add(Loop(number, carried + [-1 - n for n in range(len(captured))], condition.plan, body.plan), *begin)

    def _region(self, region, operation):
        plan = Plan()
        return _Scope(self.module, plan, region.blocks[0], plan.argument, self)


_MADE = ("call", "custom_call", "optimization_barrier", "case", "if", "while")


def _simple(numpy, operation, name, shape, kind):
    """What numpy does in the place of an operation on whole numbers, None where it has no like here. Results have the type that StableHLO says."""
    attributes = operation.attributes

    def numbers(attribute):
        return _numbers(attributes[attribute])

    if name in UFUNCS:
        return getattr(numpy, UFUNCS[name])
    if name == "compare":
        return getattr(numpy, COMPARISONS[re.findall(r"\b[A-Z]{2}\b", str(attributes["comparison_direction"]))[0]])
    if name == "constant":
        constant = numpy.broadcast_to(numpy.array(_constant(attributes["value"]), dtype=kind), shape)
        return lambda: constant
    if name == "iota":
        along = numbers("iota_dimension")[0]
        counted = numpy.broadcast_to(numpy.arange(shape[along], dtype=kind).reshape([-1 if axis == along else 1 for axis in range(len(shape))]), shape)
        return lambda: counted
    if name == "convert":
        return lambda value: numpy.asarray(value).astype(kind)
    if name == "reshape":
        return lambda value: numpy.reshape(value, shape)
    if name == "broadcast_in_dim":
        axes = numbers("broadcast_dimensions")
        return lambda value: numpy.broadcast_to(numpy.reshape(value, [numpy.shape(value)[axes.index(axis)] if axis in axes else 1 for axis in range(len(shape))]), shape)
    if name == "transpose":
        return functools.partial(lambda axes, value: numpy.transpose(value, axes), numbers("permutation"))
    if name == "concatenate":
        return functools.partial(lambda along, *values: numpy.concatenate(values, along), numbers("dimension")[0])
    if name == "slice":
        parts = tuple(slice(*ends) for ends in zip(numbers("start_indices"), numbers("limit_indices"), numbers("strides")))
        return lambda value: value[parts]
    if name == "dynamic_slice":
        return lambda value, *starts: value[_window(numpy.shape(value), shape, starts)]
    if name == "dynamic_update_slice":
        return functools.partial(_updated, numpy)
    if name == "select":
        return numpy.where
    if name == "clamp":
        return lambda least, value, most: numpy.minimum(numpy.maximum(value, least), most)
    if name == "reduce":
        return _reduced(numpy, operation, tuple(numbers("dimensions")), kind)
    if name == "reverse":
        return functools.partial(lambda axes, value: numpy.flip(value, axes), tuple(numbers("dimensions")))
    if name in ("divide", "remainder"):
        return functools.partial(_divided, numpy, kind, name == "remainder")
    return None


def _window(whole, part, starts):
    """Where a part of that shape lies; one that would go beyond the end is moved back, as StableHLO has it."""
    begins = [min(max(int(start), 0), of - size) for start, of, size in zip(starts, whole, part)]
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, part))


def _updated(numpy, value, part, *starts):
    changed = numpy.array(value)
    changed[_window(changed.shape, numpy.shape(part), starts)] = part
    return changed


def _reduced(numpy, operation, axes, kind):
    """By one operation of two numbers."""
    by = [inner.operation.name for inner in operation.regions[0].blocks[0].operations]
    name = by[0].partition(".")[2]
    if len(by) != 2 or name not in REDUCED_BY or len(operation.operands) != 2:
        return None
    function = getattr(numpy, UFUNCS[name])
    return lambda value, first: function(first, function.reduce(value, axis=axes, dtype=kind))


def _divided(numpy, kind, remainder, value, by):
    """Towards zero; by zero it gives all bits, and the value itself as the remainder."""
    zero = by == 0
    rest = numpy.where(zero, value, numpy.fmod(value, numpy.where(zero, kind.type(1), by)))
    if remainder:
        return rest.astype(kind)
    return numpy.where(zero, numpy.invert(kind.type(0)), (value - rest) // numpy.where(zero, kind.type(1), by)).astype(kind)


def _last(block):
    """The operation that gives a block's results."""
    return list(block.operations)[-1].operation


def _text(attribute):
    return str(attribute).strip('"')


def _numbers(attribute):
    """Of a list as of one: array<i64: 0, 1>, dense<[0, 1]> : tensor<2xi64>, dense<1> : tensor<2xi64>, 4 : i64."""
    text = str(attribute)
    numbers = [int(n) for n in re.findall(r"-?\d+", re.sub(r"^(array<i\d+:?|dense<)|: (tensor<.*>|i\d+)$", "", text))]
    alike = re.search(r": tensor<(\d+)xi", text)
    return numbers * int(alike[1]) if alike is not None and len(numbers) == 1 else numbers


def _constant(attribute):
    """dense<[1, 2]> : tensor<2xi32>; one that is said in bytes is longer than what is followed."""
    found = re.match(r"dense<([-\d\s,\[\]]+|true|false|[\[\]\s,truefalse]+)> :", str(attribute))
    if found is None:
        raise NotFollowed
    return json.loads(found[1])
