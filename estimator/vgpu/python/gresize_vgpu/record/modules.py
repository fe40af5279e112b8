"""Notes what networks are made of: layer by layer its class, parameters, shapes of the first training forward, and FLOPs.

Estimators that know a network by its layers read this table (docs/bundle.md). Shapes and counts are looked at, tensors are never kept, and nothing
here touches what the program computes. Only where GRESIZE_PROBE_PARTS names modules.
"""
from __future__ import annotations

import weakref

from ..compiler import tracing
from ..process import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterator

    from gresize_types import Torch

SCHEMA = 1
MOST_ROWS = 20000
MOST_ROOTS = 256
MOST_OPTIMIZERS = 64
MOST_NAME_BYTES = 200
# Of one input or output: tensors of it that are named, and their dimensions. More are counted, not named.
MOST_TENSORS = 8
MOST_DIMENSIONS = 12
MOST_DEPTH = 4

NOT_SEEN, SEEN_WITHOUT_GRAD, SEEN = 0, 1, 2


class Row:
    """One module, or the whole of a network when it is the root."""

    def __init__(self, root: Root, path: str, module: Any) -> None:
        self.root = root
        self.path = path
        self.ref = weakref.ref(module)
        self.seen = NOT_SEEN
        self.calls = 0
        self.calls_before = 0  # calls before the forward that is described
        self.calls_once = 0  # calls in that forward
        self.shapes = {}
        self.facts = {"class": type(module).__name__[:MOST_NAME_BYTES]}


class Root:
    def __init__(self, number: int) -> None:
        self.number = number
        self.rows = []
        self.done = NOT_SEEN
        self.compiled = False
        self.totals = {}


class Layers:
    """The networks of one process, found when their forward is called for the first time."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.roots = []
        self.by_id = {}  # id of a live module -> its row
        self.loose = {}  # class of a module without parameters that the program makes anew each time -> its row
        self.rows = 0
        self.left_out = 0
        self.optimizers = []
        self.hooks = []
        self.compiled = False

    # -- hooks

    def hook(self) -> None:
        module = self.torch.nn.modules.module

        def enter(m, args):
            if id(m) not in self.by_id:
                guard.quietly(self.add_root, m)

        def leave(m, args, kwargs, output):
            row = self.by_id.get(id(m))
            if row is not None:
                row.calls += 1
                if row.seen != SEEN:
                    guard.quietly(self._look, row, m, args, kwargs, output)

        self.hooks = [module.register_module_forward_pre_hook(enter)]
        try:
            self.hooks.append(module.register_module_forward_hook(leave, with_kwargs=True))
        except TypeError:  # before PyTorch 2.2
            self.hooks.append(module.register_module_forward_hook(lambda m, args, output: leave(m, args, {}, output)))
        tracing.before(self.torch, self._retire)

    def _retire(self, target):
        """A compiler would trace through the hooks: what is compiled has a table without shapes."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        self.compiled = True
        if isinstance(target, self.torch.nn.Module) and id(target) not in self.by_id:
            guard.quietly(self.add_root, target)

    # -- networks

    def add_root(self, module: Any) -> None:
        if getattr(module, "_is_replica", False):  # torch.nn.DataParallel makes them anew for each batch
            return
        bare = not module._modules and not module._parameters
        if bare and type(module) in self.loose:
            self._know(module, self.loose[type(module)])
            return
        if len(self.roots) >= MOST_ROOTS or self.rows >= MOST_ROWS:
            self.left_out += 1
            return
        root = Root(len(self.roots))
        self.roots.append(root)
        for path, m in module.named_modules():
            if id(m) in self.by_id:
                continue  # a part that was called by itself before
            if self.rows >= MOST_ROWS:
                self.left_out += 1
                continue
            row = Row(root, path[:MOST_NAME_BYTES], m)
            self.rows += 1
            root.rows.append(row)
            self._know(m, row)
        if bare:
            self.loose[type(module)] = root.rows[0]

    def _know(self, module, row):
        by_id, number = self.by_id, id(module)
        by_id[number] = row
        # The number of a module that is gone may be given to another one.
        weakref.finalize(module, by_id.pop, number, None).atexit = False

    def _look(self, row, m, args, kwargs, output):
        torch = self.torch
        if torch._C._get_tracing_state() is not None:
            return  # sizes would be recorded as operations
        level = SEEN if torch.is_grad_enabled() else SEEN_WITHOUT_GRAD
        if level > row.seen:
            row.seen = level
            inputs = _Tensors(torch)
            inputs.add(args, 0)
            inputs.add(kwargs, 0)
            outputs = _Tensors(torch)
            outputs.add(output, 0)
            row.shapes = _described(inputs, outputs)
            if inputs.first is not None and outputs.first is not None:
                flops = _flops(torch, m, inputs, outputs, kwargs)
                if flops is not None:
                    row.shapes["flops"] = flops
        if row is row.root.rows[0]:
            self._look_at_whole(row.root, level)

    def _look_at_whole(self, root, level):
        """The forward of a network has ended: how often were its parts called in it?"""
        if level > root.done:
            root.done = level
            for row in root.rows:
                row.calls_once = row.calls - row.calls_before
            self._count(root)
        for row in root.rows:
            row.calls_before = row.calls

    def _count(self, root):
        """What the parts of a network hold. A parameter that several parts share is the first one's."""
        torch = self.torch
        known = set()
        root.totals = dict.fromkeys(("parameters", "parameter_bytes", "trainable", "buffers", "buffer_bytes"), 0)
        for row in root.rows:
            m = row.ref()
            if m is None:
                continue
            facts = _facts(torch, m, known)
            for key in root.totals:
                root.totals[key] += facts.get(key, 0)
            row.facts = facts
        m = root.rows[0].ref()
        root.totals["training"] = bool(getattr(m, "training", False))

    # -- optimizers

    def on_first_step(self, optimizer: Any) -> None:
        """An optimizer has taken its first step: now it has its state."""
        for root in self.roots:
            if not root.totals:
                self._count(root)
        if len(self.optimizers) >= MOST_OPTIMIZERS:
            self.left_out += 1
            return
        o: dict[str, Any] = {"optimizer": type(optimizer).__name__[:MOST_NAME_BYTES], "states": []}
        o.update(dict.fromkeys(("parameters", "parameter_bytes", "gradient_bytes", "state_bytes"), 0))
        for group in optimizer.param_groups:
            for p in group["params"]:
                o["parameters"] += p.numel()
                o["parameter_bytes"] += _bytes(p)
                o["gradient_bytes"] += _bytes(p.grad) if p.grad is not None else 0
                state = optimizer.state.get(p)
                for key, value in state.items() if isinstance(state, dict) else ():
                    if isinstance(value, self.torch.Tensor) and key != "step":
                        o["state_bytes"] += _bytes(value)
                        if key not in o["states"] and len(o["states"]) < MOST_TENSORS:
                            o["states"].append(str(key)[:MOST_NAME_BYTES])
        self.optimizers.append(o)

    # -- the whole

    def lines(self, steps: int) -> Iterator[Any]:
        """The table, one value a line."""
        yield {"modules": SCHEMA, "steps": steps, "compiled": self.compiled, "left_out": self.left_out}
        for root in self.roots:
            if not root.totals:
                guard.quietly(self._count, root)
            whole = {"root": root.number, "calls": root.rows[0].calls, "with_grad": root.done == SEEN}
            whole["class"] = root.rows[0].facts["class"]
            whole.update(root.rows[0].shapes)
            whole.update(root.totals)
            batch = _batch(root)
            if batch:
                whole["batch"] = batch
            yield whole
            for row in root.rows:
                if row.facts.get("leaf") or row.facts.get("parameters") or row.facts.get("tied_parameters") or row.facts.get("buffers"):
                    line = {"module": row.path, "of": root.number, "calls": row.calls, "calls_once": row.calls_once}
                    line.update(row.facts)
                    line.update(row.shapes)
                    yield line
        for o in self.optimizers:
            yield o


def _bytes(tensor):
    local = getattr(tensor, "_local_tensor", tensor)  # the part of a distributed tensor that lies here
    return local.numel() * local.element_size()


class _Tensors:
    """The shapes of the tensors in what a module takes or gives."""

    def __init__(self, torch):
        self.torch = torch
        self.first = None
        self.shapes = []
        self.elements = 0
        self.bytes = 0

    def add(self, value, depth):
        if isinstance(value, self.torch.Tensor):
            shape = [int(n) for n in value.shape]
            self.elements += value.numel()
            self.bytes += value.numel() * value.element_size()
            if self.first is None:
                self.first = (shape, str(value.dtype).replace("torch.", ""))
            if len(self.shapes) < MOST_TENSORS and len(shape) <= MOST_DIMENSIONS:
                self.shapes.append(shape)
        elif depth < MOST_DEPTH:
            if isinstance(value, dict):
                value = value.values()
            elif not isinstance(value, (list, tuple)):
                return
            for part in value:
                self.add(part, depth + 1)


def _described(inputs, outputs):
    shapes = {"inputs": inputs.shapes, "outputs": outputs.shapes, "output_elements": outputs.elements, "output_bytes": outputs.bytes}
    if outputs.first is not None:
        shapes["output_dtype"] = outputs.first[1]
    return shapes


def _facts(torch, m, known):
    facts: dict[str, Any] = {"class": type(m).__name__[:MOST_NAME_BYTES]}
    kind = _kind(torch, m)
    if kind:
        facts["kind"] = kind
    if not m._modules:
        facts["leaf"] = True
    if getattr(m, "inplace", False) is True:
        facts["inplace"] = True
    for p in m._parameters.values():
        if p is None or type(p).__name__ == "UninitializedParameter":
            continue
        if id(p) in known:
            facts["tied_parameters"] = facts.get("tied_parameters", 0) + p.numel()
            continue
        known.add(id(p))
        facts["dtype"] = str(p.dtype).replace("torch.", "")
        facts["parameters"] = facts.get("parameters", 0) + p.numel()
        facts["parameter_bytes"] = facts.get("parameter_bytes", 0) + _bytes(p)
        facts["trainable"] = facts.get("trainable", 0) + (p.numel() if p.requires_grad else 0)
    for b in m._buffers.values():
        if b is None or id(b) in known or type(b).__name__ == "UninitializedBuffer":
            continue
        known.add(id(b))
        facts["buffers"] = facts.get("buffers", 0) + b.numel()
        facts["buffer_bytes"] = facts.get("buffer_bytes", 0) + _bytes(b)
    return facts


def _kind(torch, m):
    """What sort of layer a module is, for those that have no name for its class."""
    nn = torch.nn
    for kind, classes in (
        ("linear", (nn.Linear, nn.Bilinear)),
        ("conv", (nn.modules.conv._ConvNd,)),
        ("norm", (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, getattr(nn, "RMSNorm", nn.LayerNorm))),
        ("dropout", (nn.modules.dropout._DropoutNd,)),
        ("embedding", (nn.Embedding, nn.EmbeddingBag)),
        ("attention", (nn.MultiheadAttention,)),
        ("recurrent", (nn.RNNBase, nn.RNNCellBase)),
        ("loss", (nn.modules.loss._Loss,)),
    ):
        if isinstance(m, classes):
            return kind
    if _is_conv1d(m):
        return "linear"
    home = type(m).__module__.rpartition(".")[2]
    if home.startswith("activation"):  # torch.nn's, and those of the libraries that follow its naming
        return "activation"
    if home == "pooling" and type(m).__module__.startswith("torch.nn."):
        return "pool"
    if type(m).__name__.endswith("RMSNorm"):
        return "norm"
    return ""


def _is_conv1d(m):
    """A Linear of transformers whose weight lies the other way round."""
    return type(m).__name__ == "Conv1D" and getattr(getattr(m, "weight", None), "ndim", 0) == 2


def _flops(torch, m, inputs, outputs, kwargs):
    """Floating-point operations of one forward; a multiplication and an addition are two. None where no simple rule holds."""
    nn = torch.nn
    if isinstance(m, nn.Linear):
        return 2 * outputs.elements * m.in_features
    if _is_conv1d(m):
        return 2 * outputs.elements * m.weight.shape[0]
    if isinstance(m, nn.modules.conv._ConvNd):
        window = 1
        for n in m.kernel_size:
            window *= n
        if m.transposed:
            return 2 * _product(inputs.first[0]) * (m.out_channels // m.groups) * window
        return 2 * outputs.elements * (m.in_channels // m.groups) * window
    if isinstance(m, nn.MultiheadAttention) and len(inputs.shapes) >= 3:
        return _attention_flops(m, inputs.shapes)
    return None


def _attention_flops(m, shapes):
    query, key = shapes[0], shapes[1]
    if len(query) < 2 or len(key) < 2:
        return None
    if len(query) == 2:
        batch, length, source = 1, query[0], key[0]
    elif m.batch_first:
        batch, length, source = query[0], query[1], key[1]
    else:
        batch, length, source = query[1], query[0], key[0]
    width = m.embed_dim
    projections = 2 * batch * width * (2 * length * width + source * ((m.kdim or width) + (m.vdim or width)))
    return projections + 4 * batch * length * source * width


def _product(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def _batch(root):
    """Samples in one forward: what the network was given, else what most of its parts have as their first dimension."""
    for shape in root.rows[0].shapes.get("inputs", ()):
        if len(shape) > 1:
            return shape[0]
    votes = {}
    for row in root.rows:
        for shape in row.shapes.get("outputs", ())[:1]:
            if len(shape) > 1:
                votes[shape[0]] = votes.get(shape[0], 0) + 1
    return max(votes, key=lambda size: votes[size]) if votes else 0
