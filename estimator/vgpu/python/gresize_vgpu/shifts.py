"""What a counter of the training loop switches without a branch of its own: contexts, gradients, settings of a network, and functions that are looked up."""
import ast
import sys

from . import light, sources
from .expressions import Unknown, path_of
from .sources import resolve

MOST_LOOKED_UP = 64
# Blocks and functions in which a network keeps less for its gradients, or smaller numbers.
SPARING = light.GRADIENTLESS + ("autocast", "checkpoint")
# What is only switched on to need more.
GRADIENTS = ("set_grad_enabled", "requires_grad_")


def written_out(node):
    """The branches that a node is, which is no `if`: `a and b()` is one, and so is each case of a match."""
    if isinstance(node, ast.BoolOp) and any(isinstance(n, ast.Call) for n in ast.walk(node.values[-1])):
        rest = node.values[0] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[:-1])
        test = rest if isinstance(node.op, ast.And) else ast.UnaryOp(ast.Not(), rest)
        return [_branch(test, [ast.Expr(node.values[-1])], node.values[-1])]
    if type(node).__name__ == "Match":
        return [_branch(_test_of(case, node.subject), case.body, node.subject) for case in node.cases]
    return []


def _branch(test, body, at):
    found = ast.If(test, body, [])
    for n in [found, test] + body:
        if not hasattr(n, "lineno"):
            ast.copy_location(n, at)
    return found


def _test_of(case, subject):
    """What a case asks, as far as it asks for values; otherwise what it is asked of, which moves or does not."""
    patterns = getattr(case.pattern, "patterns", None) if type(case.pattern).__name__ == "MatchOr" else [case.pattern]
    if all(type(p).__name__ == "MatchValue" for p in patterns):
        test = ast.Compare(subject, [ast.In()], [ast.Tuple([p.value for p in patterns], ast.Load())])
    else:
        test = ast.Compare(subject, [ast.Is()], [ast.Call(ast.Name("object", ast.Load()), [], [])])  # that is not known
    if case.guard is None:
        return test
    if type(case.pattern).__name__ == "MatchAs" and case.pattern.pattern is None:
        return case.guard
    return ast.BoolOp(ast.And(), [test, case.guard])


class Shifts:
    def __init__(self, motions, scale):
        self.motions, self.scale = motions, scale

    def places(self, statements, scope, most):
        """The nodes that a later step gives another meaning, with what they do."""
        for node in self.scale.taken(statements, scope):
            what = None
            if isinstance(node, ast.Assign):
                what = self._set(node, scope, most)
            elif isinstance(node, (ast.With, ast.AsyncWith)):
                calls = [n for item in node.items for n in ast.walk(item.context_expr) if isinstance(n, ast.Call)]
                what = light.CHANGES if any(self._given(call, scope, most) for call in calls) else None
            elif isinstance(node, ast.Call):
                what = light.CHANGES if self._matters(node, scope) and self._given(node, scope, most) else self._looked_up(node, scope, most)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                what = self._looked_up(node, scope, most)
            if what:
                yield node, what

    def turns(self, node, scope, most, wanted=(True, False), doubted=True):
        """Whether a question has another answer at a later step; of what cannot be told, that it may, where that is doubted: most that cannot be told
        is a question of each element of a tensor."""
        survey = self.motions.survey(node, scope)
        if not survey.moves():
            return False
        seen = set(self.motions.past(node, scope, survey))
        for _, answer in self.motions.future(node, scope, survey, most):
            if answer is Unknown:
                if doubted and isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
                    return True
            elif type(answer) is bool and answer in wanted and answer not in seen:
                return True
        return False

    def _new(self, node, scope, most, doubted):
        """Whether a number is another one at a later step; what cannot be told may be, where that is doubted."""
        survey = self.motions.survey(node, scope)
        if not survey.moves():
            return False
        seen = set(self.motions.past(node, scope, survey))
        return any(doubted if a is Unknown else type(a) in (bool, int) and a not in seen for _, a in self.motions.future(node, scope, survey, most))

    def _set(self, node, scope, most):
        for target in node.targets:
            if not isinstance(target, ast.Attribute):
                continue
            if target.attr == "requires_grad":
                if self.turns(node.value, scope, most, (True,)):
                    return light.CHANGES
            elif light.is_module(resolve(target.value, scope)) and path_of(node.value) is None and _steps_up(node.value):
                if self._new(node.value, scope, most, True):
                    return light.CHANGES
        return None

    def _given(self, call, scope, most):
        """Whether a call is given another answer at a later step."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        gradients = name in GRADIENTS
        wanted = (True,) if gradients else (True, False)
        given = list(call.args) + [k.value for k in call.keywords if k.arg != "set_to_none"]
        return any(self.turns(g, scope, most, wanted, gradients) for g in given if not isinstance(g, ast.Starred))

    def _matters(self, call, scope):
        """Whether a library is called that may need more or less by what it is told; functions of the program's are looked into."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        callee = resolve(call.func, scope)
        owner = resolve(call.func.value, scope) if isinstance(call.func, ast.Attribute) else None
        if name in GRADIENTS or name == "backward":
            return True
        if sources.is_users_function(callee):
            return False
        if light.is_module(callee):
            return not sources.is_users_function(getattr(type(callee), "forward", None))
        if light.is_module(owner):
            return name not in light.STILL or name == "train"
        return owner is not None and light.of_torch(getattr(owner, "__name__", None)) and name not in light.STILL_FUNCTIONS

    def _looked_up(self, node, scope, most):
        """What a table says that is asked by a counter: `plan[step]`, `plan.get(step)`."""
        if isinstance(node, ast.Subscript):
            table, key = resolve(node.value, scope), getattr(node.slice, "value", node.slice) if type(node.slice).__name__ == "Index" else node.slice
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
            table, key = resolve(node.func.value, scope), node.args[0]
        else:
            return None
        if isinstance(table, dict):
            held = list(dict.values(table))
        elif type(table) in (list, tuple) and any(isinstance(n, ast.FloorDiv) for n in ast.walk(key)):
            held = list(table)
        else:
            return None
        called = any(callable(v) for v in held)
        if len(held) > MOST_LOOKED_UP or not called and not any(type(v) is int for v in held) or not self._new(key, scope, most, called):
            return None
        found = [self.holds(v, scope) for v in held]
        return light.CHANGES if light.CHANGES in found else light.EVALUATES if light.EVALUATES in found else None

    def holds(self, value, scope):
        """What a value does that a later step chooses: a size, a network, or a function of the program's when it is called."""
        torch = sys.modules["torch"]
        if type(value) is int or light.is_module(value) or isinstance(value, type) and issubclass(value, torch.nn.Module):
            return light.CHANGES
        if sources.is_users_function(value):
            return self.scale.function(value, None, scope, [])
        return None

    def chosen(self, side, other, scope):
        """What one side of an expression does that a later step chooses instead of the other: to leave a block that spares memory is to need more."""
        if _spares(other) and not _spares(side):
            return light.CHANGES
        value = resolve(side, scope) if path_of(side) is not None else None
        return None if value is None or type(value) is int else self.holds(value, scope)


def _spares(node):
    return any(n.attr in SPARING if isinstance(n, ast.Attribute) else isinstance(n, ast.Name) and n.id in SPARING for n in ast.walk(node))


def _steps_up(node):
    """Whether a number that is computed from a counter may choose something: one that comes round again is for a log."""
    parts = list(ast.walk(node))
    if any(isinstance(n, ast.Mod) for n in parts):
        return False
    return any(isinstance(n, (ast.FloorDiv, ast.Compare, ast.IfExp)) or isinstance(n, ast.Call) and path_of(n.func) in ("min", "max", "int", "round") for n in parts)
