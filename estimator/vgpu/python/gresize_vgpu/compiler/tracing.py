"""What is done before a compiler looks at the program: hooks that it would trace through step aside."""
from __future__ import annotations

import functools
import importlib
import sys

from gresize_imports import around_import

from ..process import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

    from gresize_types import Torch

COMPILER = "torch._dynamo"
DYNAMO = COMPILER + ".eval_frame"
# What a compiled function calls first and last, by release: it says whether what is run from now on is traced.
ENTRANCES = ("_maybe_set_eval_frame", "set_eval_frame")

# The place of torch.jit.script's argument _frames_up.
SCRIPT_FRAMES = 2


def before_scripts(torch: Torch, retire: Callable[..., Any]) -> None:
    """Have retire() called before TorchScript reads a function's source."""
    original = torch.jit.script

    @functools.wraps(original)
    def script(*args, **kwargs):
        try:
            retire()
        except Exception:
            guard.complain()
        if len(args) <= SCRIPT_FRAMES:  # names are looked up in the frame that calls, which is one further
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
        return original(*args, **kwargs)

    torch.jit.script = script


def before(torch: Torch, retire: Callable[..., Any]) -> None:
    """Have retire(what) called before torch.compile looks at anything."""

    def retiring(original):
        def call(*args, **kwargs):
            try:
                retire(args[0] if args else kwargs.get("model"))
            except Exception:
                guard.complain()
            return original(*args, **kwargs)

        # Not functools.wraps: what looks at the wrapped function's own code must find it.
        named: Any = call
        named.__name__, named.__doc__, named.__wrapped__ = original.__name__, original.__doc__, original
        return call

    if hasattr(torch, "compile"):
        torch.compile = retiring(torch.compile)
    if hasattr(torch.nn.Module, "compile"):
        torch.nn.Module.compile = retiring(torch.nn.Module.compile)


def _at_work():
    """Whether a compiler is reading: what it calls itself, it keeps from being compiled as a program does with some of its functions."""
    context: Any = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    return hasattr(context, "try_get") and context.try_get() is not None


def when_traced(torch: Torch, calls: Any) -> None:
    """Have the followers of calls step aside while a compiled function runs, which is when a compiler reads what it calls. What a compiler knows of
    PyTorch it learns as it is imported, by whomever, of PyTorch's own functions."""
    if COMPILER not in sys.modules:
        around_import(COMPILER, calls.without)
    waiting = []

    def compiling(_):
        if waiting:
            return
        waiting.append(True)
        module = importlib.import_module(DYNAMO)
        name = next((n for n in ENTRANCES if hasattr(module, n)), None)
        if name is None:
            calls.shadow.stop("compile")
            calls.step_aside()
            return
        original = getattr(module, name)

        @functools.wraps(original)
        def entering(callback):
            prior = original(callback)
            if callback is not None:
                calls.step_aside()
            elif not _at_work():
                calls.step_back()
            return prior

        setattr(module, name, entering)

    before(torch, compiling)
