"""Sizes that grow with a counter, and the functions of the program that a training step reaches, where they may."""
import ast
import inspect
import sys

from . import light, sources
from .expressions import Unknown, path_of, paths_in
from .motions import gone_through
from .sources import resolve

MOST_REACHED = 300
MOST_MODULES = 500
MOST_OF_A_CLASS = 4
DEEPEST = 7
# Functions that make tensors, all of whose positional arguments are sizes; of the others, the places of those that are.
ALL_SIZES = {"zeros", "ones", "empty", "rand", "randn", "eye", "randperm"}
SOME_SIZES = {"full": (0,), "randint": (1, 2), "linspace": (2,), "arange": (0, 1), "interpolate": (1, 2), "pad": (1,), "tile": (1,), "repeat_interleave": (1,)}
SIZE_KEYWORDS = {"size", "scale_factor", "steps", "batch_size", "num_samples"}
# Methods of tensors whose arguments are sizes of what they make.
SIZE_METHODS = {"repeat", "expand", "new_zeros", "new_ones", "new_empty", "repeat_interleave", "narrow", "tile"}


def sizes_in(node, scope):
    """The expressions of a call or a subscript that say how large what it makes is."""
    torch = sys.modules.get("torch")
    if isinstance(node, ast.Subscript):
        for part in ast.walk(node.slice):
            if isinstance(part, ast.Slice) and part.upper is not None:
                for size in width(part):
                    yield size
        return
    if not isinstance(node, ast.Call):
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    callee = resolve(node.func, scope)
    if isinstance(callee, type):
        if torch is not None and issubclass(callee, torch.nn.Module):
            for given in list(node.args) + [k.value for k in node.keywords]:
                yield given
            return
        for given in node.args[1:2] if callee.__name__ == "DataLoader" else ():
            yield given
    elif isinstance(node.func, ast.Attribute) and name in SIZE_METHODS and (callee is None or light.is_tensor(resolve(node.func.value, scope))):
        for given in node.args:
            yield given
    elif light.of_torch(getattr(callee, "__module__", None)) or getattr(resolve(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None, "__name__", "") == "torch":
        for i, given in enumerate(node.args):
            if name in ALL_SIZES or i in SOME_SIZES.get(name, ()):
                yield given
    else:
        return
    for keyword in node.keywords:
        if keyword.arg in SIZE_KEYWORDS:
            yield keyword.value


def width(part):
    """What says how wide a slice is: of one that begins and ends at moving places, the difference, where it can be seen."""
    if part.lower is None:
        yield part.upper
    elif isinstance(part.upper, ast.BinOp) and isinstance(part.upper.op, ast.Add):
        for one, other in ((part.upper.left, part.upper.right), (part.upper.right, part.upper.left)):
            if ast.dump(one) == ast.dump(part.lower):
                yield other
                return
        yield ast.BinOp(part.upper, ast.Sub(), part.lower)
    else:
        yield ast.BinOp(part.upper, ast.Sub(), part.lower)


def _bounds(loop):
    """What an inner loop counts up to: the sides of its test that it does not move itself."""
    own = sources.assignments([loop])
    for part in sources.inside([loop.test]):
        if isinstance(part, ast.Compare):
            for side in [part.left] + part.comparators:
                if not any(path in own for path, _ in paths_in(side)):
                    yield side


class Growth:
    def __init__(self, motions, scale):
        self.motions, self.scale = motions, scale

    def places(self, statements, scope, most):
        """(node, steps, whether the turns of loops alone move it) of the sizes that a later step makes larger, and when they are largest; None where that cannot be told."""
        for node in self.scale.taken(statements, scope):
            sizes = ()
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and path_of(node.iter.func) == "range":
                sizes = node.iter.args if self.scale.statements(node.body, scope) or light.keeps(node.body, scope, lambda name: True) else ()
            elif isinstance(node, ast.While):
                sizes = _bounds(node) if self.scale.statements(node.body, scope) or light.keeps(node.body, scope, lambda name: True) else ()
            elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
                sizes = self._of_comprehension(node, scope)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                sizes = [other for one, other in ((node.left, node.right), (node.right, node.left)) if isinstance(one, (ast.List, ast.Tuple)) and light.maybe_tensor(one, scope)]
            elif isinstance(node, (ast.Call, ast.Subscript)):
                sizes = sizes_in(node, scope)
            sizes = [s for s in sizes if not self._is_part(s, scope)]
            self.motions.bounding = True
            found = [g for size in sizes for g in self.grows(size, scope, most, isinstance(node, ast.Subscript))]
            self.motions.bounding = False
            if found:
                moving = [s for s in (self.motions.survey(size, scope) for size in sizes) if s.moves()]
                yield node, None if None in found else max(found), bool(moving) and all(s.by_turns() for s in moving)

    @staticmethod
    def _is_part(node, scope):
        """Whether an argument makes a part of a network, whose sizes are looked at where they are."""
        callee = resolve(node.func, scope) if isinstance(node, ast.Call) else None
        return isinstance(callee, type) and issubclass(callee, sys.modules["torch"].nn.Module)

    def _of_comprehension(self, node, scope):
        made = [node.value] if isinstance(node, ast.DictComp) else [node.elt]
        ranges = [c.iter for c in node.generators if isinstance(c.iter, ast.Call) and path_of(c.iter.func) == "range"]
        if not ranges or not (self.scale.statements(made, scope) or any(light.maybe_tensor(m, scope) for m in made)):
            return []
        return [a for r in ranges for a in r.args]

    def grows(self, size, scope, most, only_known=False):
        """When a size is larger than at the steps that were seen, and largest: steps, or None where that cannot be told; nothing where it
        never is. A difference that cannot be told is the usual one of a batch."""
        if isinstance(size, (ast.Tuple, ast.List)):
            return [g for e in size.elts for g in self.grows(e, scope, most)]
        survey = self.motions.survey(size, scope)
        if isinstance(size, ast.Starred) or not survey.moves():
            return []
        now, bounding = resolve(size, scope) if path_of(size) is not None else None, self.motions.bounding
        self.motions.bounding = bounding and type(now) is not int  # what it is, is less than what it is at most
        numbers = [n for n in self.motions.past(size, scope, survey) if isinstance(n, (int, float))] + ([now] if type(now) is int else [])
        self.motions.bounding = bounding
        largest, when, unknown = max(numbers) if numbers else None, None, False
        for ahead, answer in self.motions.future(size, scope, survey, most):
            if answer is Unknown:
                unknown = True
            elif isinstance(answer, int) and not isinstance(answer, bool) and (largest is None or answer > largest):
                largest, when = answer, ahead
        if unknown:
            return [] if only_known and isinstance(size, ast.BinOp) and isinstance(size.op, ast.Sub) and when is None else [None]
        return [] if when is None else [None if survey.own or survey.drifts else when]


class Reach:
    """The functions of the program that some statements call, with the scopes of their calls."""

    def __init__(self):
        self.scopes, self.seen, self.modules, self.codes = [], set(), set(), set()

    def statements(self, statements, scope, depth=0):
        if depth > DEEPEST:
            return
        for node in sources.inside(statements):
            if isinstance(node, ast.Call):
                self._call(node, scope, depth)
                for function in gone_through(node.func, scope):
                    self.function(function, node, scope, depth)
            elif isinstance(node, (ast.For, ast.AsyncFor)):
                self.feeder(resolve(node.iter, scope))
                for given in list(getattr(node.iter, "args", [])) + [k.value for k in getattr(node.iter, "keywords", [])]:
                    self.feeder(resolve(given, scope))

    def function(self, function, call, scope, depth, owner=None):
        if not sources.is_users_function(function) or len(self.scopes) >= MOST_REACHED or sources.code_of(function) in self.codes:
            return
        key = sources.code_of(function), id(getattr(function, "__self__", owner))
        if key in self.seen:
            return
        self.seen.add(key)
        inner = sources.called(function, call, scope)
        if inner is None:
            return
        if owner is not None and not inner.objects.keys() & {a.arg for a in inner.node.args.args[:1]} and inner.node.args.args:
            inner.objects[inner.node.args.args[0].arg] = owner
        self.scopes.append(inner)
        self.statements(sources.body_of(inner.node), inner, depth + 1)

    def _call(self, node, scope, depth):
        callee = resolve(node.func, scope)
        owner = resolve(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
        if light.is_module(callee):
            self.module(callee, node, scope, depth)
            return
        if isinstance(callee, type):
            self.function(callee.__dict__.get("__init__"), None, scope, depth)
            return
        if sources.is_users_function(callee):
            self.function(callee, node, scope, depth)
            return
        if callee is not None and sources.is_users_function(type(callee).__dict__.get("__call__")):
            self.function(type(callee).__call__.__get__(callee), node, scope, depth)
            return
        # What a library is given, it calls.
        held = list(getattr(owner, "__dict__", {}).values())[:100] if callee is not None and not isinstance(owner, (type, type(sys))) else []
        held += [v for values in held if type(values) is list for v in values[:32]]
        for given in [resolve(a, scope) for a in node.args] + [resolve(k.value, scope) for k in node.keywords] + [owner] + held:
            if given is not None:
                self.given(given, depth)

    def given(self, value, depth):
        if light.is_module(value):
            self.module(value, None, None, depth)
        if sources.is_users_function(value):
            self.function(value, None, None, depth)
        elif not isinstance(value, (type, type(sys))):
            self.methods(value, depth)

    def methods(self, value, depth):
        """Every method of an object of a class of the program's."""
        for cls in type(value).__mro__[:-1]:
            module = sys.modules.get(cls.__module__)
            if cls.__module__ != "builtins" and sources.is_users(getattr(module, "__file__", None) or ""):
                for name, method in list(cls.__dict__.items())[:100]:
                    if name != "__init__" and inspect.isfunction(method) and sources.is_users_function(method):
                        self.function(method.__get__(value) if hasattr(method, "__get__") else method, None, None, depth)

    def module(self, network, call, scope, depth):
        """The forward of a network and of all in it, and their hooks."""
        if id(network) in self.modules:
            return
        each = {}
        for i, module in enumerate(network.modules()):
            if i >= MOST_MODULES:
                break
            self.modules.add(id(module))
            each[type(module)] = each.get(type(module), 0) + 1
            if each[type(module)] <= MOST_OF_A_CLASS:
                forward = getattr(type(module), "forward", None)
                if sources.is_users_function(forward):
                    self.function(forward.__get__(module), call if module is network else None, scope if module is network else None, depth)
            for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
                for hook in list((module.__dict__.get(hooks) or {}).values())[:8]:
                    self.function(hook, None, None, depth)

    def feeder(self, value):
        """What a data loader calls for its batches; it may be made where it is read, of a data set."""
        torch = sys.modules["torch"]
        if value is None or not hasattr(type(value), "__iter__") and not isinstance(value, torch.utils.data.Dataset):
            return
        self.methods(value, 0)
        held = getattr(value, "__dict__", {})
        for name in ("dataset", "sampler", "batch_sampler"):
            if held.get(name) is not None:
                self.methods(held[name], 0)
        if held.get("collate_fn") is not None:
            self.given(held["collate_fn"], 0)
