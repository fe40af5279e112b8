"""Loops that are comprehensions, such as `{c: train(c) for c in grid}`, and what an outer loop keeps each time that it goes round."""
import ast
import itertools
import sys

from . import gathers, light, sources
from .expressions import path_of
from .sources import resolve

FRAMES = {"<listcomp>": ast.ListComp, "<setcomp>": ast.SetComp, "<dictcomp>": ast.DictComp}
# A tensor that is kept once an epoch and is no larger than this is a number for a log.
SMALL_BYTES = 64 << 10
EMPTIES = ("clear", "pop", "popleft", "popitem")


def is_frame(frame):
    """Whether a frame is that of a comprehension, which has one of its own before Python 3.12."""
    return frame.f_code.co_name in FRAMES


def loops(module, frame, within):
    """The loops, as statements, of the comprehension that a running function is in, the innermost first, each with what is behind it."""
    if within is not None:
        kinds, line = (FRAMES[within.f_code.co_name],), within.f_code.co_firstlineno
        found = [n for n in _near(module, frame.f_lineno, kinds) if n.lineno == line] or _near(module, frame.f_lineno, kinds)
    else:
        found = [n for n in _near(module, frame.f_lineno, tuple(FRAMES.values())) if _runs(frame, n)]
    if not found:
        return []
    return _statements(found[-1], sources.loops_around(module, frame.f_lineno, frame.f_code.co_name)[1])


def _near(module, line, kinds):
    return [n for n in ast.walk(module) if isinstance(n, kinds) and n.lineno <= line <= (getattr(n, "end_lineno", None) or n.lineno)]


def _runs(frame, node):
    """Whether a function is at a place within what a comprehension makes; from Python 3.12 on that is no frame of its own."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None:
        return False
    for i, (line, last, column, end) in enumerate(positions()):
        if 2 * i == frame.f_lasti:
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return None not in (line, last, column, end) and any((m.lineno, m.col_offset) <= (line, column) and (last, end) <= (m.end_lineno, m.end_col_offset) for m in made)
    return False


def _statements(node, behind):
    made = [ast.Expr(n) for n in ([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])]
    found, body = [], made
    for part in node.generators[::-1]:
        loop = ast.For(part.target, part.iter, body, [])
        for n in [loop] + made:
            ast.copy_location(n, node)
        found.append((loop, []))
        body = [loop]
    return found[:-1] + [(found[-1][0], behind)]


def fit_beside(statements, scope):
    """id of a call -> whether the network that it makes anew has room beside all that is there now, in what a step takes for a while: only then an outer
    loop needs no more for a moment. Of classes and of functions of the program's that are assigned to a name which is a network on the card."""
    torch, found = sys.modules["torch"], {}
    for node in sources.inside(statements):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        network = resolve(target, scope) if isinstance(target, ast.Name) else None
        if not light.is_module(network):
            continue
        held = [t for t in itertools.chain(network.parameters(), network.buffers()) if t.is_cuda]
        room = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        for call in ast.walk(node.value):
            callee = resolve(call.func, scope) if isinstance(call, ast.Call) else None
            if isinstance(callee, type) or sources.is_users_function(callee):
                found[id(call)] = sum(t.numel() * t.element_size() for t in held) <= room
    return found


def kept(statements, loop, scope):
    """The line where an outer loop puts a tensor of the GPU each time into something that outlives its turn, and that nothing empties; None where it does not."""
    own = loop.assigned()
    emptied = {path_of(n.func.value) for n in sources.inside([loop.node]) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in EMPTIES}
    emptied |= {path_of(t.value) for n in sources.inside([loop.node]) if isinstance(n, ast.Delete) for t in n.targets if isinstance(t, ast.Subscript)}
    for node in sources.inside(statements):
        if isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign)) and light.keeps([node], scope, lambda name: name not in own and name not in emptied):
            if not _is_small(node, scope):
                return node.lineno
        if isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign)) and gathers.gathers([node], scope, {path: v for path, v in own.items() if path not in emptied}):
            return node.lineno
        if isinstance(node, ast.Expr) and _keeps_network(node.value, scope, own, emptied):
            return node.lineno
    return None


def _keeps_network(call, scope, own, emptied):
    """Whether a network that a loop makes anew, or a copy of one or of its weights, is put into a list that outlives the turn."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in ("append", "add", "insert") or type(resolve(call.func.value, scope)) not in (list, set):
        return False
    root = (path_of(call.func.value) or "").partition(".")[0]
    if root in own or path_of(call.func.value) in emptied:
        return False
    for given in call.args:
        inside = list(ast.walk(given))
        networks = [n for n in inside if isinstance(n, ast.Name) and light.is_module(resolve(n, scope))]
        named = {n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "") for n in inside if isinstance(n, ast.Call)}
        whole = isinstance(given, ast.Name) or "deepcopy" in named or "state_dict" in named or isinstance(given, (ast.Tuple, ast.Dict))
        if named & {"cpu", "score", "item"} or not whole:
            continue
        for network in networks:
            if (network.id in own or "deepcopy" in named) and any(p.is_cuda for p in resolve(network, scope).parameters()):
                return True
    return False


def _is_small(node, scope):
    """Whether what is kept is a number of which nothing else hangs on, as of a log."""
    values = [node.value] if not isinstance(node, ast.Expr) else list(getattr(node.value, "args", []))
    tensors = [v for v in (resolve(v, scope) for v in values) if v is not None]
    return len(tensors) == len(values) and all(light.is_tensor(t) and t.numel() * t.element_size() <= SMALL_BYTES for t in tensors)
