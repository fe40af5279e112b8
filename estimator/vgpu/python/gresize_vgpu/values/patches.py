"""Which calls of PyTorch are followed on the CPU, which need a policy, and which read."""
from __future__ import annotations

import functools
import sys
import types

from ..process import guard, native
from ..program import own_lists
from . import device_to_host, dynamic_shapes, guesses, intervals, length_reads, sequence_slots, sparse, validation
from .decisions import FETCHED, Decisions
from .operators import DRAWN, OPERATORS, PROPERTY
from .policy import Policy
from .shadow_tensors import GUESSED, KNOWN, MOST_ELEMENTS, NUMBER, WORD, Shadow, Taint
from .synthetic_floats import Plausible

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Sequence

    from gresize_types import Tensor, Torch

    from .operators import Operator
    from .shadow_tensors import Entry

# The first argument of these is written by other ranks; of those that are true it has arrived when they return, unless they are gathered for a common start.
RECEIVED = {
    "all_reduce": True,
    "broadcast": True,
    "all_gather": True,
    "all_gather_into_tensor": True,
    "_all_gather_base": True,
    "reduce": False,
    "reduce_scatter": False,
    "reduce_scatter_tensor": False,
    "_reduce_scatter_base": False,
    "scatter": False,
    "all_to_all": False,
    "all_to_all_single": False,
    "recv": False,
    "irecv": False,
}
# In the place of an original that the owner had from its base class.
INHERITED = object()


def _traced(original):
    """What Dynamo traces in the place of a follower that somebody holds, as by `from torch import cat`: it wants a function of Python."""
    return original if isinstance(original, types.FunctionType) else lambda *args, **kwargs: original(*args, **kwargs)


class Calls:
    """Puts the followers in the place of PyTorch's functions and methods, and takes them out again."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.shadow = Shadow(torch, Policy(torch))
        self.plausible = Plausible(self)
        self.sparse = sparse.Sparse(self)
        self.rows = own_lists.Rows()
        self.replaced = []
        self.aside: dict[tuple[Any, str], Any] | None = None  # the followers, while they are not in their places
        self.integers = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name, None)
        if not callable(original) and not hasattr(original, "__get__"):  # torch.float is no function
            return
        follower = make(original)
        self._tell_script_compiler(original, follower)
        self.put(owner, name, follower)

    def put(self, owner: Any, name: str, follower: Any) -> None:
        """Remembers whether the owner had the name itself: a method put back on Tensor that its base class has would look overridden."""
        self.replaced.append((owner, name, vars(owner).get(name, INHERITED)))
        if isinstance(follower, types.FunctionType):
            original = getattr(owner, name)
            follower._torchdynamo_inline = getattr(original, "_torchdynamo_inline", None) or _traced(original)  # type: ignore[attr-defined]
            # It is pickled by where it is found, as the original is.
            follower.__module__, follower.__qualname__ = (owner.__name__, name) if isinstance(owner, types.ModuleType) else (owner.__module__, owner.__qualname__ + "." + name)
        setattr(owner, name, follower)

    @staticmethod
    def _tell_script_compiler(original, follower):
        """TorchScript knows PyTorch's functions by their identity; of any other it wants to read the source."""
        builtins: Any = sys.modules.get("torch.jit._builtins")
        try:
            operator = builtins._find_builtin(original)
            if operator is not None:
                builtins._register_builtin(follower, operator)
        except Exception:  # a release that keeps this elsewhere
            guard.complain()

    def both(self, name: str, make: Callable[..., Any]) -> None:
        for owner in (self.torch, self.torch.Tensor):
            if name.startswith("__") and owner is self.torch:
                continue
            self.replace(owner, name, make)

    def _restore(self):
        for owner, name, original in reversed(self.replaced):
            if original is INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def forget(self, owner: Any) -> None:
        """An owner gets its own functions back for good; they were its own, and none that it inherits."""
        for place, name, original in reversed(self.replaced):
            if place is owner:
                setattr(owner, name, original)
        self.replaced = [row for row in self.replaced if row[0] is not owner]
        if self.aside is not None:
            self.aside = {place: follower for place, follower in self.aside.items() if place[0] is not owner}

    def step_aside(self) -> None:
        """A compiler wants PyTorch's own functions."""
        if self.aside is None:
            self.aside = {(owner, name): vars(owner)[name] for owner, name, _ in self.replaced}
            self._restore()

    def step_back(self) -> None:
        if self.aside is not None:
            for (owner, name), follower in self.aside.items():
                setattr(owner, name, follower)
            self.aside = None
            sequence_slots.no_sequence(self.torch)

    def without(self, function: Callable[..., Any]) -> Any:
        """Call function while PyTorch's own functions are in their places."""
        self.step_aside()
        try:
            return function()
        finally:
            self.step_back()

    def is_integer(self, tensor: Tensor) -> bool:
        return tensor.dtype in self.integers

    # -- followers

    def followed(self, operator: Operator) -> Callable[..., Any]:
        shadow, table = self.shadow, self.shadow.table
        sequences = (list, tuple)
        guess = self.guessing(operator.guess) if operator.guess is not None else None
        shapes, word_mask = operator.shape_of_others, operator.compares

        def make(original):
            @functools.wraps(original)
            def call(*args, **kwargs):
                plan = None
                if table:
                    for a in args:
                        if id(a) in table or type(a) in sequences:
                            break
                    else:
                        if not kwargs and word_mask is None:
                            result = original(*args)
                            if guess is not None:
                                guess(result, args, kwargs)
                            return result
                    if shadow.touches(args, kwargs):
                        plan = shadow.plan(args, kwargs, shapes)
                result = original(*args, **kwargs)
                if word_mask is not None and args[0] is (args[1] if len(args) > 1 else None):
                    shadow.same(result, word_mask)  # a number is itself, unless it is none
                elif plan is None:
                    if guess is not None:
                        guess(result, args, kwargs)
                elif word_mask is not None and (plan.kind() == WORD or plan.kind() == GUESSED and self.in_pairs(args)):
                    shadow.guess(result, lambda: shadow.policy.mask(result.shape, word_mask))
                else:
                    shadow.follow(original, plan, args, result, operator.one_number, operator.span)
                return result

            return call

        return make

    def in_pairs(self, args: Sequence[Any]) -> bool:
        """Whether each number is held against one of its own, as a prediction against a label: how many are alike no choice of a policy says."""
        one, other = args if len(args) == 2 else (None, None)
        return isinstance(one, self.torch.Tensor) and isinstance(other, self.torch.Tensor) and one.shape == other.shape and one.numel() > 1

    def guessing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A guess that looks only at tensors of this card."""
        tensor = self.torch.Tensor

        def guess(result, args, kwargs):
            first = result[-1] if isinstance(result, tuple) and result else result
            if self.shadow.on and type(first) is tensor and first.is_cuda and self.is_integer(first):
                try:
                    function(self, first, args, kwargs)
                except Exception:
                    guard.complain()

        return guess

    def _tell_default_device(self):
        """`with torch.device(...)` knows the functions that make tensors by their identity, and remembers those of its first use."""
        try:
            from torch.utils._device import _device_constructors

            _device_constructors()
        except Exception:  # a release that keeps this elsewhere
            guard.complain()

    def install(self) -> None:
        self._tell_default_device()
        tensor = self.torch.Tensor
        for operator in OPERATORS:
            for name in operator.names:
                if operator.again:
                    self.both(name, self.followed(operator))
                elif operator.healthy is not None:
                    self.both(name, self.healthy(operator.healthy))
            for name in operator.writes:
                self.replace(tensor, name, self.in_place)
        self.replace(tensor, "copy_", self.copied)
        for name in ("to", "cuda", "cpu"):
            self.replace(tensor, name, self.moved)
        self.replace(tensor, "__deepcopy__", self.deep)
        for name in ("T", "mT"):
            self.replace(tensor, name, lambda original: property(self.followed(PROPERTY)(original.__get__)))
        self._install_factories()
        dynamic_shapes.install(self)
        self.sparse.install(self)
        length_reads.install(self)
        self.plausible.install(OPERATORS)
        device_to_host.install(self)
        self._install_scaler()
        self._install_collectives()
        self._install_validation()
        sequence_slots.no_sequence(self.torch)

    def in_place(self, original: Callable[..., Any]) -> Callable[..., Any]:
        shadow, table = self.shadow, self.shadow.table

        @functools.wraps(original)
        def call(*args, **kwargs):
            plan = shadow.plan(args, kwargs) if table and args and id(args[0]) in table else None
            if plan is not None and not shadow.writable(args[0], plan):
                shadow.forget(args[0])
                plan = None
            result = original(*args, **kwargs)
            if plan is not None:
                if shadow.compute(lambda: (original(*plan.args, **plan.kwargs), True)):  # a call that writes may return nothing
                    self._written(args[0], plan)
            elif table and args and self._overwritten(original, args):
                self._fresh(args[0], original, args, kwargs)
            elif table and len(args) == 4 and getattr(original, "__name__", "") == "scatter_":
                self._permuted(args[0], original, args)
            return result

        return call

    def _written(self, tensor, plan):
        """The copy was written as the tensor was; what it holds is now as sure as the least sure that went in."""
        taint = plan.origins[0][1]
        taint.kind, taint.made, taint.span = max(taint.kind, plan.kind()), plan.made(), None
        self.shadow.put(tensor, plan.args[0], taint)

    def _overwritten(self, original, args):
        return getattr(original, "__name__", "") in ("fill_", "zero_") and type(args[0]) is self.torch.Tensor and args[0].is_cuda

    def _fresh(self, tensor, original, args, kwargs):
        shadow = self.shadow
        if not self.is_integer(tensor) or not shadow.small(tensor) or any(isinstance(a, self.torch.Tensor) for a in args[1:]):
            return
        mirror = shadow.compute(lambda: original(self.torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu"), *args[1:], **kwargs))
        if mirror is not None:
            shadow.put(tensor, mirror, KNOWN)

    def _permuted(self, tensor, original, args):
        """A tensor that nothing was known of is known when each of its elements is written, as the inverse of a permutation is."""
        shadow, torch = self.shadow, self.torch
        if type(tensor) is not torch.Tensor or not tensor.is_cuda or tensor.dim() != 1 or not self.is_integer(tensor) or not shadow.small(tensor):
            return
        plan = shadow.plan(args[1:], {})
        if plan is None:
            return

        def whole():
            index, n = plan.args[1], tensor.numel()
            if index.dim() != 1 or index.numel() != n or not torch.equal(index.sort().values, torch.arange(n, device="cpu")):
                return None
            return original(torch.empty(n, dtype=tensor.dtype, device="cpu"), *plan.args)

        mirror = shadow.compute(whole)
        if mirror is not None:
            shadow.put(tensor, mirror, plan.kind())

    def healthy(self, value: bool) -> Callable[..., Any]:
        shadow = self.shadow

        def make(original):
            @functools.wraps(original)
            def call(*args, **kwargs):
                result = original(*args, **kwargs)
                shadow.same(result, value)
                return result

            return call

        return make

    # -- between the host and the card

    def from_host(self, source: Tensor, result: Tensor) -> None:
        shadow = self.shadow
        if result.is_sparse:
            self.sparse.arrived(source, result)
            return
        if not result.is_cuda or source.requires_grad:
            return
        self.rows.arrived(result)
        mask = not shadow.small(result) and self._is_square_mask(source)
        if mask or shadow.small(result):
            mirror = shadow.compute(lambda: source.detach().to(result.dtype, copy=True))
            if mirror is not None:
                shadow.put(result, mirror, Taint(KNOWN, mask))

    def _is_square_mask(self, source):
        """An attention mask that was made on the host: of those its corners are told from any weight's."""
        if not self.shadow.on or type(source) is not self.torch.Tensor or source.dim() < 2 or source.shape[-1] != source.shape[-2]:
            return False
        if not self.shadow.small(source, made=True) or not source.is_floating_point():
            return False
        corners = self.shadow.compute(lambda: source.detach().flatten()[:: source.numel() - 1].tolist())
        return bool(corners) and all(c in (0.0, 1.0, float("-inf")) for c in corners)

    def to_host(self, source: Tensor, entry: Entry | None, result: Tensor) -> None:
        """What has come to the host holds what is known, and floats that are not known are what goes for them."""
        shadow = self.shadow
        if entry is not None:
            Decisions.watched_reads += self.read_small
            if entry.taint.kind:
                shadow.use("unbounded" if entry.taint.kind == NUMBER else "copy_to_host")
            self._arrived(result, lambda: result.copy_(entry.mirror))
        elif not self.read_true and source.numel():
            if self.is_integer(source):
                shadow.use("unbounded")
            elif source.is_floating_point() and source.numel() <= MOST_ELEMENTS:  # such as weights that are kept
                shadow.use(FETCHED)
            self._arrived(result, lambda: self.shown(source, result))

    def shown(self, source: Tensor, result: Tensor) -> Tensor:
        """Write to result, on the host, what goes for source, of which nothing is known."""
        if source.is_floating_point():
            self.plausible.show(source, result)
        elif source.dtype is not self.torch.bool and source.numel() <= MOST_ELEMENTS:
            result.fill_(self.shadow.policy.number(0))
        return result

    def _arrived(self, result, write):
        """Write what has come to the host; what inference mode made may be written to there alone."""
        if result.is_inference():
            with self.torch.inference_mode():
                write()
        else:
            self.shadow.answer(write)

    read_true = False

    def reading(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call, and note whether the card gave what the host had put there."""
        before, small = native.unknown_reads(), native.all_reads()
        result = original(*args, **kwargs)
        self.read_true = native.unknown_reads() == before
        self.read_small = native.all_reads() - small
        return result

    def moved(self, original: Callable[..., Any]) -> Callable[..., Any]:
        shadow, tensor = self.shadow, self.torch.Tensor

        @functools.wraps(original)
        def call(self_, *args, **kwargs):
            if type(self_) is not tensor or not shadow.on:
                return original(self_, *args, **kwargs)
            if not self_.is_cuda:
                result = original(self_, *args, **kwargs)
                if result.is_cuda:
                    self.from_host(self_, result)
                return result
            entry = shadow.find(self_)
            result = self.reading(original, self_, *args, **kwargs)
            if not result.is_cuda:
                self.to_host(self_, entry, result)
            elif result is not self_:
                if entry is not None and shadow.small(self_, entry.taint.made):
                    mirror = shadow.compute(lambda: entry.mirror.to(result.dtype, copy=True))
                    if mirror is not None and shadow.small(result, entry.taint.made):
                        shadow.put(result, mirror, Taint(entry.taint.kind, entry.taint.made, span=intervals.kept(entry, result.dtype)))
                elif self.is_integer(result):
                    guesses.cast(self, result, (self_,), kwargs)
            return result

        return call

    def copied(self, original: Callable[..., Any]) -> Callable[..., Any]:
        shadow, tensor, follow = self.shadow, self.torch.Tensor, self.in_place(original)

        @functools.wraps(original)
        def call(self_, source, *args, **kwargs):
            if not shadow.on or not isinstance(source, tensor) or self_.is_cuda and source.is_cuda and id(self_) in shadow.table:
                return follow(self_, source, *args, **kwargs)
            if not self_.is_cuda and source.is_cuda:
                entry = shadow.find(source)
                result = self.reading(original, self_, source, *args, **kwargs)
                self.to_host(source, entry, self_)
                return result
            entry = shadow.find(source) if source.is_cuda else None
            result = original(self_, source, *args, **kwargs)
            if type(self_) is tensor and self_.is_cuda and source.shape == self_.shape:
                if not source.is_cuda:
                    self.from_host(source, self_)
                elif entry is not None and shadow.small(self_):
                    mirror = shadow.compute(lambda: entry.mirror.to(self_.dtype, copy=True))
                    if mirror is not None:
                        shadow.put(self_, mirror, entry.taint.kind)
            return result

        return call

    def deep(self, original: Callable[..., Any]) -> Callable[..., Any]:
        shadow = self.shadow

        @functools.wraps(original)
        def call(self_, memo):
            entry = shadow.find(self_) if shadow.table else None
            result = original(self_, memo)
            if entry is not None and result is not self_ and shadow.small(result):
                shadow.put(result, entry.mirror.clone(), entry.taint.kind)
            return result

        return call

    # -- what is made on the card

    def _install_factories(self):
        torch, shadow = self.torch, self.shadow

        def filled(position, constant):
            def make(original):
                @functools.wraps(original)
                def call(*args, **kwargs):
                    result = original(*args, **kwargs)
                    if shadow.on and type(result) is torch.Tensor and result.is_cuda:
                        value = constant
                        if position:
                            value = args[position] if len(args) > position else kwargs.get("fill_value", 0)
                        shadow.fill(result, value)
                    return result

                return call

            return make

        def made(drawn):
            def make(original):
                @functools.wraps(original)
                def call(*args, **kwargs):
                    result = original(*args, **kwargs)
                    if shadow.on and type(result) is torch.Tensor and result.is_cuda and args and type(args[0]) in (list, tuple):
                        self.rows.arrived(result)
                    if shadow.on and type(result) is torch.Tensor and result.is_cuda and shadow.small(result) and (not drawn or self.is_integer(result)):
                        again = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "generator", "out")}
                        again["device"] = "cpu"
                        if drawn:
                            again["generator"] = shadow.policy.generator
                        mirror = shadow.compute(lambda: original(*[a.cpu() if isinstance(a, torch.Tensor) and a.is_cuda else a for a in args], **again))
                        if mirror is not None:
                            shadow.put(result, mirror, KNOWN if not drawn else GUESSED)
                    return result

                return call

            return make

        for operator in OPERATORS:
            for name in operator.names:
                if operator.fills is not None or operator.fills_by is not None:
                    self.both(name, filled(operator.fills_by, operator.fills))
                elif operator.makes:
                    self.both(name, made(operator.makes == DRAWN))

    # -- checks that a healthy run passes

    def _install_validation(self):
        torch, shadow = self.torch, self.shadow

        def equal(original):
            @functools.wraps(original)
            def close(first, *args, **kwargs):
                result = original(first, *args, **kwargs)
                if shadow.on and isinstance(first, torch.Tensor) and first.is_cuda:
                    plan = shadow.plan((first,) + args, kwargs)
                    true = shadow.compute(original, *plan.args, **plan.kwargs) if plan is not None and not plan.kind() else None
                    if true is not None:
                        return true
                    shadow.use("allclose")
                    return True
                return result

            return close

        self.both("allclose", equal)
        validation.install(self)

    # -- several ranks

    def _install_collectives(self):
        """What comes from another rank is read from the card, where the exchange put it: what that knows is known here as well, and nothing else is."""
        module = sys.modules.get("torch.distributed.distributed_c10d")
        package = sys.modules.get("torch.distributed")
        if module is None or package is None:
            return
        shadow = self.shadow

        def received(original):
            @functools.wraps(original)
            def collective(*args, **kwargs):
                target: Any = args[0] if args else next(iter(kwargs.values()), None)
                if shadow.table:
                    shadow.forget(target)
                result = original(*args, **kwargs)
                if shadow.on and RECEIVED.get(original.__name__) and not getattr(getattr(module, "_world", None), "pg_coalesce_state", True):
                    for tensor in target if type(target) in (list, tuple) else (target,):
                        if type(tensor) is self.torch.Tensor and tensor.is_cuda and self.is_integer(tensor):
                            shadow.learn(tensor)
                return result

            return collective

        for name in RECEIVED:
            original = getattr(module, name, None)
            self.replace(module, name, received)
            if original is not None and getattr(package, name, None) is original:
                self.put(package, name, getattr(module, name))

    # -- mixed precision

    def _install_scaler(self):
        """A healthy run finds no infinity, and its scale stays where it is."""
        torch, shadow = self.torch, self.shadow

        def checks(original):
            @functools.wraps(original)
            def check(grads, found_inf, inv_scale):
                result = original(grads, found_inf, inv_scale)
                self._still(found_inf, torch.zeros(found_inf.shape, dtype=found_inf.dtype, device="cpu"))
                return result

            return check

        def updates(original):
            @functools.wraps(original)
            def update(scale, growth_tracker, *args):
                before = shadow.find(scale)
                result = original(scale, growth_tracker, *args)
                self._still(scale, before.mirror.clone() if before is not None else None)
                self._still(growth_tracker, torch.zeros(growth_tracker.shape, dtype=growth_tracker.dtype, device="cpu"))
                return result

            return update

        self.replace(torch, "_amp_foreach_non_finite_check_and_unscale_", checks)
        self.replace(torch, "_amp_update_scale_", updates)

    def _still(self, tensor, mirror):
        if self.shadow.on and mirror is not None and tensor.is_cuda:
            self.shadow.put(tensor, mirror, KNOWN)
