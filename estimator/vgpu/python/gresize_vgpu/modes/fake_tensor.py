"""The probe's mode "fake": what the program puts on its card are tensors without content, and the bytes of the storages that live are counted.

What stays on the CPU is real: data sets, samplers, masks. Forward, backward and the optimizer's steps are the program's own. With "published" among
GRESIZE_PROBE_PARTS the first forward of the network is followed by the backward pass of its output's sum, and that is all. What asks for a value
that no tensor has is not guessed: the report names it. Only a single floating-point number, which programs print, is answered in the wider form.
"""
from __future__ import annotations

import atexit
import functools
import json
import os
import platform
import sys
import threading
import time
import weakref

from ..process import exceptions, guard, native, report_file, settings
from . import cuda_to_cpu

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Tensor, Torch

SCHEMA = "gresize.fake/1"
WHOLE, PUBLISHED = "whole", "published"
LEAST_STEPS = 2
MOST_STEPS = 6
DEFAULT_SECONDS = 120.0
MOST_DEPTH = 8
# A GradScaler takes it for "no overflow"; a loss that is printed may be any number.
FLOAT_VALUE = 0.0


class Counter:
    """The bytes of the storages that live on each card, and the most there were."""

    def __init__(self) -> None:
        self.known = {}  # the address of a storage -> its bytes and card
        self.live = {}
        self.peak = {}
        self.lock = threading.RLock()

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        with self.lock:
            if key in self.known:
                return
            device, size = tensor.device.index or 0, storage.nbytes()
            self.known[key] = (device, size)
            weakref.finalize(storage, self.drop, key).atexit = False
            live = self.live.get(device, 0) + size
            self.live[device] = live
            if live > self.peak.get(device, 0):
                self.peak[device] = live

    def drop(self, key: Any) -> None:
        with self.lock:
            device, size = self.known.pop(key)
            self.live[device] -= size


class Fake:
    """The state of one process."""

    def __init__(self, torch: Torch) -> None:
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

        self.torch = torch
        self.form = PUBLISHED if settings.wants_part(PUBLISHED) else WHOLE
        self.seconds = settings.number("GRESIZE_PROBE_SECONDS", DEFAULT_SECONDS, float)
        self.begin = time.monotonic()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.kind = FakeTensor
        self.counter = Counter()
        self.steps = 0
        self.counts = weakref.WeakKeyDictionary()
        self.peaks = []  # after each step
        self.after_forward = self.after_backward = 0
        self.backward_calls = 0
        self.values_read = 0
        self.without_content = ""  # the operator that asked for a value
        self.replaced = set()
        self.done = False
        self.lock = threading.RLock()

    def peak(self) -> int:
        return max(self.counter.peak.values(), default=0)

    # -- operators

    def mode(self) -> Any:
        torch, state, kind = self.torch, self, self.kind
        from torch.utils._python_dispatch import TorchDispatchMode

        read = torch.ops.aten._local_scalar_dense.default

        def on_card(value, depth=0):
            if isinstance(value, torch.Tensor):
                return isinstance(value, kind) or value.device.type == "cuda"
            if isinstance(value, (list, tuple)) and depth < MOST_DEPTH:
                return any(on_card(v, depth + 1) for v in value)
            return isinstance(value, torch.device) and value.type == "cuda"

        def count(value, depth=0):
            if isinstance(value, torch.Tensor):
                if isinstance(value, kind) and value.device.type == "cuda":
                    state.counter.add(value)
            elif isinstance(value, (list, tuple)) and depth < MOST_DEPTH:
                for v in value:
                    count(v, depth + 1)

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                if not (any(on_card(a) for a in args) or any(on_card(a) for a in kwargs.values())):
                    return func(*args, **kwargs)
                if func is read and args[0].is_floating_point() and state.form == WHOLE:
                    state.values_read += 1
                    return FLOAT_VALUE
                try:
                    with state.fake:
                        result = func(*args, **kwargs)
                except Exception as e:
                    if not state.without_content and type(e).__module__.startswith("torch._subclasses"):
                        state.without_content = str(func)[: exceptions.MOST_TEXT]
                    raise
                count(result)
                return result

        return Mode()

    # -- the loop

    def on_backward(self) -> None:
        self.backward_calls += 1

    def on_step(self, optimizer: Any) -> None:
        with self.lock:
            count = self.counts.get(optimizer, 0) + 1
            self.counts[optimizer] = count
            if count <= self.steps:  # another optimizer of the same iteration
                return
            self.steps = count
            self.peaks.append(self.peak())
            if count >= MOST_STEPS or count > LEAST_STEPS and self.peaks[-1] == self.peaks[-2]:
                self.stop("stopped")

    def on_whole_forward(self, output: Any) -> None:
        """The published form: the sum of the network's output is its loss, and no optimizer follows."""
        first = _first(self.torch, output)
        if first is None or not first.requires_grad:
            return
        self.after_forward = self.peak()
        first.sum().backward()
        self.backward_calls += 1
        self.after_backward = self.peak()
        self.stop("stopped")

    # -- the end

    def stop(self, reason: str) -> None:
        with self.lock:
            try:
                if not self.done:
                    self.done = True
                    self.write(reason)
                    native.flush()
                report_file.flush_streams()
            finally:
                os._exit(0)

    def finish(self) -> None:
        with self.lock:
            if not self.done:
                self.done = True
                exception = getattr(sys, "last_value", None)
                self.write("exit" if exception is None else "exception", exception)
                native.flush()

    def write(self, reason: str, exception: BaseException | None = None) -> None:
        try:
            content = {
                "schema": SCHEMA,
                "pid": os.getpid(),
                "form": self.form,
                "reason": reason,
                "exception": exceptions.described(self.torch, exception),
                "without_content": self.without_content,
                "python": platform.python_version(),
                "torch": str(self.torch.__version__),
                "cuda": self.torch.version.cuda,
                "world_size": settings.integer("WORLD_SIZE"),
                "steps": self.steps,
                "backward_calls": self.backward_calls,
                "after_forward_bytes": self.after_forward,
                "after_backward_bytes": self.after_backward,
                "peaks": [{"index": index, "peak_bytes": size} for index, size in sorted(self.counter.peak.items())],
                "values_read": self.values_read,
                "replaced": sorted(self.replaced),
                "wall_seconds": round(time.monotonic() - self.begin, 3),
            }
            report_file.write("fake-%d.json" % os.getpid(), [json.dumps(content)])
        except Exception:
            guard.complain()


def _first(torch, output, depth=0):
    """The tensor of an output that a loss would be made of."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, dict):
        output = output.get("logits") if output.get("logits") is not None else list(output.values())
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, (list, tuple)) and depth < MOST_DEPTH:
        for part in output:
            found = _first(torch, part, depth + 1)
            if found is not None:
                return found
    return None


def _budget(state):
    time.sleep(state.seconds)
    state.stop("budget_spent")


def _hook_backward(torch, state):
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args, **kwargs):
        result = original(*args, **kwargs)
        state.on_backward()
        return result

    torch.autograd.backward = backward


def _hook_optimizers(torch, state):
    module = sys.modules["torch.optim.optimizer"]
    module.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: state.on_step(optimizer))
    supported = getattr(module, "_foreach_supported_types", None)
    if isinstance(supported, list):  # on a GPU all parameters are taken at once
        supported.append(state.kind)


def _hook_forward(torch, state):
    module = torch.nn.modules.module
    inside = []

    def enter(m, args):
        inside.append(m)

    def leave(m, args, output):
        inside.pop()
        if not inside and torch.is_grad_enabled() and any(p.requires_grad for p in m.parameters()):
            state.on_whole_forward(output)

    module.register_module_forward_pre_hook(enter)
    module.register_module_forward_hook(leave)


def _hook_modules(torch):
    """A parameter that is moved to the card is another tensor: one without content cannot take the place of a real one. Shared ones stay shared."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    original = torch.nn.Module._apply
    inside = []

    @functools.wraps(original)
    def apply(self, *args, **kwargs):
        if inside:
            return original(self, *args, **kwargs)
        places = {}
        for m in self.modules():
            for name, p in m._parameters.items():
                if p is not None:
                    places.setdefault(id(p), []).append((m, name, p))
        inside.append(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            inside.pop()
            for shared in places.values():
                for m, name, _ in shared[1:]:
                    m._parameters[name] = shared[0][0]._parameters[shared[0][1]]

    torch.nn.Module._apply = apply


def start(torch: Torch) -> None:
    """Called once torch has been imported."""
    state = Fake(torch)
    if not torch.version.cuda:
        state.write("cpu_only_torch")
        return
    atexit.register(state.finish)
    _hook_optimizers(torch, state)
    if state.form == PUBLISHED:
        _hook_forward(torch, state)
    else:
        _hook_backward(torch, state)
    _hook_modules(torch)
    cuda_to_cpu._hook_compile(torch, state)
    mode = state.mode()
    mode.__enter__()
    os.register_at_fork(after_in_child=lambda: setattr(state, "done", True))
    threading.Thread(target=_budget, args=(state,), name="gresize-budget", daemon=True).start()
