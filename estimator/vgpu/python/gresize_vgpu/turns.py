"""How many steps a program makes in all, where its loops say so: what each step leaves behind is reckoned up to there."""
import ast

from .expressions import evaluate
from .motions import UNBOUNDED
from .sources import resolve

# Of a program that does not say so; more are rarely made.
UNTOLD_STEPS = 1000000
DEEPEST = 4
# What goes through its first argument.
PASSES_ON = {"enumerate", "tqdm", "list", "iter", "reversed", "sorted", "track", "prefetch"}


def in_all(frames, fed, turns_left):
    """Steps of the loops around a training step, the innermost first: (scope, loops) of each function that is running."""
    around = [(loop, scope) for scope, loops in frames for loop in loops]
    if not around or not (fed or _advances(around[0][0])):
        return UNTOLD_STEPS
    total, untold = 1, False
    for loop, scope in around:
        turns = _turns(loop, scope, turns_left)
        untold = untold or turns is None
        total *= 1 if turns is None else max(turns, 1)
    return min(max(total, UNTOLD_STEPS if untold else 0), UNBOUNDED)


def _advances(loop):
    """Whether a loop goes round with the steps: one whose number stands still stands around a loop that is not the program's own."""
    if isinstance(loop.node, ast.While):
        return True
    return any(len({v for v in loop.observed.get(n.id, []) if v is not None}) > 1 for n in ast.walk(loop.node.target) if isinstance(n, ast.Name))


def _turns(loop, scope, turns_left):
    if isinstance(loop.node, ast.While):
        left = turns_left(loop, scope)
        return None if left >= UNBOUNDED else int(left) + max([len(v) for v in loop.observed.values()] + [0]) + 1
    return _length(loop.node.iter, scope)


def _length(node, scope, depth=0):
    """How much a loop goes through; None where that is not said."""
    if depth > DEEPEST:
        return None
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        try:
            if name in ("range", "trange"):
                return len(range(*[evaluate(a, lambda path, n: resolve(n, scope)) for a in node.args]))
        except Exception:
            return None
        if name == "zip":
            return min([n for n in (_length(a, scope, depth + 1) for a in node.args) if n is not None] or [None])
        if name in PASSES_ON and node.args:
            return _length(node.args[0], scope, depth + 1)
        return None
    value = resolve(node, scope)
    if type(value) in (list, tuple, dict, set, range) or type(value).__module__.startswith("torch.utils.data"):
        try:
            return len(value)
        except TypeError:  # a stream
            return None
    return None
