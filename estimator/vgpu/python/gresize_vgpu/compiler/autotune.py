"""Bounds what torch.compile and Triton try out when they choose among kernels by time.

No kernel runs here, so all take the same time and the first of a list wins: compiling the rest of it is time lost. Two of each list are
kept where two are needed for the choice to happen, because what is allocated while it happens is part of the peak. Where the candidates
take memory of different size, the largest is kept, or its size noted, so that the answer becomes an interval.
"""
from __future__ import annotations

import functools
import inspect
import os
import sys

from gresize_imports import after_import

from ..process import guard, native
from ..values import decisions

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable, Sequence

# As many candidates are compiled and timed where nothing but time tells them apart.
KEPT = 2


class Choices:
    """What was chosen among, in this process."""

    lists = 0  # how many times a matrix product, a convolution or an attention was chosen among several kernels
    candidates = 0
    dropped = 0
    workspace_bytes = 0  # the largest workspace of a candidate that was dropped
    kernel_lists = 0  # lists of launch configurations that were cut, which changes no memory


def counts() -> dict[str, int]:
    return {
        "lists": Choices.lists,
        "candidates": Choices.candidates,
        "dropped": Choices.dropped,
        "workspace_bytes": Choices.workspace_bytes,
        "kernel_lists": Choices.kernel_lists,
    }


def is_compile_worker() -> bool:
    """A process of the compiler's own trains nothing, and is killed when its parent ends: that is no program that was cut short."""
    return os.path.dirname(os.path.abspath((getattr(sys, "argv", None) or [""])[0])).endswith(os.path.join("torch", "_inductor", "compile_worker"))


def watch_imports() -> None:
    after_import("torch._inductor.select_algorithm", hook_selection)
    after_import("torch._inductor.runtime.triton_heuristics", hook_heuristics)
    after_import("triton.runtime.autotuner", hook_triton)


def _integer(value):
    try:
        return max(0, int(value))
    except Exception:  # a size that is known at run time only
        return 0


def _workspace_bytes(choice):
    """What a candidate allocates beside its output."""
    request = getattr(choice, "bmreq", None)
    argument = getattr(request, "workspace_arg", None)
    return max(_integer(getattr(argument, "count", 0)), _integer(getattr(request, "workspace_size", 0)))


def keep(choices: Sequence[Any], kinds: Callable[[Any], str]) -> tuple[list[Any], bool]:
    """The candidates to try: all libraries' own kernels, and of each other kind as many as the choice needs."""
    extern = [c for c in choices if kinds(c) == "extern"]
    kept = list(extern)
    templates = [c for c in choices if kinds(c) == "template"]
    if templates:
        largest = max(templates, key=_workspace_bytes)
        wanted = [largest] + [c for c in templates if c is not largest]
        kept += wanted[: 1 if extern else KEPT]
    subgraphs = [c for c in choices if kinds(c) == "subgraph"]
    # A product that is split along its inner dimension holds one partial result a part, and the last has the most parts.
    kept += subgraphs[-1:]
    return [c for c in choices if any(c is k for k in kept)], bool(extern)


def _kind(choice):
    names = [c.__name__ for c in type(choice).__mro__]
    if "ExternKernelCaller" in names:
        return "extern"
    return "subgraph" if "SubgraphChoiceCaller" in names else "template"


def _unwatched(function, *args, **kwargs):
    """What the compiler reads and compares while it chooses is no decision of the program."""
    count, reads = decisions.Decisions.count, native.all_reads()
    try:
        return function(*args, **kwargs)
    finally:
        decisions.Decisions.count = count
        decisions.Decisions.watched_reads += native.all_reads() - reads


def hook_selection(module: Any) -> None:
    selector = module.AlgorithmSelectorCache
    original = selector.__call__
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def select(self, *args, **kwargs):
        try:
            bound = parameters.bind(self, *args, **kwargs)
            choices = [c for c in bound.arguments["choices"] if c is not None]
            if getattr(getattr(bound.arguments.get("layout"), "device", None), "type", "cuda") == "cuda" and len(choices) > 1:
                kept, extern = keep(choices, _kind)
                Choices.lists += 1
                Choices.candidates += len(choices)
                Choices.dropped += len(choices) - len(kept)
                lost = [_workspace_bytes(c) for c in choices if not any(c is k for k in kept)]
                Choices.workspace_bytes = max([Choices.workspace_bytes] + lost)
                bound.arguments["choices"] = kept
                if extern and "return_multi_template" in parameters.parameters:
                    # A library's own kernel is followed by one for what comes after the product, which needs the product in memory: the upper
                    # end. Otherwise the fusion of both would win, for it is one launch less.
                    bound.arguments["return_multi_template"] = False
                args, kwargs = bound.args[1:], bound.kwargs
        except Exception:
            guard.complain()
        return _unwatched(original, self, *args, **kwargs)

    selector.__call__ = select


def hook_heuristics(module: Any) -> None:
    original = module.cached_autotune
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def cached_autotune(*args, **kwargs):
        try:
            bound = parameters.bind(*args, **kwargs)
            meta = bound.arguments.get("inductor_meta")
            if isinstance(meta, dict) and meta.get("coordinate_descent_tuning"):
                bound.arguments["inductor_meta"] = dict(meta, coordinate_descent_tuning=False)
            configs = bound.arguments["configs"]
            # What a program gave itself may not compile with the first two of its list.
            if not bound.arguments.get("custom_kernel") and len(configs) > KEPT:
                bound.arguments["configs"] = configs[:KEPT]
                Choices.kernel_lists += 1
            args, kwargs = bound.args, bound.kwargs
        except Exception:
            guard.complain()
        return original(*args, **kwargs)

    module.cached_autotune = cached_autotune


def hook_triton(module: Any) -> None:
    """Of the configurations of a program's own kernel, those after the second that works are not compiled."""
    tuner = module.Autotuner
    original_run, original_bench = tuner.run, tuner._bench

    @functools.wraps(original_run)
    def run(self, *args, **kwargs):
        self._gresize_timed = 0
        return original_run(self, *args, **kwargs)

    @functools.wraps(original_bench)
    def bench(self, *args, **kwargs):
        timed = getattr(self, "_gresize_timed", 0)
        if timed >= KEPT:
            Choices.kernel_lists += timed == KEPT
            self._gresize_timed = timed + 1
            return [float("inf")] * 3
        result = original_bench(self, *args, **kwargs)
        first = result[0] if isinstance(result, (list, tuple)) else result
        if first != float("inf"):
            self._gresize_timed = timed + 1
        return result

    tuner.run, tuner._bench = run, bench
