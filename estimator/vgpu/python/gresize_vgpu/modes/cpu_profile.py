"""The probe's mode "profile": the program runs on the CPU for some steps under PyTorch's profiler, whose trace is left for the estimators that read it.

It is recorded from the first step on, with an optimizer's step as a GPU would make it: all parameters at once, in lists. With "published" among
GRESIZE_PROBE_PARTS it is recorded as xMem's published program does: without the first step, and an optimizer takes parameter after parameter.
"""
from __future__ import annotations

import atexit
import functools
import gc
import gzip
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
import warnings
import weakref

from ..process import allocator, exceptions, guard, native, report_file, settings
from . import cuda_to_cpu

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Torch

SCHEMA = "gresize.profile/1"
WHOLE, PUBLISHED = "whole", "published"
DEFAULT_SECONDS = 120.0
MOST_ITERATIONS = 3
LEAST_ITERATIONS = 2
# What a probe hands over at most, packed; a trace that is longer is left out, and the report says so.
MOST_PACKED_BYTES = 44 << 20
MOST_TRACE_BYTES = 1 << 30
MOST_WEIGHTS = 100000
BACKWARD = "gresize.backward"


class Profile:
    """The state of one process."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.recording = PUBLISHED if settings.wants_part(PUBLISHED) else WHOLE
        self.wanted = LEAST_ITERATIONS if self.recording == PUBLISHED else max(LEAST_ITERATIONS, min(MOST_ITERATIONS, settings.number("GRESIZE_PROBE_STEPS", MOST_ITERATIONS, int)))
        self.seconds = settings.number("GRESIZE_PROBE_SECONDS", DEFAULT_SECONDS, float)
        self.begin = time.monotonic()
        self.began_unix = time.time()
        self.profiler: Any = None
        self.iterations = 0
        self.steps = 0
        self.backward_calls = 0
        self.counts = weakref.WeakKeyDictionary()
        self.optimizers = weakref.WeakSet()
        self.thread: int | None = None
        self.before = {}  # bytes on the card when the recording began, by address
        self.trace = "none"
        self.done = False
        self.lock = threading.RLock()
        self.state = cuda_to_cpu.start(torch)

    # -- the run

    def on_optimizer(self, optimizer: Any) -> None:
        self.optimizers.add(optimizer)
        if self.recording == WHOLE and self.profiler is None:
            self.start()

    def on_step(self, optimizer: Any) -> None:
        count = self.counts.get(optimizer, 0) + 1
        self.counts[optimizer] = count
        if count <= self.steps:  # another optimizer of the same iteration
            return
        self.steps = count
        if self.profiler is None:
            self.start()
            return
        if threading.get_ident() != self.thread:
            return
        self.iterations += 1
        late = time.monotonic() - self.begin > self.seconds * 2 / 3
        if self.iterations >= self.wanted or late and self.iterations >= LEAST_ITERATIONS:
            self.stop("stopped")
        self.profiler.step()
        self.write("running")

    def start(self) -> None:
        profiler = self.torch.profiler
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.profiler = profiler.profile(
                activities=[profiler.ProfilerActivity.CPU],
                schedule=lambda step: profiler.ProfilerAction.RECORD,
                record_shapes=True,
                profile_memory=True,
                with_stack=True,
            )
            self.profiler.start()
        self.thread = threading.get_ident()
        self.before = self.state.there()
        self.state.recording = True

    def stop(self, reason: str) -> None:
        """Write all and end this process, without unwinding: user code must not go on with what it would do after its training."""
        with self.lock:
            try:
                if not self.done:
                    self.done = True
                    self.export()
                    self.write(reason)
                    native.flush()
                report_file.flush_streams()
                _end_children()
            finally:
                os._exit(0)

    def finish(self) -> None:
        """The interpreter ends by itself."""
        with self.lock:
            if self.done:
                return
            self.done = True
            exception = getattr(sys, "last_value", None)
            if exception is None and threading.get_ident() == self.thread:
                self.export()
            self.write("exit" if exception is None else "exception", exception)
            native.flush()

    def export(self) -> None:
        if self.profiler is None or not os.environ.get("GRESIZE_VGPU_REPORT_DIR"):
            return
        self.state.recording = False
        place = tempfile.mkdtemp(prefix="gresize-profile-")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.profiler.stop()
            path = os.path.join(place, "trace.json")
            self.profiler.export_chrome_trace(path)
            self.trace = self.pack(path)
        except Exception:
            self.trace = "failed"
            guard.complain()
        finally:
            shutil.rmtree(place, ignore_errors=True)

    @staticmethod
    def pack(path: str) -> str:
        if os.path.getsize(path) > MOST_TRACE_BYTES:
            return "too_large"
        name = "profile-%d.json.gz" % os.getpid()
        directory = os.environ["GRESIZE_VGPU_REPORT_DIR"]
        part = os.path.join(directory, "." + name + ".part")
        with open(path, "rb") as raw, gzip.open(part, "wb", compresslevel=1) as packed:
            shutil.copyfileobj(raw, packed, 1 << 20)
        if os.path.getsize(part) > MOST_PACKED_BYTES:
            os.remove(part)
            return "too_large"
        os.replace(part, os.path.join(directory, name))
        return "written"

    # -- the report

    def weights(self) -> Any:
        """Parameters and buffers in the order in which Module.to moves them, and what else was on the card before anything was recorded: [bytes, kind],
        where kind is 0 with a gradient, 1 without, 2 no parameter."""
        torch = self.torch
        modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
        children = set()
        for module in modules:
            for child in module.__dict__.get("_modules", {}).values():
                children.add(id(child))
        seen, found = set(), []

        def add(tensor, kind):
            if tensor is None or not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
                return
            storage = cuda_to_cpu.storage_of(tensor)
            if storage.data_ptr() in seen or not tensor.numel():
                return
            seen.add(storage.data_ptr())
            found.append([tensor.numel() * tensor.element_size(), kind])

        def walk(module):
            for child in module.__dict__.get("_modules", {}).values():
                if child is not None:
                    walk(child)
            for parameter in module.__dict__.get("_parameters", {}).values():
                add(parameter, 0 if parameter is not None and parameter.requires_grad else 1)
            for buffer in module.__dict__.get("_buffers", {}).values():
                add(buffer, 2)

        for module in modules:
            if id(module) not in children:
                walk(module)
        for optimizer in list(self.optimizers):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    add(parameter, 0)
        if self.recording == WHOLE:
            found += [[size, 2] for address, size in self.before.items() if address not in seen and size]
        return found[:MOST_WEIGHTS]

    def write(self, reason: str, exception: BaseException | None = None) -> None:
        try:
            torch = self.torch
            weights = self.weights() if reason != "running" else []
            content = {
                "schema": SCHEMA,
                "pid": os.getpid(),
                "ppid": os.getppid(),
                "reason": reason,
                "exception": exceptions.described(torch, exception),
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "cuda": torch.version.cuda,
                "rank": settings.integer("RANK"),
                "world_size": settings.integer("WORLD_SIZE"),
                "recording": self.recording,
                "steps": self.steps,
                "iterations": self.iterations,
                "backward_calls": self.backward_calls,
                "optimizers": sorted({type(o).__name__ for o in list(self.optimizers)})[:16],
                "trace": self.trace,
                "weights": weights,
                "moved": self.state.moved,
                "replaced": sorted(self.state.replaced),
                "left_on_gpu_bytes": _left_on_gpu(torch),
                "host_peak_bytes": report_file.host_peak_bytes(),
                "began_unix": round(self.began_unix, 3),
                "wall_seconds": round(time.monotonic() - self.begin, 3),
            }
            report_file.write("profile-%d.json" % os.getpid(), [json.dumps(content)])
        except Exception:
            guard.complain()


def _left_on_gpu(torch):
    """What was not led to the CPU."""
    if not torch.version.cuda or not torch.cuda.is_initialized():
        return 0
    return sum(allocator.memory_stats(torch, d).get("allocated_bytes.all.peak", 0) for d in range(torch.cuda.device_count()))


def _end_children():
    multiprocessing = sys.modules.get("multiprocessing")
    for child in multiprocessing.active_children() if multiprocessing else []:
        child.kill()


def _hook_optimizers(profile, torch):
    optimizer_class = torch.optim.Optimizer
    original_init = optimizer_class.__init__

    @functools.wraps(original_init)
    def init(self, *args, **kwargs):
        original_init(self, *args, **kwargs)
        guard.quietly(_wrap_step, profile, type(self))
        guard.quietly(profile.on_optimizer, self)

    optimizer_class.__init__ = init
    if profile.recording == WHOLE:
        module = sys.modules.get("torch.optim.optimizer")
        choose = getattr(module, "_default_to_fused_or_foreach", None)
        if choose is not None:
            _as_on_gpu(choose)


def _as_on_gpu(choose):
    """On a GPU an optimizer that is told nothing goes through lists of tensors."""

    def chosen(params, differentiable, use_fused=False):
        return False, not differentiable

    known_as = choose.__name__
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim") and getattr(module, known_as, None) is choose:
            setattr(module, known_as, chosen)


def _wrap_step(profile, cls):
    """The end of a step is behind the profiler's own mark of it, which PyTorch puts round the class's method."""
    original = cls.step
    if getattr(original, "_gresize", False):
        return

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        profile.state.local.stepping = True
        try:
            result = original(self, *args, **kwargs)
        finally:
            profile.state.local.stepping = False
        guard.quietly(profile.on_step, self)
        return result

    step._gresize = True  # type: ignore
    cls.step = step


def _hook_backward(profile, torch):
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args, **kwargs):
        profile.backward_calls += 1
        if not profile.state.recording:
            return original(*args, **kwargs)
        with torch.autograd.profiler.record_function(BACKWARD):
            return original(*args, **kwargs)

    torch.autograd.backward = backward


def _budget(profile):
    time.sleep(profile.seconds)
    # The profiler belongs to another thread, which is at work: what it has recorded is lost.
    profile.profiler = None
    profile.stop("budget_spent")


def start(torch: Torch) -> None:
    """Called once torch has been imported."""
    profile = Profile(torch)
    atexit.register(guard.quietly, profile.finish)
    guard.quietly(_hook_optimizers, profile, torch)
    guard.quietly(_hook_backward, profile, torch)
    guard.quietly(profile.write, "running")
    threading.Thread(target=_budget, args=(profile,), name="gresize-budget", daemon=True).start()
