"""Notes what one training step asks of the GPU: its operators with their FLOPs, bytes, types and launches, and the host's time for a step.

What estimates how busy a GPU will be reads this (docs/bundle.md). One step is looked at, through a TorchDispatchMode; the steps before and after it
give the host's time. Shapes are looked at, tensors are never kept. Only where GRESIZE_PROBE_PARTS names operators.
"""
from __future__ import annotations

import ctypes
import time

from ..process import guard, native, settings
from . import memory_history

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterator

    from gresize_types import Torch

VERSION = 1
# The step that is looked at follows this one: state of optimizers is there, and the allocator is at rest.
AFTER_STEP = 2
MOST_KINDS = 4096
MOST_CALLS = 1 << 17
MOST_USES = 1 << 16
MOST_TIMES = 64
MOST_NAME_BYTES = 80
CALLS_IN_A_LINE = 4096
# Edge of the piece of a product that one block of threads makes, in the kernels that libraries choose for large ones.
TILE = 128

TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "int8": "int8", "complex64": "fp32"}
# Nothing is launched for these.
FREE = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "detach", "lift_fresh", "set_", "resize_", "record_stream")
# They read nothing of what they write to.
WRITTEN = ("fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")
# Of their first tensor they read pieces that others choose: about what they return.
PICKED = ("embedding", "_embedding_bag", "index_select", "gather", "index", "take", "_unsafe_index")
# Of their first tensor they write pieces, about as large as the last one.
PLACED = ("index_put_", "_index_put_impl_", "index_add_", "index_copy_", "scatter_", "scatter_add_")
# The place of their targets: of the first tensor they read one number for each, and a piece of memory that is fetched at once.
TARGETS = {"nll_loss_forward": 1, "nll_loss2d_forward": 1}
FETCHED_BYTES = 32
# They are given an input for its shape alone.
SHAPES = {"nll_loss_backward": 1, "nll_loss2d_backward": 1}


def _bytes(name, inputs, outputs):
    """What an operator reads and writes, from the sizes of its tensors and how many numbers each has; a few touch only pieces of the first."""
    read, written = [size for size, _ in inputs], [size for size, _ in outputs]
    if name in PICKED and len(inputs) > 1:
        read[0] = min(read[0], sum(written))
    elif name in PLACED and len(inputs) > 1:
        read[0] = min(read[0], read[-1])
        written = [min(size, read[-1]) for size in written]
    elif name in TARGETS and len(inputs) > TARGETS[name]:
        read[0] = min(read[0], FETCHED_BYTES * inputs[TARGETS[name]][1])
    elif name in SHAPES and len(inputs) > SHAPES[name]:
        read[SHAPES[name]] = 0
    return sum(read) + sum(written)


def _product(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def _tiles(rows, columns, count=1):
    return -(-rows // TILE) * -(-columns // TILE) * count


def _matrices(a, b):
    """FLOPs and tiles of a product of matrices, or of stacks of them."""
    count = _product(a.shape[:-2])
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    return 2 * count * rows * inner * columns, _tiles(rows, columns, count)


def _convolution(args, out):
    """The FLOPs of one pass are the same in all directions; each pass that was asked for counts."""
    weight = args[1]
    return 2 * out.numel() * _product(weight.shape[1:]), _tiles(out.numel() // max(out.shape[1], 1), out.shape[1])


def _convolution_backward(args, out):
    gradient, weight = args[0], args[2]
    passes = sum(1 for wanted in args[-1][:2] if wanted)
    return 2 * gradient.numel() * _product(weight.shape[1:]) * passes, passes * _tiles(gradient.numel() // max(gradient.shape[1], 1), weight.shape[0])


def _attention(factor):
    def work(args, out):
        tensors = [t for t in args if hasattr(t, "shape") and len(t.shape) == 4]
        if factor > 4:  # backward: the gradient stands first
            tensors = tensors[1:]
        query, key = tensors[0], tensors[1]
        heads = query.shape[0] * query.shape[1]
        return factor * heads * query.shape[2] * key.shape[2] * query.shape[3], heads * -(-query.shape[2] // TILE)

    return work


def _recurrent(args, out):
    weights = args[1] if isinstance(args[1], (list, tuple)) else args[2]
    places = args[0].numel() // max(args[0].shape[-1], 1)
    return 2 * places * sum(w.numel() for w in weights), _tiles(places, max(w.shape[0] for w in weights))


# Kinds of operators that are made of products, and the rule for their work.
PRODUCTS = {
    "mm": lambda args, out: _matrices(args[0], args[1]),
    "bmm": lambda args, out: _matrices(args[0], args[1]),
    "_scaled_mm": lambda args, out: _matrices(args[0], args[1]),
    "_int_mm": lambda args, out: _matrices(args[0], args[1]),
    "addmm": lambda args, out: _matrices(args[1], args[2]),
    "_addmm_activation": lambda args, out: _matrices(args[1], args[2]),
    "baddbmm": lambda args, out: _matrices(args[1], args[2]),
    "convolution": _convolution,
    "_convolution": _convolution,
    "cudnn_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_efficient_attention": _attention(4),
    "_scaled_dot_product_cudnn_attention": _attention(4),
    "_scaled_dot_product_flash_attention_backward": _attention(10),
    "_scaled_dot_product_efficient_attention_backward": _attention(10),
    "_scaled_dot_product_cudnn_attention_backward": _attention(10),
    "_cudnn_rnn": _recurrent,
}


# The operators of the step that is looked at now, for who notes what else it does.
looking = None


class Grids:
    """What was launched so far, as the native layer counts it."""

    def __init__(self) -> None:
        self.native = native.library()
        self.ask = getattr(self.native, "gresize_vgpu_grids", None)
        self.count, self.blocks = ctypes.c_uint64(), ctypes.c_uint64()

    def read(self) -> tuple[int, int]:
        if self.ask is None:
            return 0, 0
        self.ask(ctypes.byref(self.count), ctypes.byref(self.blocks))
        return self.count.value, self.blocks.value


class Operators:
    """The step of one process that is looked at, and the times of the others."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.kinds = {}  # what an operator is -> how often it came
        self.numbers = {}  # what an operator is -> its place among those kinds
        self.calls = []  # the place of each call's kind, in order
        self.uses = []  # of each operator its place among the kinds, or -1, where in the allocator's history it began and ended, and the storages that it used
        self.left_out = 0
        self.syncs = 0
        self.copied_bytes = 0  # between host and device
        self.mode: Any = None
        self.compiled = False
        self.recorded = 0
        self.times = []  # wall and processor seconds of each step that was not looked at
        self.now = (0.0, 0.0)
        self.last: tuple[float, float] | None = None
        self.free = {}  # operator -> nothing is launched for it
        self.grids = None

    # -- steps

    def retire(self, target: Any = None) -> None:
        """What a compiler makes of a program launches its own kernels, which no operator names."""
        self.compiled = True
        self.leave()

    def arrived(self) -> None:
        """A step may have ended here: what the hooks do from now on is no time of the program's."""
        self.now = (time.perf_counter(), time.process_time())

    def on_step(self, number: int) -> None:
        now = self.now
        if self.mode is not None:
            self.leave()
            self.recorded = number
        elif self.last is not None and len(self.times) < MOST_TIMES:
            self.times.append((now[0] - self.last[0], now[1] - self.last[1]))
        if number >= AFTER_STEP and not self.recorded and not self.compiled:
            self.enter()

    def go_on(self) -> None:
        """The program goes on with its next step."""
        self.last = (time.perf_counter(), time.process_time())

    def enter(self) -> None:
        from torch.utils import _python_dispatch

        stack = getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)()
        if stack:  # the program has a mode of its own, and would end ours in the place of it
            self.compiled = True
            return
        note, use, grids = self.note, self.use, Grids()
        torch, follows = self.torch, settings.records_events() and not settings.wants_part("saved")  # which has a clock of its own

        def here():
            return memory_history.place(torch) if follows and len(self.uses) < MOST_USES else None

        class Mode(_python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                before, place = grids.read(), here()
                out = function(*args, **(kwargs or {}))
                try:
                    after = grids.read()
                    kind = note(function, args, kwargs or {}, out, after[0] - before[0], after[1] - before[1])
                    if place is not None:
                        use(kind, function, place, here(), args, kwargs or {}, out)
                except Exception:
                    guard.complain()
                return out

        global looking
        self.mode = Mode()
        self.mode.__enter__()
        looking = self

    def leave(self) -> None:
        global looking
        looking = None
        mode, self.mode = self.mode, None
        if mode is not None:
            mode.__exit__(None, None, None)

    # -- operators

    def is_free(self, function: Any) -> bool:
        """Views, and what only makes room."""
        known = self.free.get(function)
        if known is None:
            name = function._schema.name.split("::")[-1]
            returned = [r.alias_info for r in function._schema.returns]
            known = name in FREE or bool(returned) and all(a is not None and not a.is_write for a in returned)
            self.free[function] = known
        return known

    def use(self, kind: int, function: Any, before: tuple[int, int, int], after: tuple[int, int, int], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Notes which storages an operator reads and writes. A view uses none."""
        if self.is_free(function):
            return
        tensors = self._tensors(args) + self._tensors(kwargs.values()) + self._tensors((out,))
        cards = [t for t in tensors if t.device.type == "cuda" and t.device.index == after[0] and t.layout == self.torch.strided]
        addresses = {t.untyped_storage().data_ptr() for t in cards} - {0}
        if addresses:
            self.uses.append([kind, *before[1:], *after[1:], *sorted(addresses)])

    def note(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, launches: int, blocks: int) -> int:
        """The place of the operator among the kinds; -1 for one that is none of them."""
        inputs, outputs = self._tensors(args) + self._tensors(kwargs.values()), self._tensors((out,))
        on_device = [t for t in inputs + outputs if t.device.type == "cuda"]
        if not on_device:
            return -1
        namespace, _, name = function._schema.name.partition("::")
        if name == "_local_scalar_dense":
            self.syncs += 1
            return -1
        if namespace == "c10d" or self.is_free(function):
            return -1
        if len(on_device) < len(inputs) + len(outputs) and name in ("_to_copy", "copy_"):
            self.copied_bytes += sum(t.numel() * t.element_size() for t in on_device[-1:])
            return -1
        flops, tiles, kind = 0, 0, "other"
        rule = PRODUCTS.get(name)
        if rule is not None:
            kind = "product"
            flops, tiles = rule(args, outputs[0])
        if name in WRITTEN:
            inputs = []
        elif not outputs and name.endswith("_"):  # lists of parameters and their state, written where they lie
            outputs = self._tensors(args[:1]) + (self._tensors(args[2:5]) if name.startswith("_fused") else [])
        sizes = [[(t.numel() * t.element_size(), t.numel()) for t in tensors if t.device.type == "cuda"] for tensors in (inputs, outputs)]
        size = _bytes(name, *sizes)
        elements = max(t.numel() for t in on_device)
        if rule is None:
            flops = sum(t.numel() for t in outputs)
        dtype = self._type(kind, name, on_device)
        if launches == 0:  # a library's kernel, whose grid nobody sees
            launches, blocks = 1, tiles or -(-elements // 512)
        elif kind == "product":  # what is seen beside the library's kernel is small
            blocks = max(blocks, tiles)
        key = (name[:MOST_NAME_BYTES], kind, dtype, int(flops), int(size), int(launches), int(blocks))
        if key in self.kinds:
            self.kinds[key] += 1
        elif len(self.kinds) < MOST_KINDS:
            self.numbers[key] = len(self.kinds)
            self.kinds[key] = 1
        else:
            self.left_out += 1
            return -1
        if len(self.calls) < MOST_CALLS:
            self.calls.append(self.numbers[key])
        return self.numbers[key]

    def _tensors(self, values):
        found = []
        for value in values:
            if isinstance(value, self.torch.Tensor):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                found.extend(v for v in value if isinstance(v, self.torch.Tensor))
        return found

    def _type(self, kind, name, tensors):
        floats = [t.dtype for t in tensors if t.dtype.is_floating_point or t.dtype.is_complex] or [tensors[0].dtype]
        full = str(floats[0]).replace("torch.", "")
        dtype = TYPES.get(full) or ("fp8" if full.startswith("float8") else "int")
        if kind == "product" and dtype == "fp32" and self._tensor_cores(name):
            return "tf32"
        return dtype

    def _tensor_cores(self, name):
        backends = self.torch.backends
        if "convolution" in name or "rnn" in name:
            return bool(backends.cudnn.allow_tf32)
        return bool(backends.cuda.matmul.allow_tf32) or "attention" in name

    # -- the part of the bundle

    def lines(self) -> Iterator[Any]:
        yield {
            "operators": VERSION, "step": self.recorded, "compiled": self.compiled, "left_out": self.left_out, "syncs": self.syncs,
            "copied_bytes": self.copied_bytes, "wall_seconds": [round(w, 6) for w, _ in self.times],
            "processor_seconds": [round(p, 6) for _, p in self.times],
        }
        for (name, kind, dtype, flops, size, launches, blocks), count in self.kinds.items():
            yield {"op": name, "kind": kind, "dtype": dtype, "flops": flops, "bytes": size, "launches": launches, "blocks": blocks, "count": count}
        if settings.wants_part("saved"):
            for first in range(0, len(self.calls), CALLS_IN_A_LINE):
                yield {"calls": self.calls[first : first + CALLS_IN_A_LINE]}
        if len(self.uses) < MOST_USES:
            for first in range(0, len(self.uses), CALLS_IN_A_LINE):
                yield {"uses": self.uses[first : first + CALLS_IN_A_LINE]}
