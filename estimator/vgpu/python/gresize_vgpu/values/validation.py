"""Checks of PyTorch's own, which a working program passes: what asks in C++ is told so by the native layer, what asks in Python is here."""
from __future__ import annotations

import functools

from ..process import native
from . import branch_steering
from .decisions import Decisions
from .shadow_tensors import MOST_ELEMENTS

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable


def install(calls: Any) -> None:
    """Functions of PyTorch that check, and torch.equal, which programs check by."""
    torch, shadow = calls.torch, calls.shadow
    native.let_checks_pass(True)
    calls.both("equal", _equal(calls))
    calls.both("multinomial", _multinomial(shadow))
    calls.replace(torch, "segment_reduce", _counted(shadow))
    for name in ("eig", "eigvals"):
        calls.replace(torch.linalg, name, _eigen(calls))
    calls.replace(torch.testing, "assert_close", passing(shadow))
    distribution = torch.distributions.Distribution
    for name in ("__init__", "_validate_sample"):
        original = getattr(distribution, name)
        check = passing(shadow)(original)
        check._torchdynamo_inline = original  # it stays there for what a program does beside what it compiles
        setattr(distribution, name, check)


def passing(shadow: Any) -> Callable[..., Any]:
    """A function whose questions a healthy run answers with yes."""

    def make(original):
        @functools.wraps(original)
        def check(*args, **kwargs):
            shadow.policy.healthy += 1
            if not shadow.on:
                native.let_checks_pass(True)
            try:
                return original(*args, **kwargs)
            finally:
                shadow.policy.healthy -= 1
                if not shadow.on:
                    native.let_checks_pass(False)

        return check

    return make


def _counted(shadow):
    """It asks in C++ whether the lengths add up: a whole number that is no size."""

    def make(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            shadow.read_by_python += 1
            try:
                return original(*args, **kwargs)
            finally:
                shadow.read_by_python -= 1

        return call

    return make


def _multinomial(shadow):
    """It asks whether the numbers are probabilities, and then whether all of them are zero."""

    def make(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            with shadow.answering([1, 0]):
                return original(*args, **kwargs)

        return call

    return make


def _eigen(calls):
    """They work on the host, on a copy of the matrix: of zeros and what a kernel would have made of them their iteration does not end well."""
    torch, shadow = calls.torch, calls.shadow

    def make(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            matrix = args[0] if args else kwargs.get("A")
            if not shadow.on or not isinstance(matrix, torch.Tensor) or not matrix.is_cuda or matrix.dim() < 2 or matrix.numel() > MOST_ELEMENTS:
                return original(*args, **kwargs)
            n = matrix.shape[-1]
            shown = shadow.answer(lambda: torch.arange(1, n + 1, device="cpu").diag().to(matrix.dtype).expand(matrix.shape))
            with shadow.showing([shown] if shown is not None else []):
                return original(*args, **kwargs)

        return call

    return make


def _equal(calls):
    shadow = calls.shadow

    def make(original):
        @functools.wraps(original)
        def equal(*args, **kwargs):
            before = native.unknown_reads()
            result = original(*args, **kwargs)
            if not shadow.on or native.unknown_reads() == before:
                return result  # of the host, of other sizes, or the same
            plan = shadow.plan(args, kwargs)
            known = shadow.compute(original, *plan.args, **plan.kwargs) if plan is not None else None
            if known is not None and not plan.kind():
                return known
            if shadow.policy.healthy:
                return True
            Decisions.note()
            shadow.use("bool")
            return branch_steering.settle(shadow, shadow.policy.true() if known is None else known)

        return equal

    return make
