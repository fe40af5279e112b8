"""Whether statements that were not run yet may take memory of the GPU that was not seen: printing and saving do not."""
import ast
import inspect
import sys

# What the statements do: change what the loop works on, use a model with gradients or with larger tensors; or only evaluate a model.
CHANGES, EVALUATES = "changes", "evaluates"
# Steps after a branch has opened until the peak has been seen to rest again.
STEPS_AFTER = 4
DEEPEST = 3
GRADIENTLESS = ("no_grad", "inference_mode")
# Methods of a model that compute nothing.
STILL = {
    "eval", "train", "state_dict", "zero_grad", "parameters", "named_parameters", "modules", "named_modules", "children", "register_buffer",
    "load_state_dict", "extra_repr", "__repr__",
}
# Functions of PyTorch that make no tensors worth counting; the rest may.
STILL_MODULES = ("torch.serialization", "torch.cuda", "torch.utils", "torch.distributed", "torch.optim", "torch.autograd.grad_mode", "torch.random")


def local(frame, name, default=None):
    """A local name's value. Before Python 3.13 a function's f_locals is a copy that its frame keeps: what is in it, such as the last batch, would live longer."""
    names = frame.f_locals
    try:
        return names.get(name, default)
    finally:
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(names, dict):
            names.clear()


def resolve(node, frame):
    """The object that a name or a chain of attributes stands for, as far as no code of the program has to run for it; None if not known."""
    if isinstance(node, ast.Name):
        return local(frame, node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, frame)
        if owner is None:
            return None
        try:
            held = object.__getattribute__(owner, "__dict__")
        except Exception:
            held = {}
        for place in [held] + [held.get(n) or {} for n in ("_modules", "_parameters", "_buffers") if isinstance(held.get(n), dict)]:
            if node.attr in place:
                return place[node.attr]
        for cls in type(owner).__mro__:
            if node.attr in cls.__dict__:
                return cls.__dict__[node.attr]
    return None


def _torch():
    return sys.modules.get("torch")


def _is_module(value):
    torch = _torch()
    return torch is not None and isinstance(value, torch.nn.Module)


def _code(function):
    function = getattr(function, "__wrapped__", function)
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _users_function(value):
    from . import horizon

    code = _code(value)
    return code is not None and horizon.is_users(code.co_filename)


def _without_gradients(function):
    """Whether a function turns gradients off itself, by a decorator or a block."""
    if getattr(function, "__wrapped__", None) is not None:
        for cell in getattr(function, "__closure__", None) or ():
            held = getattr(cell, "cell_contents", None)
            if type(getattr(held, "__self__", held)).__name__ in GRADIENTLESS:
                return True
    code = _code(function)
    return code is not None and any(n in code.co_names for n in GRADIENTLESS)


def _uses_model(function, depth=0):
    """Whether a function of the program's uses a model that it knows by name, itself or through others."""
    code = _code(function)
    if code is None or depth == DEEPEST:
        return False
    names = getattr(getattr(function, "__wrapped__", function), "__globals__", {})
    for name in code.co_names:
        value = names.get(name)
        if _is_module(value) or (_users_function(value) and value is not function and _uses_model(value, depth + 1)):
            return True
    return False


def _holds_module(value):
    try:
        return _is_module(value) or any(_is_module(v) for v in list(object.__getattribute__(value, "__dict__").values())[:200])
    except Exception:
        return False


def _call(node, frame):
    """What a call does."""
    callee = resolve(node.func, frame)
    torch = _torch()
    owner = resolve(node.func.value, frame) if isinstance(node.func, ast.Attribute) else None
    if _is_module(callee):
        return CHANGES
    if _is_module(owner) and not _users_function(callee):
        return None if node.func.attr in STILL else CHANGES
    if _users_function(callee):
        given = [resolve(a, frame) for a in node.args] + [resolve(k.value, frame) for k in node.keywords] + [owner]
        if _uses_model(callee) or any(_holds_module(g) for g in given if g is not None):
            return EVALUATES if _without_gradients(callee) else CHANGES
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("backward", "add_param_group", "requires_grad_"):
        return CHANGES
    if torch is not None and callee is not None:
        module = getattr(callee, "__module__", None) or ""
        made_by_torch = module.split(".")[0] == "torch" or owner is torch
        if made_by_torch and owner is not None and not isinstance(owner, torch.Tensor) and not module.startswith(STILL_MODULES):
            if node.func.attr not in GRADIENTLESS and node.func.attr not in ("save", "manual_seed", "set_grad_enabled", "device", "autocast"):
                return CHANGES
    return None


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


def _assigns(node, read, frame):
    """Whether an assignment changes a size or a tensor that the loop reads."""
    for target in _targets(node):
        if isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            return True
        key = ast.dump(target).replace("Store()", "Load()")
        if key in read and not isinstance(resolve(target, frame), (float, str, bool)):
            return True
    return False


def _names(statements):
    for statement in statements:
        for n in ast.walk(statement):
            if isinstance(n, ast.Name):
                yield n


def _largest_batch(statements, frame):
    torch = _torch()
    largest = 0
    for n in _names(statements):
        value = resolve(n, frame)
        if torch is not None and isinstance(value, torch.Tensor) and value.dim() > 1 and not isinstance(value, torch.nn.Parameter):
            largest = max(largest, value.shape[0])
    return largest


def weigh(statements, loop, frame):
    """CHANGES, EVALUATES or None for statements that the loop has not run yet, or that stand behind it."""
    own = {id(n) for s in statements for n in ast.walk(s)}
    read = {
        ast.dump(n) for n in ast.walk(loop)
        if id(n) not in own and isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)
    }
    inside_loop = any(id(n) in own for n in ast.walk(loop))
    worst = None

    def visit(node, quiet):
        nonlocal worst
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            return
        if isinstance(node, ast.Call):
            what = _call(node, frame)
            if what:
                what = EVALUATES if quiet else what
                worst = CHANGES if CHANGES in (worst, what) else what
        if inside_loop and _assigns(node, read, frame):
            worst = CHANGES
        quiet = quiet or _turns_gradients_off(node)
        for child in ast.iter_child_nodes(node):
            visit(child, quiet)

    for statement in statements:
        visit(statement, False)
    if worst == EVALUATES and _largest_batch(statements, frame) > _largest_batch([loop], frame) > 0:
        return CHANGES
    return worst
