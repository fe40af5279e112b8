"""How the plain values of a training program move from step to step: what stays, what counts, and what nobody can tell.

A value moves when it was seen to, when a loop around the step goes through it, or when the source assigns it on the way. What is computed
from such values moves with them.
"""
import ast
import itertools
import sys

from . import sources
from .expressions import PLAIN, Unknown, at_most, evaluate, is_pure, landmarks, path_of, paths_in, turns_to
from .sources import resolve

# As many observed values of equal distance make a counter.
LEAST_OBSERVED = 3
NOW = (0, 1)
DEEPEST = 6
MOST_COMBINATIONS = 20000
MOST_VALUES = 400
MOST_TURNS = 4096
MOST_GONE_THROUGH = 32
UNBOUNDED = 1 << 50
# Modules whose functions give another answer each time.
RESTLESS = ("random", "time", "numpy.random", "secrets", "datetime")


_through = {}  # code -> its loops


class Still:
    def __init__(self, value=None, known=False):
        self.value, self.known = value, known


def _goes_through(motion):
    """The motion of what a loop goes through: in time-lapse its turns come by, or those of them that differ."""
    motion.by_turns = True
    return motion


class Linear:
    """A counter of the turns of the loop that steps. Its values were observed where a step ended, which need not be where a test asks for it:
    counts are the lines of its loop that count on, None where a function does; steps are those where a step ended."""

    def __init__(self, begin, stride, scope=None, counts=(), steps=()):
        self.begin, self.stride, self.scope, self.counts, self.steps = begin, stride, scope, counts, steps

    by_turns = False

    def shifts(self, line, scope):
        """By how many turns the value may differ from the observed one where a test stands."""
        if not self.counts or not self.steps:
            return (0,)
        step = max(self.steps)
        if scope is not self.scope or len(self.counts) > 1 or None in self.counts:
            return (0, 1) if scope is not self.scope or line > step else (0, -1)
        count = self.counts[0]
        if count == step:  # `optimizer.step(); step += 1`
            return (0, 1) if line > step else (-1, 0) if line < step else (-1, 0, 1)
        if count > step:
            return (1,) if line > count else (0,)
        return (-1,) if line < count else (0,)


class Own:
    """A counter at a pace of its own, such as that of an outer loop, or one of some values: those to come, and those that are over."""

    def __init__(self, now, stride=0, most=UNBOUNDED, values=None, over=0, counted=()):
        self.now, self.stride, self.most, self.values, self.over = now, stride, most, values, over
        self.counted = counted  # (scope, line) of where it is counted up

    by_turns = False

    def to_come(self, numbers):
        if self.values is not None:
            return self.values[:MOST_VALUES]
        return [self.now + self.stride * t for t in turns_to(self.now, self.stride, numbers, self.most)]

    def past(self, scope, node):
        """What it was where a function asks for it; one that the function counts up before it asks is never at its beginning there."""
        if self.values is not None:
            return [self.now]
        before = bool(self.counted) and all(where is scope and line < getattr(node, "lineno", 0) for where, line in self.counted)
        return [self.now - self.stride * t for t in range(max(self.over + 1 - before, 1))]


class Derived:
    def __init__(self, node, scope):
        self.node, self.scope = node, scope


class Drifts:
    """It moves, and where to is not known."""


def _is_noted(part, scope):
    """Whether turning.py sees what is done here with a number. A float that stands before it asks it for nothing."""
    if isinstance(part, ast.BinOp):
        floats = any(isinstance(n.value if isinstance(n, ast.Constant) else resolve(n, scope), float) for n in ast.walk(part.left) if isinstance(n, (ast.Constant, ast.Name, ast.Attribute, ast.Subscript)))
        return not floats and isinstance(part.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod))
    if isinstance(part, ast.Compare):
        return all(isinstance(c, (ast.Tuple, ast.List)) or not isinstance(op, (ast.In, ast.NotIn)) for op, c in zip(part.ops, part.comparators))
    if isinstance(part, ast.UnaryOp):
        return isinstance(part.op, ast.Not)
    if isinstance(part, ast.Subscript):
        return isinstance(getattr(part.slice, "value", None), (int, str)) or isinstance(getattr(getattr(part.slice, "value", None), "value", None), (int, str))
    if isinstance(part, ast.Call):
        return getattr(part.func, "id", None) in ("min", "max")
    return not isinstance(part, ast.expr) or isinstance(part, (ast.Name, ast.Attribute, ast.Constant, ast.BoolOp, ast.IfExp, ast.Tuple, ast.List))


def _is_range(loop):
    return isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and getattr(loop.iter.func, "id", None) == "range"


class Survey:
    """What of an expression moves."""

    def __init__(self):
        self.linear, self.drifts, self.own, self.numbers = {}, False, {}, set()
        self.noted = True  # it is reckoned in ways that the number of a turn takes note of

    def take(self, other):
        self.linear.update(other.linear)
        self.own.update(other.own)
        self.numbers.update(other.numbers)
        self.drifts = self.drifts or other.drifts
        self.noted = self.noted and other.noted

    def turns_of_a_step(self):
        """A loop that gathers gradients takes several turns for one step."""
        strides = [m.stride for m in self.linear.values()]
        each = max([abs(s) for s in strides if isinstance(s, int)] or [1])
        return each if each <= MOST_TURNS and all(isinstance(s, int) and s % each == 0 for s in strides) else 1

    def moves(self):
        return self.drifts or bool(self.linear) or bool(self.own)

    def by_turns(self):
        """Whether nothing moves it but the turns of loops."""
        return self.noted and not self.drifts and all(m.by_turns for m in itertools.chain(self.linear.values(), self.own.values()))


class Motions:
    """The motions of the values around one training step. loops_of(scope) are the loops of a running function around the step, the innermost first."""

    def __init__(self, steps):
        self.steps = steps
        self.loops_of = {}  # id of a Moment -> loops
        self.assigned_by_calls = {}  # the end of a path -> what reached functions assign to it
        self.known, self.surveys, self.returns = {}, {}, {}
        self.kept = []  # scopes whose ids are keys
        self.bounding = False  # of a size that is the least of several things, only what it is at most is asked

    def around(self, moment, loops):
        self.kept.append(moment)
        self.loops_of[id(moment)] = loops

    def reached(self, called):
        """A function that the loops call assigns what it says to what lives longer than its call."""
        shared = {n for node in sources.inside(sources.body_of(called.node)) if isinstance(node, (ast.Global, ast.Nonlocal)) for n in node.names}
        if getattr(called.node, "name", "") == "__init__":
            return
        for path, values in called.assigned().items():
            if path in shared:
                self.assigned_by_calls.setdefault(path, []).extend((v, called) for v in values)
            elif path[-1] == "]" or "." in path:
                self.assigned_by_calls.setdefault(_end(path), []).extend((v, called) for v in values)

    def assigns(self, moment, loop):
        """So does a loop itself, of a function that no loop calls."""
        for path, values in loop.assigned().items():
            if path[-1] == "]" or "." in path:
                self.assigned_by_calls.setdefault(_end(path), []).extend((v, moment) for v in values)

    # -- one path

    def of(self, path, node, scope):
        key = id(scope), path
        if key not in self.known:
            self.kept.append(scope)
            self.known[key] = Still()  # of a value that is computed from itself
            self.known[key] = self._of(path, node, scope)
        return self.known[key]

    def _of(self, path, node, scope):
        value = resolve(node, scope)
        if isinstance(value, property) and isinstance(node, ast.Attribute):
            return self._of_property(value.fget, resolve(node.value, scope), scope)
        if isinstance(scope, sources.Called):
            return self._of_called(path, node, value, scope)
        loops = self.loops_of.get(id(scope), [])
        for loop in loops:
            observed = loop.observed.get(path)
            if observed and all(v is not None for v in observed) and any(v != observed[0] for v in observed):
                stride = _stride(observed)
                if stride is not None:
                    counter = Linear(observed[-1], stride, scope, self._counts(path, loops[-1]), loop.lines)
                    return _goes_through(counter) if path in [path_of(getattr(each.node, "target", None)) for each in loops if _is_range(each.node)] else counter
                changes = True
                break
        else:
            changes = False
        for loop in loops:
            if isinstance(loop.node, ast.For):
                for name, future in self.targets(loop.node.target, loop.node.iter, scope):
                    if name == path:
                        return future if isinstance(future, (Own, Drifts)) or not changes else Drifts()
                parts = self._parts(path, node, loop.node, scope)
                if parts is not None:
                    return parts
        motion = self._assigned(path, value, scope, loops)
        return Drifts() if changes and isinstance(motion, Still) else motion

    def _counts(self, path, loop):
        """The lines at which a loop counts on by itself; None for those of functions that it calls."""
        own = [v.lineno for v in loop.assigned().get(path, []) if isinstance(v, (ast.AugAssign, ast.BinOp))]
        called = self.assigned_by_calls.get(_end(path), []) if "." in path or path[-1] == "]" else self.assigned_by_calls.get(path, [])
        return own or [None for v, _ in called if isinstance(v, (ast.AugAssign, ast.BinOp))]

    def _parts(self, path, node, loop, scope):
        """The motion of an attribute or an entry of the things that a loop goes through, such as the settings of a grid; None where it is none of theirs."""
        root = _root(node) if path_of(node) == path else None
        if root is None or root == path or not any(getattr(t, "id", None) == root for t in ast.walk(loop.target)):
            return None
        lists = _items_of(root, loop.target, loop.iter, scope)
        module = sys.modules.get(type(scope.find(root)).__module__)
        if not lists and type(resolve(node, scope)) is int and sources.is_users(getattr(module, "__file__", None) or ""):
            return Drifts()  # settings of the program's own, of which the others are not known
        for items in lists:
            values = [resolve(node, OneName(root, i)) for i in items]
            plain = list(dict.fromkeys(v for v in values if isinstance(v, PLAIN)))
            if len(plain) > 1:
                return _goes_through(Own(resolve(node, scope), values=plain))
        return None

    def _of_property(self, getter, owner, scope):
        inner = sources.called(getter.__get__(owner), None, scope) if sources.is_users_function(getter) else None
        if inner is None or inner.depth >= sources.DEEPEST:
            return Still()
        said = [n.value for n in sources.inside(sources.body_of(inner.node)) if isinstance(n, ast.Return) and n.value is not None]
        if len(said) == 1:
            return Derived(said[0], inner)
        return Drifts() if any(self.survey(n, inner).moves() for n in said) else Still()

    def targets(self, target, iterable, scope):
        """(path, motion) of the names that a loop goes through."""
        items = _items(iterable, scope)
        if isinstance(items, ast.AST):
            return self.targets(target, items, scope)
        now = resolve(target, scope) if path_of(target) is not None else None
        if isinstance(items, range):
            left = (items[-1] - now) // items.step if type(now) is int and items and now in items else len(items)
            return [(path_of(target), _goes_through(Own(now, items.step, left, over=0)) if type(now) is int else Drifts())]
        if items == "counts":
            return [(path_of(target), Own(now, 1, over=0) if type(now) is int else Drifts())]
        if isinstance(target, (ast.Tuple, ast.List)):
            call = iterable if isinstance(iterable, ast.Call) else None
            name = path_of(call.func) if call else None
            if name == "enumerate" and len(target.elts) == 2 and call.args:
                first = resolve(target.elts[0], scope) if path_of(target.elts[0]) else None
                counter = Own(first, 1) if type(first) is int else Drifts()
                return [(path_of(target.elts[0]), counter)] + self.targets(target.elts[1], call.args[0], scope)
            if name == "zip" and len(call.args) == len(target.elts):
                return [pair for t, a in zip(target.elts, call.args) for pair in self.targets(t, a, scope)]
            if items is not None:
                return [pair for i, t in enumerate(target.elts) for pair in _one_of(t, [v[i] for v in items if isinstance(v, (list, tuple)) and len(v) > i], scope)]
            return [(path_of(t), Drifts() if isinstance(resolve(t, scope), PLAIN) else Still()) for t in target.elts if path_of(t)]
        if items is not None:
            return _one_of(target, items, scope)
        return [(path_of(target), Drifts() if isinstance(now, PLAIN) else Still())] if path_of(target) else []

    def _assigned(self, path, value, scope, loops):
        """By what the loops around assign to it."""
        values = loops[-1].assigned().get(path, []) if loops else []
        given = [(v, scope) for v in values]
        given += [(v, where) for v, where in self.assigned_by_calls.get(_end(path) if "." in path or path[-1] == "]" else path, []) if where is not scope or not loops]
        return self._by_assignments(given, value, scope)

    def _by_assignments(self, given, value, scope):
        plain = isinstance(value, PLAIN) or value is None
        if not given:
            return Still(value, isinstance(value, PLAIN))
        if any(isinstance(v, ast.For) for v, _ in given):  # of a loop within the step: it comes round in each
            return Drifts() if any(isinstance(v, ast.For) and self.survey(v.iter, where).moves() for v, where in given) else Still()
        if all(v is not None and not isinstance(v, ast.AugAssign) for v, _ in given):
            if all(isinstance(v, ast.Constant) for v, _ in given):
                values = list(dict.fromkeys([value] + [v.value for v, _ in given]))
                return _goes_through(Own(value, values=values)) if plain and len(values) > 1 else Still(value, isinstance(value, PLAIN))
            if len(given) == 1 and (_is_scalar(given[0][0]) or isinstance(value, PLAIN) and self.survey(*given[0]).moves()):
                return Derived(*given[0])
        if not isinstance(value, PLAIN):
            return Still()
        if isinstance(value, int) and not any(isinstance(v, ast.AugAssign) for v, _ in given):
            return Still()  # such as the size of the last batch
        strides = []
        for v, where in given:
            if isinstance(v, ast.Constant) and v.value == 0:
                continue  # a counter that begins anew
            try:
                stride = self.compute(v.value, where, NOW, {}) if isinstance(v, ast.AugAssign) and isinstance(v.op, (ast.Add, ast.Sub)) else None
                strides.append(-stride if isinstance(v.op, ast.Sub) else stride)
            except Exception:
                return Drifts()
        if strides and all(isinstance(s, (int, float)) and s == strides[0] != 0 for s in strides) and isinstance(value, (int, float)):
            return Own(value, strides[0], over=self.steps if isinstance(value, int) else 0, counted=[(where, v.lineno) for v, where in given if isinstance(v, ast.AugAssign)])
        return Drifts()

    def _of_called(self, path, node, value, scope):
        root, rest = _root(node), path[len(_root(node)):]
        if root in scope.arguments and root not in scope.assigned():
            argument = scope.arguments[root]
            if not rest:
                return Derived(argument, scope.caller)
            if path_of(argument) is not None:
                return self.of(path_of(argument) + rest, _graft(node, argument), scope.caller)
        if not rest and root in scope.locals and root not in scope.cells:
            values = scope.assigned().get(root, [])
            if scope.yields():
                return self._of_generator(path, values, scope)
            iterables = [v.iter for v in values if isinstance(v, ast.For)]
            if iterables:  # of a loop within the call
                return Drifts() if any(self.survey(i, scope).moves() for i in iterables) else Still()
            if len(values) == 1 and values[0] is not None and not isinstance(values[0], ast.AugAssign):
                return Derived(values[0], scope)
            if root in scope.arguments:
                values = [scope.arguments[root]]
                return Drifts() if self.survey(values[0], scope.caller).moves() else Still()
            moves = any(v is not None and not isinstance(v, ast.AugAssign) and self.survey(v, scope).moves() for v in values)
            return Drifts() if moves else Still(value, isinstance(value, PLAIN))
        return self._assigned(path, value, scope, [])

    def _of_generator(self, path, values, scope):
        """A local name of a function that yields goes from step to step."""
        for v in values:
            if isinstance(v, ast.For):
                items = _items(v.iter, scope)
                if isinstance(items, range) and len(items):
                    return Own(items[0], items.step, len(items))
                return Own(0, 1) if items == "counts" or path_of(getattr(v.iter, "func", v)) == "enumerate" else Still()
        begins = [v for v in values if v is not None and not isinstance(v, ast.AugAssign)]
        if len(begins) == len(values):
            return Derived(values[0], scope) if len(values) == 1 else Still()
        try:
            begin = self.compute(begins[0], scope, NOW, {})
            stride = [self.compute(v.value, scope, NOW, {}) * (-1 if isinstance(v.op, ast.Sub) else 1) for v in values if isinstance(v, ast.AugAssign)][0]
            return Own(begin, stride) if stride else Still(begin, True)
        except Exception:
            return Drifts()

    # -- expressions

    def survey(self, node, scope):
        """What of an expression moves; of one that depends on itself, what else it depends on."""
        key = id(node), id(scope)
        if key not in self.surveys:
            self.kept.append((node, scope))
            self.surveys[key] = Survey()
            self.surveys[key] = self._survey(node, scope)
        return self.surveys[key]

    def _survey(self, node, scope):
        found = Survey()
        for part in itertools.chain([node], sources.inside(list(ast.iter_child_nodes(node)))):
            if isinstance(part, ast.Constant) and isinstance(part.value, (int, float)) and not isinstance(part.value, bool):
                found.numbers.add(part.value)
            if isinstance(part, ast.Call) and not is_pure(part) and self._call_moves(part, scope):
                found.drifts = True
            found.noted = found.noted and _is_noted(part, scope)
        for path, where in paths_in(node):
            motion = self.of(path, where, scope)
            if isinstance(motion, Linear):
                found.linear[id(motion)] = motion
            elif isinstance(motion, Own):
                found.own[id(motion)] = motion
            elif isinstance(motion, Drifts):
                found.drifts = True
            elif isinstance(motion, Derived):
                found.take(self.survey(motion.node, motion.scope))
            elif isinstance(motion.value, (int, float)) and not isinstance(motion.value, bool):
                found.numbers.add(motion.value)
        return found

    def _call_moves(self, call, scope):
        """Whether a call may say something else at another step; what it is given is looked at by itself."""
        callee = resolve(call.func, scope)
        module = getattr(callee, "__module__", None) or ""
        owner = resolve(call.func.value, scope) if isinstance(call.func, ast.Attribute) else None
        if module.startswith(RESTLESS) or type(getattr(callee, "__self__", owner)).__module__.startswith(RESTLESS) or getattr(owner, "__name__", "") in RESTLESS:
            return True
        if _is_chance(call, owner):
            return True
        if any(self.survey(g, scope).moves() for g in list(call.args) + [k.value for k in call.keywords]):
            return True
        if not sources.is_users_function(callee):
            return False
        key = sources.code_of(callee), id(getattr(callee, "__self__", None))
        if key not in self.returns:
            self.returns[key] = False  # of a function that calls itself
            inner = sources.called(callee, call, scope)
            if inner is not None and inner.depth < sources.DEEPEST:
                said = [n.value for n in sources.inside(sources.body_of(inner.node)) if isinstance(n, ast.Return) and n.value is not None]
                self.returns[key] = any(self.survey(n, inner).moves() for n in said)
        return self.returns[key]

    def compute(self, node, scope, turns, picks, depth=0):
        """The value of an expression after `turns`, a pair: turns of the loop that steps, and how many of them a step takes; picks say where
        counters of their own are. Without turns, at whichever step."""
        if depth > DEEPEST:
            raise Unknown()

        def value(path, where):
            motion = self.of(path, where, scope)
            if turns is None and isinstance(motion, (Linear, Own)):
                raise Unknown(path)
            if isinstance(motion, Linear):
                ahead, each = turns
                grown = motion.stride * ahead
                return motion.begin + motion.stride * picks.get((id(motion), "shift"), 0) + (grown // each if isinstance(grown, int) and grown % each == 0 else grown / each)
            if isinstance(motion, Own):
                return picks[id(motion)] if id(motion) in picks else motion.now
            if isinstance(motion, Derived):
                return self.compute(motion.node, motion.scope, turns, picks, depth + 1)
            if isinstance(motion, Drifts) or not motion.known:
                found = resolve(where, scope) if isinstance(motion, Still) else Unknown
                if found is None and isinstance(where, ast.Name) and isinstance(scope, sources.Moment) and where.id in scope.names:
                    return None
                raise Unknown(path)
            return motion.value

        return (at_most if self.bounding else evaluate)(node, value)

    def past(self, node, scope, survey, line=None):
        """What an expression has said at the steps that were observed; unknown answers are left out. Of a test on a line, where its counter may have been
        counted on since it was observed, only what it has said either way."""
        said, each = None, survey.turns_of_a_step()
        turns = range(0, -self.steps * each, -1) if survey.linear else [0]
        shifts = {(k, "shift"): m.shifts(line, scope) for k, m in survey.linear.items()} if line is not None else {}
        for shift in _combinations(shifts):
            here = []
            for t in turns:
                for picks in _combinations({k: o.past(scope, node) for k, o in survey.own.items()}):
                    picks.update(shift)
                    try:
                        here.append(self.compute(node, scope, (t, each), picks))
                    except Exception:
                        pass
            said = here if said is None else [v for v in said if v in here]
        return said

    def future(self, node, scope, survey, most):
        """(steps, answer) of what an expression may say at later steps, the nearest first; an answer of Unknown where it cannot be told."""
        numbers, each = landmarks(survey.numbers), survey.turns_of_a_step()
        turns = [0]
        if survey.linear:
            turns = sorted({t for m in survey.linear.values() for t in turns_to(m.begin, m.stride / each, numbers, most)})
        own = {k: [o.now] + o.to_come(numbers) for k, o in survey.own.items()}
        evaluations = MOST_COMBINATIONS
        for picks in _combinations(own):
            for t in turns:
                if not evaluations:
                    yield -(-t // each), Unknown
                    return
                evaluations -= 1
                try:
                    yield -(-t // each), self.compute(node, scope, (t, each), picks)
                except Exception:
                    yield -(-t // each), Unknown


# Calls that go through what they are given.
THROUGH = {"tqdm", "trange", "list", "tuple", "reversed", "sorted", "iter", "track", "set", "tqdm.tqdm", "tqdm.trange", "tqdm.auto.tqdm"}


def _items(node, scope):
    """What a loop goes through: a range, the items of a known container, "counts", a node that says it, or None."""
    if isinstance(node, (ast.Tuple, ast.List)):
        try:
            return [_literal(e, scope) for e in node.elts]
        except Unknown:
            return None
    if isinstance(node, ast.Call) and not node.keywords:
        name = path_of(node.func)
        if name in ("range", "trange", "tqdm.trange"):
            try:
                return range(*[_literal(a, scope) for a in node.args])
            except Exception:
                return None
        if name in ("count", "itertools.count"):
            return "counts"
        if name in ("product", "itertools.product"):
            sides = [_items(a, scope) for a in node.args]
            if all(isinstance(s, list) or isinstance(s, range) and len(s) <= MOST_VALUES for s in sides):
                return list(itertools.islice(itertools.product(*sides), MOST_COMBINATIONS))
            return None
    if isinstance(node, ast.Call) and path_of(node.func) in THROUGH and node.args:
        return node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        owner = resolve(node.func.value, scope)
        if isinstance(owner, dict) and node.func.attr in ("items", "keys", "values"):
            return {"items": list(dict.items(owner)), "keys": list(dict.keys(owner)), "values": list(dict.values(owner))}[node.func.attr]
    value = resolve(node, scope) if path_of(node) is not None else None
    if isinstance(value, range):
        return value
    return list(value) if type(value) in (list, tuple, set, dict) else None


def gone_through(function, scope):
    """The functions of the program's that a call may mean whose name a loop goes through, such as a list of callbacks; but for the one that it means now."""
    name = function.value if isinstance(function, ast.Attribute) else function
    if not isinstance(name, ast.Name):
        return []
    found = []
    for node in _loops_over(name.id, scope):
        items = _items(node.iter, scope)
        for item in (items if isinstance(items, list) else [])[:MOST_GONE_THROUGH]:
            value = _part_of(node.target, item, name.id)
            value = sources.attribute(value, function.attr) if isinstance(function, ast.Attribute) and value is not None else value
            if sources.is_users_function(value) and all(sources.code_of(value) is not sources.code_of(f) for f in found):
                found.append(value)
    now = resolve(function, scope)
    return [f for f in found if sources.code_of(f) is not sources.code_of(now)]


def _loops_over(name, scope):
    """The loops of a function that go through something by this name."""
    key = scope.code if isinstance(scope, sources.Moment) else sources.code_of(scope.function)
    if key not in _through:
        node = sources.tree(key.co_filename) if key.co_name == "<module>" else sources.definition_of(key)
        _through[key] = [n for n in sources.inside(sources.body_of(node)) if isinstance(n, ast.For)] if node is not None else []
    return [n for n in _through[key] if any(isinstance(t, ast.Name) and t.id == name for t in ast.walk(n.target))]


def _part_of(target, item, name):
    """What a name of a target stands for, of one thing that its loop goes through."""
    if isinstance(target, ast.Name):
        return item if target.id == name else None
    if isinstance(target, (ast.Tuple, ast.List)) and type(item) in (tuple, list) and len(item) == len(target.elts):
        return next((v for v in (_part_of(t, i, name) for t, i in zip(target.elts, item)) if v is not None), None)
    return None


class OneName:
    """A scope in which one name is known."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def find(self, name):
        return self.value if name == self.name else None


def _items_of(name, target, iterable, scope):
    """The lists of what a loop, perhaps by `enumerate` or `zip`, goes through under this name."""
    items = _items(iterable, scope)
    if isinstance(items, ast.AST):
        return _items_of(name, target, items, scope)
    if getattr(target, "id", None) == name:
        return [items[:MOST_VALUES]] if isinstance(items, list) else []
    if not isinstance(target, (ast.Tuple, ast.List)):
        return []
    if isinstance(items, list):
        return [[v[i] for v in items[:MOST_VALUES] if type(v) in (tuple, list) and len(v) > i] for i, t in enumerate(target.elts) if getattr(t, "id", None) == name]
    if isinstance(iterable, ast.Call) and path_of(iterable.func) == "enumerate" and len(target.elts) == 2 and iterable.args:
        return _items_of(name, target.elts[1], iterable.args[0], scope)
    if isinstance(iterable, ast.Call) and path_of(iterable.func) == "zip" and len(iterable.args) == len(target.elts):
        return [found for t, a in zip(target.elts, iterable.args) for found in _items_of(name, t, a, scope)]
    return []


def things(node, scope):
    """The names, classes, settings and networks that a loop goes through; numbers and tensors are no such things."""
    items = _items(node, scope)
    if items is None and isinstance(node, (ast.Tuple, ast.List)):
        items = [resolve(e, scope) for e in node.elts]
    if not isinstance(items, list):
        return []
    return [i for i in items if isinstance(i, (str, type, dict)) or hasattr(i, "parameters") or type(i).__name__ == "Namespace"]


def _literal(node, scope):
    """A plain value, or a tuple of some."""

    def value(path, where):
        found = resolve(where, scope)
        if not isinstance(found, PLAIN):
            raise Unknown(path)
        return found

    return evaluate(node, value)


def _one_of(target, items, scope):
    path = path_of(target)
    if path is None:
        return []
    values = list(dict.fromkeys(v for v in items if isinstance(v, PLAIN)))
    if len(values) < 2:
        return [(path, Still(resolve(target, scope), len(values) == 1))]
    return [(path, _goes_through(Own(resolve(target, scope), values=values)))]


def _combinations(choices):
    keys = list(choices)
    for values in itertools.product(*[choices[k] for k in keys]):
        yield dict(zip(keys, values))


def _stride(values):
    """How much a counter grows in a step; None where it is none."""
    if len(values) < LEAST_OBSERVED or not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return None
    stride = values[-1] - values[-2]
    close = 0 if isinstance(stride, int) else 1e-6 * abs(stride)
    return stride if all(abs(b - a - stride) <= close for a, b in zip(values, values[1:])) else None


def _is_chance(call, owner):
    """Whether PyTorch is asked for one number by chance; those of a batch decide nothing."""
    if getattr(owner, "__name__", "") != "torch" or call.func.attr not in ("rand", "randn", "randint", "bernoulli"):
        return False
    given = [k.value for k in call.keywords if k.arg == "size"] + call.args
    if call.func.attr == "randint":
        given = given[-1:]
    elif call.func.attr == "bernoulli":
        return True
    return all(isinstance(n, ast.Constant) and n.value == 1 for g in given for n in (g.elts if isinstance(g, (ast.Tuple, ast.List)) else [g]))


def _is_scalar(node):
    """Whether an expression is arithmetic on plain values, as far as its form says."""
    if isinstance(node, (ast.Constant, ast.Name)):
        return True
    if isinstance(node, ast.Call):
        return is_pure(node) and all(_is_scalar(a) for a in node.args)
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)):
        return all(_is_scalar(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr))
    return path_of(node) is not None


def _root(node):
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id


def _end(path):
    """The last attribute or subscript of a path: what it is of is often known by another name elsewhere."""
    cut = max(path.rfind("."), path.rfind("["))
    return path[cut:]


def _graft(node, argument):
    """The same attributes of another object."""
    if isinstance(node, ast.Name):
        return argument
    if isinstance(node, ast.Attribute):
        return ast.Attribute(_graft(node.value, argument), node.attr, ast.Load())
    return ast.Subscript(_graft(node.value, argument), node.slice, ast.Load())
