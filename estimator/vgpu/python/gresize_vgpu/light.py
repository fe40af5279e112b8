"""Whether statements that were not run yet may take memory of the GPU that was not seen: printing and saving do not."""
import ast
import collections
import sys

from . import sources
from .motions import gone_through
from .sources import resolve

# What the statements do: change what the loop works on, use a model with gradients or with larger tensors, make tensors; or only evaluate a model.
CHANGES, EVALUATES = "changes", "evaluates"
# Steps after a branch has opened until the peak has been seen to rest again.
STEPS_AFTER = 4
DEEPEST = 4
# Nodes of a tensor whose numbers are written one by one.
MOST_WRITTEN = 256
MOST_ACTIONS = 64
# Calls of the program's functions that are looked into for one question.
MOST_CALLS = 300
GRADIENTLESS = ("no_grad", "inference_mode")
# Methods of a model that compute nothing.
STILL = {
    "eval", "train", "state_dict", "zero_grad", "parameters", "named_parameters", "modules", "named_modules", "children", "register_buffer",
    "load_state_dict", "extra_repr", "__repr__", "no_sync", "get_num_params",
    "flatten_parameters",
}
# Functions of PyTorch that make no tensors worth counting; the rest may.
STILL_MODULES = ("torch.serialization", "torch.cuda", "torch.utils", "torch.distributed", "torch.optim", "torch.autograd.grad_mode", "torch.random")
STILL_FUNCTIONS = {
    "save", "manual_seed", "set_grad_enabled", "device", "autocast", "isnan", "isinf", "isfinite", "is_tensor", "numel", "finfo", "iinfo", "Generator", "Size",
    "get_rng_state", "set_rng_state", "set_printoptions", "is_grad_enabled", "set_float32_matmul_precision", "typename", "equal", "allclose",
} | set(GRADIENTLESS)
# With one tensor and nothing else, these make one number of it.
REDUCTIONS = {"mean", "sum", "max", "min", "norm", "any", "all", "argmax", "argmin", "std", "var", "median", "prod"}
# Without a device, these make tensors where the default is.
FACTORIES = {"zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "tensor", "as_tensor", "from_numpy", "eye", "load"}
# Methods of tensors that make others, by the name alone where the object is not known.
ALLOCATES = {"clone", "repeat", "repeat_interleave", "cuda", "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"}
# Functions of PyTorch that join tensors, which are where those were.
JOINS = {"cat", "stack", "concat", "hstack", "vstack"}
KEEPS = {"append", "extend", "appendleft", "insert", "add", "put"}
# What makes plain values, or tensors of the host.
TO_HOST = {"item", "cpu", "numpy", "tolist", "size", "numel", "dim", "keys", "format", "join"}


def _torch():
    return sys.modules.get("torch")


def is_module(value):
    torch = _torch()
    return torch is not None and issubclass(type(value), torch.nn.Module)


def is_tensor(value):
    torch = _torch()
    return torch is not None and issubclass(type(value), torch.Tensor)


def of_torch(module):
    """Whether a module, by its name, is one of PyTorch's: torchtitan is none."""
    return (module or "").split(".")[0] == "torch"


def _without_gradients(function):
    """Whether a function turns gradients off itself, by a decorator or a block."""
    around = function
    for _ in range(sources.DEEPEST):
        if getattr(around, "__wrapped__", None) is None:
            break
        for cell in getattr(around, "__closure__", None) or ():
            held = getattr(cell, "cell_contents", None)
            if type(getattr(held, "__self__", held)).__name__ in GRADIENTLESS:
                return True
        around = around.__wrapped__
    code = sources.code_of(function)
    return code is not None and any(n in code.co_names for n in GRADIENTLESS)


def _uses_model(function, depth=0):
    """Whether a function of the program's uses a model that it knows by name, itself or through others."""
    code = sources.code_of(function)
    if code is None or depth == DEEPEST:
        return False
    names = getattr(sources.unwrapped(function), "__globals__", {})
    for name in code.co_names:
        value = names.get(name)
        if is_module(value) or (sources.is_users_function(value) and value is not function and _uses_model(value, depth + 1)):
            return True
    return False


def _holds_module(value):
    try:
        return is_module(value) or any(is_module(v) for v in list(object.__getattribute__(value, "__dict__").values())[:200])
    except Exception:
        return False


def _default_is_host():
    torch = _torch()
    try:
        return torch.get_default_device().type == "cpu"
    except AttributeError:  # before 2.3
        return torch.empty(0).device.type == "cpu"


def on_host(node, scope):
    """Whether a factory of tensors makes one of the host."""
    device = next((k.value for k in node.keywords if k.arg == "device"), None)
    if device is None:
        return _default_is_host()
    return _is_host_device(device, scope)


def _is_written_out(node, name):
    """Whether a tensor is made of a few numbers that are written one by one, such as `torch.tensor([[action]])`."""
    if name not in ("tensor", "as_tensor") or not node.args:
        return False
    inside = list(ast.walk(node.args[0]))
    plain = all(isinstance(n, (ast.List, ast.Tuple, ast.Constant, ast.Call, ast.Attribute, ast.Name, ast.expr_context)) for n in inside)
    innermost = [e for n in inside if isinstance(n, (ast.List, ast.Tuple)) for e in n.elts if not isinstance(e, (ast.List, ast.Tuple))]
    return plain and bool(innermost) and len(inside) <= MOST_WRITTEN and all(isinstance(e, ast.Constant) or _is_choice(e) for e in innermost)


def _is_choice(node):
    """Whether a call says one number that a network or a policy chose, or one of a few: it is an action, and no size."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("randrange", "randint"):
        return bool(node.args) and all(isinstance(a, ast.Constant) and type(a.value) is int and a.value <= MOST_ACTIONS for a in node.args)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (node.func.attr == "item" or node.func.attr == "sample" and not node.args)


def _is_host_device(node, scope):
    value = node.value if isinstance(node, ast.Constant) else resolve(node, scope)
    return str(value).startswith("cpu")


def _of_optimizer(scope):
    """Whether a function is a method of an optimizer: they all work without gradients, and what they make stays."""
    torch, owner = _torch(), next(iter(getattr(scope, "objects", {}).values()), None)
    return torch is not None and issubclass(type(owner), torch.optim.Optimizer)


def stores(statements, scope):
    """Whether statements of a function put a tensor, or a copy of a network, into an object that outlives its call."""
    for node in sources.inside(statements):
        if not isinstance(node, ast.Assign) or not isinstance(scope, sources.Called):
            continue
        for target in node.targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)) and not _is_slice(target) and _lasts(target, lambda name: name not in scope.assigned()):
                made = [n for n in ast.walk(node.value) if isinstance(n, ast.Call)]
                if any(_is_copy(n, scope) for n in made) or made and maybe_tensor(node.value, scope):
                    return True
    return False


def _is_slice(target):
    """Whether an assignment writes into what is there already."""
    return isinstance(target, ast.Subscript) and any(isinstance(n, ast.Slice) for n in ast.walk(target.slice)) or isinstance(target, ast.Attribute) and target.attr == "data"


def _is_copy(call, scope):
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "deepcopy" and _copied_tensors(call, scope)


def _goes_to_device(node, scope):
    """Whether x.to(...) names a device that is not the host."""
    torch = _torch()
    for given in list(node.args[:1]) + [k.value for k in node.keywords if k.arg == "device"]:
        value = given.value if isinstance(given, ast.Constant) else resolve(given, scope)
        if isinstance(value, str) or torch is not None and isinstance(value, torch.device):
            return not str(value).startswith("cpu")
        if value is None and "dev" in ast.dump(given).lower():
            return True
    return False


class Scale:
    """Weighs statements; what it has looked into once it does not look into again."""

    def __init__(self, always=lambda test, scope: None):
        self.calls = MOST_CALLS
        self.known = {}
        self.usual_batch = 0  # of what the loop gives to a network, where that is known
        self.largest_batch = 0  # of what the statements that are weighed give to one
        self.always = always  # says which side of a branch is always taken, where that is known

    def call(self, node, scope):
        """What a call does, at worst."""
        found = [self._call(node, scope)] + [self.function(f, node, scope, [getattr(f, "__self__", None)]) for f in gone_through(node.func, scope)]
        return CHANGES if CHANGES in found else EVALUATES if EVALUATES in found else None

    def _call(self, node, scope):
        callee = resolve(node.func, scope)
        torch = _torch()
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = resolve(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
        if name == "deepcopy" and "copy" in (getattr(callee, "__module__", None) or "copy"):
            return CHANGES if _copied_tensors(node, scope) else None
        if is_module(callee):
            self.largest_batch = max(self.largest_batch, largest_given([node], scope))
            return CHANGES
        if is_module(owner) and not sources.is_users_function(callee):
            return None if name in STILL else CHANGES
        if isinstance(callee, type):
            if torch is not None and issubclass(callee, torch.nn.Module):
                return CHANGES
            init = callee.__dict__.get("__init__")
            return self.function(init, node, scope, []) if sources.is_users_function(init) else None
        if sources.is_users_function(callee):
            given = [resolve(a, scope) for a in node.args] + [resolve(k.value, scope) for k in node.keywords] + [owner]
            return self.function(callee, node, scope, given)
        if name in ("backward", "add_param_group", "requires_grad_"):
            return CHANGES
        if torch is not None and callee is not None and owner is not None and not is_tensor(owner):
            module = getattr(callee, "__module__", None) or ""
            if (of_torch(module) or owner is torch) and not module.startswith(STILL_MODULES) and name not in STILL_FUNCTIONS:
                small = name in REDUCTIONS and len(node.args) == 1 and not node.keywords
                return None if small or name in FACTORIES and (on_host(node, scope) or _is_written_out(node, name)) else CHANGES
        if isinstance(node.func, ast.Attribute) and (owner is None and callee is None or is_tensor(owner)):
            if name in ALLOCATES or name == "to" and _goes_to_device(node, scope):
                return CHANGES
        return None

    def function(self, function, node, scope, given):
        """What a function of the program's does."""
        inner = sources.called(function, node, scope)
        if inner is None or inner.depth > DEEPEST or self.calls <= 0:
            uses = _uses_model(function) or any(_holds_module(g) for g in given if g is not None)
            what = CHANGES if uses else None
        else:
            key = id(sources.code_of(function)), tuple(id(g) for g in given)
            if key in self.known:
                return self.known[key]
            self.known[key] = None  # of a function that calls itself
            self.calls -= 1
            what = self.statements(sources.body_of(inner.node), inner)
        if what == CHANGES and _without_gradients(function) and not (inner is not None and (_of_optimizer(inner) or stores(sources.body_of(inner.node), inner))):
            what = EVALUATES
        if inner is not None:
            self.known[id(sources.code_of(function)), tuple(id(g) for g in given)] = what
        return what

    def statements(self, statements, scope, also=None):
        """The worst that a call among these statements does; also(node) may say that a node changes something by itself."""
        worst = None

        def visit(node, quiet):
            nonlocal worst
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                return
            if isinstance(node, ast.Call):
                what = self.call(node, scope)
                if what:
                    what = EVALUATES if quiet and not _of_optimizer(scope) else what
                    worst = CHANGES if CHANGES in (worst, what) else what
            if _wants_gradients(node) or quiet and stores([node], scope) or also is not None and also(node):
                worst = CHANGES
            quiet = quiet or _turns_gradients_off(node)
            children = ast.iter_child_nodes(node)
            taken = self.always(node.test, scope) if isinstance(node, ast.If) else None
            if taken is not None:
                children = [node.test] + (node.body if taken else node.orelse)
            for child in children:
                visit(child, quiet)

        for statement in statements:
            visit(statement, False)
        return worst

    def taken(self, statements, scope):
        """The nodes of statements, without the sides of branches that no step takes."""
        stack = list(statements)[::-1]
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            yield node
            children = list(ast.iter_child_nodes(node))
            taken = self.always(node.test, scope) if isinstance(node, ast.If) else None
            if taken is not None:
                children = [node.test] + (node.body if taken else node.orelse)
            stack.extend(children[::-1])

    def weigh(self, statements, loop, scope):
        """CHANGES, EVALUATES or None for statements that the loop has not run yet, or that stand behind it. Without a loop, of a function."""
        if loop is None:
            return self.statements(statements, scope)
        own = {id(n) for s in statements for n in ast.walk(s) if isinstance(n, (ast.expr, ast.stmt))}  # a parser has one node for all contexts
        read, inside_loop = set(), False
        for n in ast.walk(loop):
            if id(n) in own:
                inside_loop = True
            elif isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load):
                read.add(ast.dump(n))
        self.largest_batch = 0
        worst = self.statements(statements, scope, (lambda node: _assigns(node, read, scope)) if inside_loop else None)
        if worst == EVALUATES and self.largest_batch > (self.usual_batch or _largest_batch([loop], scope)) > 0:
            return CHANGES
        return worst


def _copied_tensors(call, scope):
    """Whether a copy of everything below an object may hold tensors: of what is plain, it does not."""
    if not call.args:
        return False
    value = resolve(call.args[0], scope)
    return value is None or not isinstance(value, (int, float, str, bool)) and not _plain_container(value)


def _plain_container(value, depth=0):
    if isinstance(value, dict):
        value = list(value.values())
    if type(value).__name__ == "Namespace" or type(value) in (list, tuple, set) and depth < 3:
        parts = list(vars(value).values()) if type(value).__name__ == "Namespace" else list(value)
        return all(isinstance(v, (int, float, str, bool, type(None))) or _plain_container(v, depth + 1) for v in parts[:100])
    return False


def _wants_gradients(node):
    if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Constant) and not node.value.value:
        return False
    return any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets)


def _turns_gradients_off(node):
    return isinstance(node, ast.With) and any(
        isinstance(n, ast.Attribute) and n.attr in GRADIENTLESS or isinstance(n, ast.Name) and n.id in GRADIENTLESS
        for item in node.items for n in ast.walk(item.context_expr)
    )


def _targets(node):
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    else:
        return
    for target in targets:
        for n in ast.walk(target):
            if isinstance(n, (ast.Name, ast.Attribute)):
                yield n


def _assigns(node, read, scope):
    """Whether an assignment changes a size or a tensor that the loop reads."""
    for target in _targets(node):
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            return True
        if _is_choice(node.value):
            continue
        key = ast.dump(target).replace("Store()", "Load()")
        if key in read and not isinstance(resolve(target, scope), (float, str, bool)):
            return True
    return False


def _largest_batch(statements, scope):
    """The most rows of any tensor that has a name in some statements."""
    return max([_rows(resolve(n, scope)) for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)] or [0])


def largest_given(statements, scope):
    """The most rows of any tensor that these statements give to a network."""
    calls = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Call) and is_module(resolve(n.func, scope))]
    return max([_rows(resolve(a, scope)) for call in calls for a in call.args] or [0])


def _rows(value):
    return value.shape[0] if is_tensor(value) and value.dim() > 1 and not isinstance(value, _torch().nn.Parameter) else 0


def keeps(statements, scope, lasting):
    """Whether statements put a tensor of the GPU into something that outlives them; lasting(name) says what does."""
    for node in sources.inside(statements):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
            owner = resolve(node.func.value, scope)
            bounded = isinstance(owner, collections.deque) and owner.maxlen is not None
            if not bounded and owner is not None and isinstance(owner, (list, set, collections.deque)) and _lasts(node.func.value, lasting):
                if any(maybe_tensor(a, scope) for a in node.args):
                    return True
        if isinstance(node, ast.Call) and _keeps_by_key(node, scope, lasting):
            return True
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and type(resolve(node.target, scope)) is list and _lasts(node.target, lasting):
            if maybe_tensor(node.value, scope):
                return True
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) and isinstance(resolve(node.targets[0].value, scope), dict):
            if not isinstance(getattr(node.targets[0].slice, "value", node.targets[0].slice), (ast.Constant, str)) and _lasts(node.targets[0].value, lasting):
                if maybe_tensor(node.value, scope):
                    return True
    return False


def _keeps_by_key(call, scope, lasting):
    """Whether a call puts a tensor into a table under a key of its own, into a list in a table, or on a heap."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "heappush" and len(call.args) == 2:
        return type(resolve(call.args[0], scope)) is list and _lasts(call.args[0], lasting) and maybe_tensor(call.args[1], scope)
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, value = call.func.value, resolve(call.func.value, scope)
    if isinstance(value, dict) and _lasts(owner, lasting):
        if name == "update":
            tables = [a for a in call.args if isinstance(a, ast.Dict)]
            return any(not isinstance(k, ast.Constant) and maybe_tensor(v, scope) for t in tables for k, v in zip(t.keys, t.values))
        return name in ("setdefault", "__setitem__") and len(call.args) == 2 and not isinstance(call.args[0], ast.Constant) and maybe_tensor(call.args[1], scope)
    if name in KEEPS and value is None and isinstance(owner, ast.Subscript) and isinstance(resolve(owner.value, scope), dict) and _lasts(owner, lasting):
        return any(maybe_tensor(a, scope) for a in call.args)
    return False


def _lasts(node, lasting):
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and lasting(node.id)


def maybe_tensor(node, scope, depth=0):
    """Whether an expression may be a tensor of the GPU: by what it stands for now, or by how it is made."""
    if depth > 6:
        return False
    value = resolve(node, scope)
    if value is not None:
        return is_tensor(value) and value.is_cuda
    if isinstance(node, ast.Name) and isinstance(scope, sources.Called) and node.id in scope.assigned():
        return any(v is not None and maybe_tensor(v, scope, depth + 1) for v in scope.assigned()[node.id])
    if isinstance(node, ast.Name) and isinstance(scope, sources.Called) and node.id in scope.arguments:
        return maybe_tensor(scope.arguments[node.id], scope.caller, depth + 1)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in TO_HOST:
            return False
        callee = resolve(node.func, scope)
        if isinstance(node.func, ast.Attribute) and resolve(node.func.value, scope) is _torch() and name in JOINS:
            return any(maybe_tensor(a, scope, depth + 1) for a in node.args)
        if is_module(callee) or of_torch(getattr(callee, "__module__", None)):
            return not (name in FACTORIES and on_host(node, scope))
        return isinstance(node.func, ast.Attribute) and (name in ALLOCATES or name in ("detach", "requires_grad_") or maybe_tensor(node.func.value, scope, depth + 1))
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return maybe_tensor(node.elt, scope, depth + 1)
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(maybe_tensor(e, scope, depth + 1) for e in node.elts)
    if isinstance(node, ast.Dict):
        return any(v is not None and maybe_tensor(v, scope, depth + 1) for v in node.values)
    if isinstance(node, ast.BinOp):
        return maybe_tensor(node.left, scope, depth + 1) or maybe_tensor(node.right, scope, depth + 1)
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return maybe_tensor(node.value, scope, depth + 1) if not (isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "device")) else False
    return False
