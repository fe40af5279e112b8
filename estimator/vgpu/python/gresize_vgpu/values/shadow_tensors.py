"""Small integer and boolean tensors of the virtual GPU, computed beside it on the CPU.

Kernels do nothing on the virtual GPU, so a mask, a length or a routing index would be zero there. Where such a tensor comes from the host,
or from others that do, the same call is made once more on copies that live on the CPU, and what the program asks later is answered from
them. A tensor is known by its Python object; a write that was not seen shows in its version counter, and the copy is then forgotten.

Nothing here makes a tensor on the device, runs under a dispatch mode or holds a tensor of the program's: the allocator sees the same run.
"""
from __future__ import annotations

import ctypes
import time
import weakref

from ..process import guard, native
from . import intervals
from .policy import MOST_ROUTES

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Iterable, Sequence

    from gresize_types import Tensor, Torch

    from .policy import Policy

# Larger tensors are not followed: they cost time, and what is decided by them is bounded by their size.
MOST_ELEMENTS = 1 << 20
MOST_FLOATS = 1 << 12  # but for those made of constants, such as masks, which may be as large as integers
# Of one number alone, which costs time only where it is reduced.
MOST_EXPANDED = 1 << 24
# All the time that following may cost a process.
MOST_SECONDS = 8.0
MOST_USES = 64
# What comes from other ranks and is larger is no number that a program goes by.
MOST_LEARNT_BYTES = 4096

KNOWN, GUESSED, WORD, NUMBER = 0, 1, 2, 3  # where a copy comes from: the host, a policy, a policy's choice among very many, its whole number without bounds


class Unknown(Exception):
    """A tensor of the call is not followed."""


class Taint:
    """Where the values come from; shared by all views of one copy."""

    __slots__ = ("kind", "made", "expanded", "span")

    def __init__(self, kind: int, made: bool = False, expanded: bool = False, span: Any = None) -> None:
        self.kind = kind
        self.span = span  # between which numbers they lie, whatever they are: ranges.py
        self.made = made  # of constants alone, by the program
        self.expanded = expanded  # one number stands for all elements


def _of_answer(kind, mirror):
    """Whether a word was found is no word: what is computed from it goes by its number, such as how many sequences of a generation are left."""
    return min(kind, GUESSED) if mirror.element_size() == 1 and str(mirror.dtype) == "torch.bool" else kind


class _Ref(weakref.ref):
    __slots__ = ("key",)


class ByTensor:
    """Entries by the Python object of a tensor, each for as long as that lives. An entry has a place for the reference: ref."""

    def __init__(self) -> None:
        self.table = {}

    def keep(self, tensor: Tensor, entry: Any) -> None:
        entry.ref = _Ref(tensor, self._gone)
        entry.ref.key = id(tensor)
        self.table[entry.ref.key] = entry

    def _gone(self, ref):
        entry = self.table.get(ref.key)
        if entry is not None and entry.ref is ref:
            del self.table[ref.key]


class Entry:
    __slots__ = ("ref", "mirror", "offset", "taint")
    ref: _Ref
    mirror: Tensor
    offset: int | None  # of its version counter to that of the copy; None where inference mode keeps none
    taint: Taint


class Plan:
    """A call on copies."""

    __slots__ = ("args", "kwargs", "origins", "constant")
    args: list[Any]
    kwargs: dict[str, Any]

    def __init__(self) -> None:
        self.origins = []  # of each copy that goes in: the address of its storage, and its taint
        self.constant = True  # every tensor is one number, expanded

    def kind(self) -> int:
        return max([taint.kind for _, taint in self.origins] + [KNOWN])

    def made(self) -> bool:
        return all(taint.made for _, taint in self.origins)


class Shadow(ByTensor):
    def __init__(self, torch: Torch, policy: Policy) -> None:
        super().__init__()
        self.torch = torch
        self.policy = policy
        self.tensor = torch.Tensor
        self.on = True
        self.spent = False  # the time for following
        self.stopped = ""  # why following ended early
        self.followed = 0
        self.seconds = 0.0
        self.read_by_python = 0  # above zero while decisions.py reads a number: what it goes by is noted there
        self.silent = 0  # above zero while a tensor is printed, which decides nothing
        self.uses = {}  # how often the program asked for what only a policy could say, by the asking operator

    # -- what is known

    def find(self, tensor: Tensor) -> Any:
        entry = self.table.get(id(tensor))
        if entry is None:
            return None
        if entry.ref() is not tensor or (entry.offset is not None and tensor._version - entry.mirror._version != entry.offset):
            self.table.pop(id(tensor), None)
            return None
        return entry

    def forget(self, value: Any) -> None:
        """Somebody else writes to these tensors."""
        if type(value) in (list, tuple):
            for v in value:
                self.forget(v)
        else:
            self.table.pop(id(value), None)

    def find_view(self, tensor: Tensor) -> Any:
        """The copy of a tensor that C++ made as a view of a known one."""
        entry = self.find(tensor)
        if entry is not None or not self.table:
            return entry
        try:
            storage, size = tensor.untyped_storage().data_ptr(), tensor.dtype
            for other in list(self.table.values()):
                known = other.ref()
                if known is None or known.dtype != size or known.untyped_storage().data_ptr() != storage or self.find(known) is None:
                    continue
                if known.stride() != other.mirror.stride() or known.storage_offset() != other.mirror.storage_offset():
                    continue
                view = Entry()
                view.mirror = other.mirror.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
                view.taint = other.taint
                return view
        except Exception:
            guard.complain()
        return None

    def small(self, tensor: Tensor, made: bool = False) -> bool:
        most = MOST_FLOATS if not made and (tensor.is_floating_point() or tensor.is_complex()) else MOST_ELEMENTS
        return tensor.numel() <= most

    def put(self, tensor: Tensor, mirror: Tensor, taint: Taint | int) -> None:
        """From now on mirror stands for tensor."""
        if type(tensor) is not self.tensor or not tensor.is_cuda or mirror.is_cuda or mirror.dtype != tensor.dtype or mirror.shape != tensor.shape:
            return
        if self.torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return
        entry = Entry()
        entry.mirror = mirror
        entry.offset = None if tensor.is_inference() else tensor._version - mirror._version
        entry.taint = taint if isinstance(taint, Taint) else Taint(taint)
        self.keep(tensor, entry)
        self.followed += 1

    def learn(self, tensor: Tensor) -> None:
        """Take over what the card knows of a small tensor, if it does."""
        size = tensor.numel() * tensor.element_size()
        if not 0 < size <= MOST_LEARNT_BYTES or not tensor.is_contiguous():
            return
        held = ctypes.create_string_buffer(size)
        if native.peek(held, tensor.data_ptr(), size):
            mirror = self.compute(lambda: self.torch.frombuffer(bytearray(held.raw), dtype=tensor.dtype).view(tensor.shape))
            if mirror is not None:
                self.put(tensor, mirror, KNOWN)

    # -- calls

    def touches(self, args: Iterable[Any], kwargs: dict[str, Any]) -> bool:
        table = self.table
        for a in args:
            if id(a) in table:
                return True
            if type(a) in (list, tuple):
                for b in a:
                    if id(b) in table:
                        return True
        if kwargs:
            for a in kwargs.values():
                if id(a) in table:
                    return True
        return False

    def plan(self, args: Sequence[Any], kwargs: dict[str, Any], shapes: bool = False) -> Plan | None:
        """The call on copies; None when a tensor of it is not known. shapes: only the first one's values matter."""
        plan = Plan()
        if shapes and self.find(args[0]) is not None:
            args = [args[0]] + [self._shape(a) for a in args[1:]]
        try:
            plan.args = [self._swap(a, plan) for a in args]
            plan.kwargs = {k: "cpu" if k == "device" and v is not None else self._swap(v, plan) for k, v in kwargs.items()}
        except Unknown:
            return None
        return plan if plan.origins else None

    def _shape(self, value):
        if not isinstance(value, self.tensor):
            return value
        return self.torch.empty((), dtype=value.dtype, device="cpu").expand(value.shape)

    def _swap(self, value, plan):
        if isinstance(value, self.tensor):
            if not value.is_cuda:
                plan.constant = False
                return value
            entry = self.find(value)
            if entry is None:
                raise Unknown
            plan.origins.append((entry.mirror.untyped_storage().data_ptr(), entry.taint))
            if plan.constant and any(entry.mirror.stride()):
                plan.constant = False
            return entry.mirror
        if type(value) in (list, tuple):
            return type(value)([self._swap(v, plan) for v in value])
        if type(value) is self.torch.device and value.type == "cuda":
            return self.torch.device("cpu")
        if type(value) is str and value.startswith("cuda"):
            return "cpu"
        return value

    def compute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call function on the CPU to follow a tensor, as long as there is time for that; None when it cannot be."""
        if self.spent:
            return None
        begin = time.thread_time()  # not the time of others on a busy machine
        try:
            return self.answer(function, *args, **kwargs)
        finally:
            self.seconds += time.thread_time() - begin
            if self.seconds > MOST_SECONDS:
                self.spend()

    def answer(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call function on the CPU, without a trace in the program's own state; None when it cannot be."""
        if not self.on:
            return None
        torch = self.torch
        try:
            with torch.inference_mode(False), torch.no_grad():
                return function(*args, **kwargs)
        except Exception:  # such as an index that a policy put out of range
            guard.complain()
            return None

    def spend(self) -> None:
        """Follow nothing from now on: the policy answers what was known."""
        self.spent = True
        self.stopped = self.stopped or "time"
        self.table.clear()

    def stop(self, why: str) -> None:
        """Answer nothing from now on: what was known is not, and the sizes of the tensors bound it."""
        self.on = False
        native.let_checks_pass(False)
        self.stopped = self.stopped or why
        self.table.clear()

    def follow(self, original: Callable[..., Any], plan: Plan, args: tuple[Any, ...], result: Any, constant: bool = False, rule: Callable[..., Any] | None = None) -> None:
        """Make the planned call, and keep what it gave for what the program got. rule: of intervals.py, between which numbers that lies."""
        if not isinstance(result, (self.tensor, tuple, list)):
            return
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if constant and plan.constant and type(result) is self.tensor:
            self._follow_constant(original, plan, result)
            return
        made = plan.made()
        if any(isinstance(t, self.tensor) and not self.small(t, made) for t in outputs):
            return
        for a in plan.args:
            if isinstance(a, self.tensor) and not self.small(a, made) and any(a.stride()):
                return
        mirrors = self.compute(original, *plan.args, **plan.kwargs)
        span = self.compute(intervals.after, self, rule, args, plan, mirrors) if rule is not None and plan.kind() else None
        self.pair(outputs, mirrors, plan, result is args[0] if args else False, span)

    def pair(self, outputs: Any, mirrors: Any, plan: Plan, in_place: bool = False, span: Any = None) -> None:
        if mirrors is None:
            return
        mirrors = list(mirrors) if isinstance(mirrors, (tuple, list)) else [mirrors]
        if len(mirrors) != len(outputs):
            return
        kind = plan.kind()
        for tensor, mirror in zip(outputs, mirrors):
            if not isinstance(mirror, self.tensor) or not isinstance(tensor, self.tensor):
                continue
            if not tensor.is_cuda:
                continue
            taint = self._taint_of(mirror, plan, kind, span)
            if in_place or "out" in plan.kwargs:
                taint.kind = max(taint.kind, kind)
            if "out" in plan.kwargs:
                taint.span = None
            self.put(tensor, mirror, taint)

    def _taint_of(self, mirror, plan, kind, span):
        """A view of a copy shares its origin; what is new has the weakest of those that it was made of."""
        place = mirror.untyped_storage().data_ptr()
        for origin, taint in plan.origins:
            if origin == place and place:
                return taint
        return Taint(_of_answer(kind, mirror), plan.made(), span=span)

    def _follow_constant(self, original, plan, result):
        """All elements are the same, however many there are."""
        value = self.answer(original, *[a[(0,) * a.dim()] for a in plan.args if isinstance(a, self.tensor)])
        if value is not None and value.dim() == 0:
            self.put(result, value.expand(result.shape), Taint(_of_answer(plan.kind(), value), plan.made(), True))

    # -- what a policy says

    def guess(self, tensor: Tensor, make: Callable[[], Tensor], kind: int = GUESSED, span: Any = None) -> None:
        """make gives what a policy says that tensor holds; span, between which numbers that lies in truth."""
        if not self.on or type(tensor) is not self.tensor or not tensor.is_cuda or not self.small(tensor):
            return
        mirror = self.compute(make)
        if mirror is not None:
            self.put(tensor, mirror.to(tensor.dtype), Taint(KNOWN if self.policy.healthy else kind, span=span and span + (tensor.dtype,)))

    def same(self, tensor: Tensor, value: Any) -> None:
        """All elements are value, however many there are."""
        if self.on and type(tensor) is self.tensor and tensor.is_cuda:
            one = self.torch.full((), value, dtype=self.torch.bool, device="cpu")
            self.put(tensor, one.expand(tensor.shape), Taint(KNOWN, True, True))

    def fill(self, tensor: Tensor, value: Any) -> None:
        """The program made a tensor of one number: a large one costs nothing until it is written to."""
        if self.small(tensor):
            mirror = self.compute(lambda: self.torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu").fill_(value))
        elif tensor.numel() > MOST_EXPANDED:
            return
        else:
            mirror = self.compute(lambda: self.torch.full((), value, dtype=tensor.dtype, device="cpu").expand(tensor.shape))
        if mirror is not None:
            self.put(tensor, mirror, Taint(KNOWN, True, not self.small(tensor)))

    def writable(self, tensor: Tensor, plan: Plan) -> bool:
        """Give the first tensor of a call that writes to it a copy with a place for each element; whether it has one."""
        place, taint = plan.origins[0]
        if not taint.expanded:
            return True
        if not self.small(tensor, taint.made):
            return False
        # Views that were taken before keep the one number, and are forgotten for their version.
        mirror = self.compute(lambda: self.torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu").copy_(plan.args[0]))
        if mirror is None:
            return False
        plan.args[0] = mirror
        plan.origins[0] = (mirror.untyped_storage().data_ptr(), Taint(taint.kind, taint.made))
        return True

    def kind_of(self, classes: int) -> int:
        return WORD if classes > MOST_ROUTES else GUESSED

    def use(self, name: str) -> None:
        """The program went by what a policy said."""
        if not self.silent and (name in self.uses or len(self.uses) < MOST_USES):
            self.uses[name] = self.uses.get(name, 0) + 1

    # -- answers to what C++ asks

    def answering(self, values: Any) -> _Answering:
        return _Answering(self, values)

    def showing(self, mirrors: Any) -> _Showing:
        return _Showing(mirrors)

    def report(self) -> dict[str, Any]:
        return {
            "policy": self.policy.side,
            "followed": self.followed,
            "seconds": round(self.seconds, 6),
            "stopped": self.stopped,
            "uses": self.uses,
        }


class _Answering:
    """While it is entered, small reads of this thread give these numbers in turn, and the last one from then on."""

    __slots__ = ("give", "values")

    def __init__(self, shadow, values):
        library = native.library()
        self.give = library.gresize_vgpu_answer if library is not None else None
        self.values = values

    def _say(self, values):
        if self.give is not None:
            self.give((ctypes.c_uint64 * max(len(values), 1))(*[int(v) & 0xFFFFFFFFFFFFFFFF for v in values]), len(values))

    def __enter__(self):
        self._say(self.values)

    def __exit__(self, *ignored):
        self._say(())


class _Showing:
    """While it is entered, reads of this thread that are as large as these copies give them in turn, and round again."""

    __slots__ = ("give", "copies")

    def __init__(self, mirrors):
        library = native.library()
        self.give = library.gresize_vgpu_answer_arrays if library is not None else None
        self.copies = [m.contiguous() for m in mirrors if m.numel()]

    def _say(self, copies):
        if self.give is not None:
            n = len(copies)
            at = (ctypes.c_void_p * max(n, 1))(*[c.data_ptr() for c in copies])
            self.give(at, (ctypes.c_uint64 * max(n, 1))(*[c.numel() * c.element_size() for c in copies]), n)

    def __enter__(self):
        self._say(self.copies)

    def __exit__(self, *ignored):
        self._say(())
