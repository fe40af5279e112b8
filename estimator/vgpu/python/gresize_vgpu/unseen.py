"""Whether an evaluation that was not reached makes sizes of its own: without gradients a network needs less than its training does, unless it gets more.

What the loop was seen to work on is measured in the same way as what an evaluation would: rows and elements of the tensors that are made, cut out or
given to a network, batches of data loaders, numbers that functions of the program are called with. What is larger, or cannot be told, is a size of its own.
"""
import ast
import math
import sys

from . import light, sources
from .expressions import PLAIN, Unknown, evaluate, path_of
from .growth import width
from .motions import gone_through
from .sources import resolve

DEEPEST = 6
MOST_CALLS = 300
# So many elements are no size to speak of.
SMALL_ELEMENTS = 1 << 16
# Functions that make what a network is asked with, and those of which that shows in what becomes of them.
DRAWN = {"randn", "rand", "randint", "normal", "randperm", "uniform", "random", "standard_normal", "permutation", "integers", "choice"}
FILLED = {"zeros", "ones", "empty", "full", "eye", "arange", "linspace", "tensor", "as_tensor", "new_zeros", "new_ones", "new_empty", "new_full"}
# Where the shape stands, of those that are not given it by all that they are given.
SHAPE_AT = {"full": 0, "new_full": 0, "normal": 2, "uniform": 2, "random": 0, "standard_normal": 0, "choice": 1}
LENGTHS = ("max_new_tokens", "max_length", "max_len", "num_beams")


class OfATensor(Unknown):
    """A size that is that of a tensor."""


def _leaf(node, scope, local, depth):
    """The value of a plain name, followed through what it is assigned and given."""
    found = resolve(node, scope)
    if isinstance(found, PLAIN):
        return found
    for value, where in _sources(node, scope, local):
        if depth < DEEPEST and value is not None:
            return number(value, where, local, depth + 1)
    raise Unknown()


def _sources(node, scope, local):
    """(expression, scope) of the one thing that a name is assigned, or given as an argument."""
    if not isinstance(node, ast.Name):
        return []
    inside = isinstance(scope, sources.Called)
    values = (scope.assigned() if inside else local).get(node.id, [])
    if values:
        return [(values[0], scope)] if len(values) == 1 and not isinstance(values[0], (ast.AugAssign, ast.For)) else []
    return [(scope.arguments[node.id], scope.caller)] if inside and node.id in scope.arguments else []


def number(node, scope, local, depth=0):
    """The value of a size. Raises Unknown."""
    if _is_of_a_tensor(node, scope, local):
        raise OfATensor()
    return evaluate(node, lambda path, where: _leaf(where, scope, local, depth))


def _is_of_a_tensor(node, scope, local):
    """Whether a size is asked of a tensor, and not made larger."""
    asked = False
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and not isinstance(part.op, (ast.FloorDiv, ast.Div, ast.Sub, ast.Mod)):
            return False
        if isinstance(part, ast.Attribute) and part.attr in ("shape", "size", "numel") or isinstance(part, ast.Call) and path_of(part.func) == "len":
            asked = True
        if isinstance(part, ast.Name) and _unpacked(part.id, scope, local):
            asked = True
    return asked


def _unpacked(name, scope, local):
    """Whether a name comes out of the shape of a tensor: `b, t = x.shape`."""
    if not isinstance(scope, sources.Called) or None not in scope.assigned().get(name, []):
        return False
    for node in sources.inside(sources.body_of(scope.node)):
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.Name) and n.id == name for t in node.targets for n in ast.walk(t)):
            if any(isinstance(n, ast.Attribute) and n.attr in ("shape", "size") for n in ast.walk(node.value)):
                return True
    return False


def dims(node, scope, local, depth=0):
    """The sizes of a shape; None for one that is that of a tensor. Raises Unknown."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return [d for e in node.elts for d in dims(e.value if isinstance(e, ast.Starred) else e, scope, local, depth)]
    if isinstance(node, ast.Starred):
        return dims(node.value, scope, local, depth)
    found = resolve(node, scope) if path_of(node) else None
    if isinstance(found, (tuple, list)) and all(type(d) is int for d in found):
        return list(found)
    for value, where in _sources(node, scope, local) if found is None else ():
        if depth < DEEPEST and value is not None:
            return dims(value, where, local, depth + 1)
    try:
        value = number(node, scope, local, depth)
    except OfATensor:
        return [None]
    if not isinstance(value, (int, float)):
        raise Unknown()
    return [int(value)]


def _shape(name, node, numpy):
    """The nodes that say the shape of what a factory makes; None where it is given none."""
    for keyword in node.keywords:
        if keyword.arg in ("size", "shape"):
            return [keyword.value]
    args = list(node.args)
    if name in ("randint", "integers"):
        if numpy:
            return args[2:3]
        return [a for a in args[1:] if isinstance(a, (ast.Tuple, ast.List)) or len(args) == 3 and a is args[2]] or args[-1:]
    if name in ("randperm", "permutation", "eye"):
        return args[:1] * (2 if name == "eye" and len(args) == 1 else 1)
    if name == "arange":
        return args[:1] if len(args) == 1 else args[1:2]
    if name == "linspace":
        return args[2:3] or [k.value for k in node.keywords if k.arg == "steps"]
    if name in ("tensor", "as_tensor"):
        return [side for a in args[:1] if isinstance(a, ast.BinOp) and isinstance(a.op, ast.Mult) for side in (a.left, a.right) if not isinstance(side, ast.List)]
    if name in SHAPE_AT and not (numpy and name == "full" and not args):
        return args[SHAPE_AT[name]:SHAPE_AT[name] + 1]
    return args


def _factory(node, scope):
    """(name, whether of numpy) of a call that makes a tensor."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in DRAWN and name not in FILLED:
        return None
    if name.startswith("new_"):
        return name, False
    owner = resolve(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
    module = getattr(owner, "__name__", None) or type(owner).__module__
    if owner is None:
        callee = resolve(node.func, scope)
        module = getattr(callee, "__module__", None) or ""
    if not isinstance(module, str) or module.split(".")[0] not in ("torch", "numpy") or module.startswith("torch.distributions"):
        return None
    return name, module.startswith("numpy")


def _tensor_given(node, scope):
    """The tensor that is given, perhaps after it was moved."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cuda", "to", "float", "long", "contiguous"):
        node = node.func.value
    found = resolve(node, scope)
    return found if light.is_tensor(found) and found.dim() > 1 and not isinstance(found, sys.modules["torch"].nn.Parameter) else None


class Size:
    """What a node makes: rows and elements, None where they are those of another tensor; unknown where nobody can tell."""

    def __init__(self, rows=None, elements=None, loader=False, length=None, unknown=False):
        self.rows, self.elements, self.loader, self.length, self.unknown = rows, elements, loader, length, unknown


def measure(node, scope, local, body):
    """The sizes that a node makes."""
    if isinstance(node, ast.Subscript):
        return _cut_out(node, scope, local)
    if not isinstance(node, ast.Call):
        return None
    callee = resolve(node.func, scope)
    if isinstance(callee, type) and any(c.__name__ == "DataLoader" for c in callee.__mro__):
        return _loader(node, scope, local)
    if light.is_module(callee):
        rows = [t.shape for t in (_tensor_given(a, scope) for a in node.args) if t is not None]
        return Size(max(s[0] for s in rows), max(s.numel() for s in rows)) if rows else None
    made = _factory(node, scope)
    return _made(node, made, scope, local, body) if made else None


def _cut_out(node, scope, local):
    key = node.slice.value if type(node.slice).__name__ == "Index" else node.slice
    if isinstance(key, ast.Tuple) and key.elts:
        key = key.elts[0]
    base = resolve(node.value, scope)
    if not isinstance(key, ast.Slice) or key.upper is None:
        return None
    if not (light.is_tensor(base) and base.dim() > 1 or type(base).__module__ == "numpy" or key.lower is not None and _of_samples(base)):
        return None
    try:
        widths = [number(w, scope, local) for w in width(key)]
    except Exception:
        return None
    return Size(rows=widths[0]) if widths and type(widths[0]) is int and widths[0] > 0 else None


def _of_samples(base):
    """Whether a list holds samples, of which a part becomes a batch: sequences, texts, or rows of several things."""
    return type(base) in (list, tuple) and bool(base) and (light.is_tensor(base[0]) or isinstance(base[0], (str, list, tuple, dict)))


def _loader(node, scope, local):
    given = [k.value for k in node.keywords if k.arg == "batch_size"] + node.args[1:2]
    if any(k.arg in ("batch_sampler", None) for k in node.keywords):
        return Size(loader=True, unknown=True)
    if not given:
        return Size(rows=1, loader=True)
    try:
        rows = number(given[0], scope, local) or 1  # with None, the data set gives batches itself
        return Size(rows=rows, loader=True) if type(rows) is int else Size(loader=True, unknown=True)
    except Exception:
        return Size(loader=True, unknown=True)


def _made(node, made, scope, local, body):
    name, numpy = made
    drawn = name in DRAWN
    if not drawn:
        host = numpy or not name.startswith("new_") and light.on_host(node, scope)
        used = _is_used(node, scope, body)
        if host and not used:
            return None
    shape = _shape(name, node, numpy)
    if not shape:
        return None
    try:
        sizes = [d for s in shape for d in dims(s, scope, local)]
    except Exception:
        return Size(unknown=True)
    if not sizes:
        return None
    known = [d for d in sizes if d is not None]
    elements = math.prod(known) if len(known) == len(sizes) else None
    if not drawn and (not used or len(sizes) == 1):
        return Size(elements=elements, length=sizes[1] if len(sizes) > 1 else None)
    return Size(sizes[0], elements, length=sizes[1] if len(sizes) > 1 else None)


def _is_used(node, scope, body):
    """Whether what is made goes to a network, a function of the program's or the card, and is no place for results."""
    parents = {id(child): parent for s in body for parent in ast.walk(s) for child in ast.iter_child_nodes(parent)}

    def goes(node, depth):
        parent = parents.get(id(node))
        if isinstance(parent, ast.Attribute) and isinstance(parents.get(id(parent)), ast.Call):
            return parent.attr in ("cuda", "to") or goes(parents[id(parent)], depth)
        if isinstance(parent, ast.Call):
            callee = resolve(parent.func, scope)
            return light.is_module(callee) or sources.is_users_function(callee)
        if isinstance(parent, ast.Assign) and depth < 2:
            names = {t.id for t in parent.targets if isinstance(t, ast.Name)}
            uses = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names]
            return any(goes(n, depth + 1) for n in uses)
        return isinstance(parent, ast.Return)

    return goes(node, 0)


def casts(statements, scope):
    """Whether statements open an autocast; None where a block is opened that nobody knows."""
    unknown = False
    for node in sources.inside(statements):
        for item in node.items if isinstance(node, (ast.With, ast.AsyncWith)) else ():
            context = item.context_expr
            text = context.func if isinstance(context, ast.Call) else context
            name = text.attr if isinstance(text, ast.Attribute) else getattr(text, "id", "")
            off = isinstance(context, ast.Call) and any(k.arg == "enabled" and not _may_be(k.value, scope) for k in context.keywords)
            held = type(resolve(context, scope)).__name__
            if name == "autocast" and not off or held == "autocast":
                return True
            if name not in light.GRADIENTLESS + ("set_grad_enabled", "open") and held == "NoneType":
                unknown = True
    return None if unknown else False


def _may_be(node, scope):
    try:
        return bool(number(node, scope, {}))
    except Exception:
        return resolve(node, scope) is not None and resolve(node, scope) is not False


class Seen:
    """What the loops around a step were seen to work on."""

    def __init__(self, motions, always, loader_rows):
        self.motions, self.always = motions, always
        self.loader_rows = self.rows = loader_rows
        self.named = 0  # rows of tensors that have a name, which need not be a batch
        self.elements, self.length = SMALL_ELEMENTS, 0
        self.called = {}  # code -> scopes of its calls
        self.casts = False
        self.left = MOST_CALLS

    def loops(self, frames):
        """frames are (frame, moment, loops), the innermost first: of those below a loop all tensors are of the step, of the others those that the loop assigns."""
        for frame, moment, loops in frames:
            node = loops[-1].node if loops else sources.definition_of(frame.f_code)
            if node is None or getattr(moment, "names", None) is None:
                continue
            names = set(sources.assignments([node] if loops else sources.body_of(node)))
            names.update(() if loops else frame.f_code.co_varnames[: frame.f_code.co_argcount])
            for name in names & set(moment.names):
                self._tensors(moment.names[name])
            statements = [node] if loops else sources.body_of(node)
            self._walk(statements, moment, sources.assignments(statements), 0)
            if loops:
                break
        self.rows = self.rows or self.named

    def _tensors(self, value, depth=0):
        if light.is_tensor(value) and value.dim() and not value.requires_grad:
            self.named = max(self.named, value.shape[0] if value.dim() > 1 else 0)
            self.length = max(self.length, value.shape[1] if value.dim() > 1 else 0)
            self.elements = max(self.elements, value.numel())
        elif depth < 2 and (type(value) in (list, tuple) or isinstance(value, dict)):
            for v in list(value.values() if isinstance(value, dict) else value)[:16]:
                self._tensors(v, depth + 1)

    def _walk(self, statements, scope, local, depth):
        self.casts = self.casts or casts(statements, scope) is True
        for node in self._taken(statements, scope):
            size = measure(node, scope, local, statements)
            if size is not None and not size.unknown and not size.loader:
                self.rows = max(self.rows, size.rows or 0)
                self.elements, self.length = max(self.elements, size.elements or 0), max(self.length, size.length or 0)
            if isinstance(node, ast.Call):
                inner = _inner(node, scope)
                if inner is not None and depth < DEEPEST and self.left > 0:
                    self.left -= 1
                    calls = self.called.setdefault(sources.code_of(inner.function), [])
                    calls.append(inner)
                    if len(calls) <= 3:
                        self._walk(sources.body_of(inner.node), inner, local, depth + 1)

    def _taken(self, statements, scope):
        """The nodes that were run, as far as the tests of branches tell."""
        stack = list(statements)[::-1]
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            yield node
            children = list(ast.iter_child_nodes(node))
            if isinstance(node, ast.If):
                always, survey = self.always(node.test, scope), self.motions.survey(node.test, scope)
                answers = {True, False} if not survey.moves() else {bool(v) for v in self.motions.past(node.test, scope, survey, node.test.lineno)}
                answers = answers if always is None else {always}
                children = [node.test] + (node.body if True in answers else []) + (node.orelse if False in answers else [])
            stack.extend(children[::-1])


def _inner(node, scope):
    """The scope of a call of a function of the program's."""
    callee = resolve(node.func, scope)
    return sources.called(callee, node, scope) if sources.is_users_function(callee) else None


class Unseen:
    """Looks for sizes of their own in statements that were not reached."""

    def __init__(self, seen, always):
        self.seen, self.always = seen, always
        self.left = MOST_CALLS

    def own(self, statements, scope):
        """Whether these statements, which evaluate a network, make sizes that the training was not seen to have."""
        self.uses_network, self.casts, visited = False, False, set()
        if self._own(statements, scope, sources.assignments(statements), 0, visited):
            return True
        return self.seen.casts and self.uses_network and self.casts is False

    def _own(self, statements, scope, local, depth, visited):
        found = casts(statements, scope)
        self.casts = True if found or self.casts else None if found is None or self.casts is None else False
        for node in light.Scale(self.always).taken(statements, scope):
            size = measure(node, scope, local, statements)
            if size is not None and self._larger(size):
                return True
            if isinstance(node, ast.Call) and self._call(node, scope, local, depth, visited):
                return True
        return False

    def _larger(self, size):
        if size.unknown:
            return True
        if size.loader:
            return size.rows > (self.seen.loader_rows or self.seen.rows)
        return (size.rows or 0) > max(self.seen.rows, 1) or (size.elements or 0) > self.seen.elements

    def _call(self, node, scope, local, depth, visited):
        through = [sources.called(f, node, scope) for f in gone_through(node.func, scope)]
        if any(inner is not None and self._inside(inner, local, depth, visited) for inner in through):
            return True
        callee = resolve(node.func, scope)
        if light.is_module(callee):
            self.uses_network = True
            return False
        inner = _inner(node, scope)
        if inner is None:
            return getattr(node.func, "attr", "") == "generate" and light.is_module(resolve(node.func.value, scope)) and self._generates(node, scope, local)
        return self._inside(inner, local, depth, visited)

    def _inside(self, inner, local, depth, visited):
        code = sources.code_of(inner.function)
        key = code, tuple(sorted((n, ast.dump(a)) for n, a in inner.arguments.items()))
        if key in visited or depth >= DEEPEST or self.left <= 0:
            return False
        visited.add(key)
        self.left -= 1
        if self._given_more(inner, self.seen.called.get(code, ()), local):
            return True
        return self._own(sources.body_of(inner.node), inner, local, depth + 1, visited)

    def _given_more(self, inner, calls, local):
        """Whether a function that makes tensors is called with a larger number than the training calls it with."""
        for name, given in inner.arguments.items():
            before = [c.arguments[name] for c in calls if name in c.arguments]
            if not before or any(ast.dump(b) == ast.dump(given) for b in before):
                continue
            try:
                most = max(number(b, c.caller, {}) for c in calls for b in [c.arguments.get(name)] if b is not None)
            except Exception:
                continue
            try:
                value = number(given, inner.caller, local)
                if type(value) is int and type(most) is int and value > most and self._makes(inner):
                    return True
            except OfATensor:
                continue
            except Exception:
                if type(most) is int and any(isinstance(n, ast.BinOp) for n in ast.walk(given)) and self._makes(inner):
                    return True
        return False

    def _makes(self, inner):
        scale = light.Scale(self.always)
        return scale.function(inner.function, None, inner.caller, []) is not None or any(
            isinstance(n, ast.Attribute) and n.attr in ("cuda", "to") for n in sources.inside(sources.body_of(inner.node)))

    def _generates(self, node, scope, local):
        """A library that makes one token after the other keeps them all; how many, it is told, or its settings say."""
        told = [k.value for k in node.keywords if k.arg in LENGTHS[:3]]
        try:
            return not told or any(number(t, scope, local) > self.seen.length for t in told) or any(k.arg == LENGTHS[3] for k in node.keywords)
        except Exception:
            return True
