"""Tensors that are gathered in what is made anew from itself, such as `bank = torch.cat([bank, x])` and `kept = kept + [x]`, and how little some of them are."""
import ast

from . import light, sources
from .expressions import path_of
from .sources import resolve

JOINS = light.JOINS | {"concatenate", "column_stack", "row_stack", "dstack"}
# What goes on a card for a number of its own: one block of the allocator's.
LEAST_BYTES = 512
# Methods that give no more than what they are asked of, and those that give one number.
PASS_ON = {"detach", "clone", "view", "reshape", "unsqueeze", "squeeze", "flatten", "float", "half", "contiguous", "cpu", "data"}
NUMBERS = {"mean", "sum", "norm", "item", "max", "min", "std"}


def gathers(statements, scope, own):
    """Whether statements make something larger that outlives them by a tensor of the GPU, from itself. own: path -> what the loop, or the function, assigns to it."""
    return any(_gathers(node, scope, own) for node in sources.inside(statements))


def _gathers(node, scope, own):
    for path, target, value in _made(node):
        if _lasts(path, scope, own) and not any(isinstance(v, ast.Subscript) and _mentions(v, path) for v in own.get(path, []) if v is not None):
            if isinstance(node, ast.AugAssign):
                if isinstance(resolve(target, scope), (list, tuple)) and _adds([value], scope):
                    return True
            elif _larger(value, path, scope):
                return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in light.KEEPS:
        table = node.func.value
        if isinstance(table, ast.Call) and isinstance(table.func, ast.Attribute) and table.func.attr in ("setdefault", "get"):
            path = path_of(table.func.value)
            return path is not None and isinstance(resolve(table.func.value, scope), dict) and _lasts(path, scope, own) and _adds(node.args, scope)
    return False


def _made(node):
    """(path, node that says it, what it is made) of an assignment, or of a call that is one."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 or isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if path_of(target) is not None:
            yield path_of(target), target, node.value
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        args = list(node.args)
        if name == "register_buffer" and isinstance(node.func, ast.Attribute):
            args = [node.func.value] + args
        if name in ("register_buffer", "setattr") and len(args) >= 3 and isinstance(getattr(args[1], "value", None), str):
            target = ast.copy_location(ast.Attribute(args[0], args[1].value, ast.Load()), node)
            if path_of(target) is not None:
                yield path_of(target), target, args[2]


def _mentions(node, path):
    return any(path_of(n) == path for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)))


def _lasts(path, scope, own):
    """Whether what has this path outlives a turn of the loop, or a call of the function: nothing in there makes it anew but from itself."""
    root = path.partition(".")[0].partition("[")[0]
    if isinstance(scope, sources.Called) and path == root:
        return any(isinstance(n, (ast.Global, ast.Nonlocal)) and root in n.names for n in sources.inside(sources.body_of(scope.node)))
    if path != root and root in own:
        return False
    return all(isinstance(v, ast.AugAssign) or v is not None and _mentions(v, path) for v in own.get(path, []))


def _larger(value, path, scope, depth=0):
    """Whether an expression is what has the path and a tensor more."""
    if depth > 4:
        return False
    if isinstance(value, ast.IfExp):
        return _larger(value.body, path, scope, depth + 1) or _larger(value.orelse, path, scope, depth + 1)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        for one, other in ((value.left, value.right), (value.right, value.left)):
            if path_of(one) == path and isinstance(other, (ast.List, ast.Tuple, ast.ListComp)) and _adds([other], scope):
                return True
        return False
    if isinstance(value, (ast.List, ast.Tuple)):
        return _joined(value.elts, path, scope)
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        if name in JOINS and value.args and isinstance(value.args[0], (ast.List, ast.Tuple)):
            return _joined(value.args[0].elts, path, scope, True)
        if name in PASS_ON and isinstance(value.func, ast.Attribute):
            return _larger(value.func.value, path, scope, depth + 1)
    return False


def _joined(parts, path, scope, tensors=False):
    own = [p for p in parts if _mentions(p, path) and not isinstance(p, ast.Subscript)]
    others = [p for p in parts if p not in own]
    if own and tensors and not any(_on_host(p, scope) for p in parts):
        return not all(is_little(p, scope) for p in others)
    return bool(own) and _adds(others, scope)


def _on_host(node, scope):
    value = resolve(node, scope)
    if light.is_tensor(value):
        return not value.is_cuda
    return any(isinstance(n, ast.Attribute) and n.attr in light.TO_HOST for n in ast.walk(node))


def _adds(values, scope):
    return any(light.maybe_tensor(v, scope) and not is_little(v, scope) for v in values)


def is_little(node, scope):
    """Whether a tensor is a number that nothing else hangs on, by what it stands for now."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(is_little(e, scope) for e in node.elts)
    detached = False
    for _ in range(6):
        value = resolve(node, scope)
        if value is not None:
            free = detached or not value.requires_grad if light.is_tensor(value) else False
            return free and value.numel() * value.element_size() <= LEAST_BYTES
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr == "item" or node.func.attr in NUMBERS and detached and not node.args and not node.keywords:
            return True
        if node.func.attr not in PASS_ON:
            return False
        detached, node = detached or node.func.attr == "detach", node.func.value
    return False


def keeps_little(statements, scope, lasting):
    """Whether each of the tensors that statements put into something that outlives them is such a number."""
    found = False
    for node in sources.inside(statements):
        if isinstance(node, (ast.Assign, ast.AugAssign)) and light.keeps([node], scope, lasting):
            found = True
            if not is_little(node.value, scope):
                return False
        elif isinstance(node, ast.Call) and light.keeps([ast.Expr(node)], scope, lasting):
            found = True
            if not all(is_little(a, scope) for a in node.args if light.maybe_tensor(a, scope)):
                return False
    return found
