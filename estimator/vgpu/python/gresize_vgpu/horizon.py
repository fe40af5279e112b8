"""What the loop that trains is going to do at a later step, read from its source.

A run is stopped once its steps look alike. Whether they stay so is in the loop itself: a branch that its own counter opens
at step 500 was not seen at step 4. The tests of the loop's branches are worked out for the steps to come, from counters,
constants and nothing that would run any of the program's code. What opens soon is waited for; what opens late is named, and so is
what stands behind a loop that no data loader ends. Only a branch that changes what the loop works on, or that uses a model,
counts: printing and saving do not.
"""
import ast
import linecache
import os
import sys
import sysconfig
import time

from . import light

MOST_FRAMES = 60
MOST_SOURCE_BYTES = 1 << 20
# Turns of a loop that are looked ahead, and what the tests of all branches together may cost: about a second.
MOST_AHEAD = 30000
MOST_EVALUATIONS = 300000
# As many observed values of equal distance make a counter.
LEAST_OBSERVED = 3
# What opens within this time, and within this part of what is left of the budget, is waited for.
MOST_SECONDS = 20.0
BUDGET_SHARE = 0.5
MOST_NAMED = 8


class Unknown(Exception):
    """A test that cannot be worked out without running the program's code."""


def _library_folders():
    paths = sysconfig.get_paths()
    folders = {os.path.realpath(paths[k]) for k in ("stdlib", "platstdlib", "purelib", "platlib") if k in paths}
    folders.add(os.path.dirname(os.path.abspath(__file__)))
    return tuple(f + os.sep for f in folders)


LIBRARIES = _library_folders()


def is_users(filename):
    """Whether code is the program's own: what a library does is not read."""
    path = os.path.realpath(filename)
    return os.path.isfile(path) and not path.startswith(LIBRARIES) and "site-packages" not in path and "dist-packages" not in path


def path_of(node):
    """A name, or an attribute of a name, as text; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return "%s.%s" % (node.value.id, node.attr)
    return None


def paths_in(test):
    """Every path of an expression with a node that says it; the object of an attribute is no path of its own."""
    if path_of(test) is not None:
        yield path_of(test), test
        return
    for child in ast.iter_child_nodes(test):
        for found in paths_in(child):
            yield found


PLAIN = (int, float, bool, str)
OPERATORS = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b, ast.Div: lambda a, b: a / b,
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b, ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}


def evaluate(node, value):
    """The value of an expression of plain names and numbers; value(path) knows the names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, PLAIN + (type(None),)):
        return node.value
    path = path_of(node)
    if path is not None:
        return value(path)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = evaluate(node.left, value), evaluate(node.right, value)
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):  # a string times a million is work
            raise Unknown()
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not evaluate(node.operand, value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -evaluate(node.operand, value)
    if isinstance(node, ast.BoolOp):
        result = None
        for part in node.values:
            result = evaluate(part, value)
            if bool(result) == isinstance(node.op, ast.Or):
                return result
        return result
    if isinstance(node, ast.Compare):
        left = evaluate(node.left, value)
        for op, right_node in zip(node.ops, node.comparators):
            right = evaluate(right_node, value)
            if type(op) not in OPERATORS or not OPERATORS[type(op)](left, right):
                return False
            left = right
        return True
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and len(node.elts) <= 64:
        return [evaluate(e, value) for e in node.elts]
    raise Unknown()


class Loop:
    """A loop of the program that stands around a training step, and what its branches ask for."""

    def __init__(self, node, behind, filename):
        self.node, self.behind, self.filename = node, behind, filename
        self.branches = [n for n in inside(node) if isinstance(n, (ast.If, ast.IfExp))]
        self.nodes = {}  # path -> an expression that says it
        self.observed = {}  # path -> values, one a step
        for branch in self.branches + ([node] if isinstance(node, ast.While) else []):
            for path, n in paths_in(branch.test):
                self.nodes[path], self.observed[path] = n, []

    def observe(self, frame):
        for path, values in self.observed.items():
            value = light.resolve(self.nodes[path], frame)
            values.append(value if isinstance(value, PLAIN) else None)

    def stride(self, path):
        """How much a path grows in a step: nothing for what does not change."""
        values = self.observed.get(path)
        if not values or any(v is None for v in values):
            raise Unknown(path)
        if all(v == values[0] for v in values):
            return 0
        if len(values) < LEAST_OBSERVED or not all(isinstance(v, int) for v in values):
            raise Unknown(path)
        stride = values[-1] - values[-2]
        if any(b - a != stride for a, b in zip(values, values[1:])):
            raise Unknown(path)
        return stride

    def outlook(self, test):
        """A function from turns of the loop to what the test says then, and how many turns one step takes; (None, 1) without a counter.

        A loop that gathers gradients takes several turns for one step.
        """
        strides = {path: self.stride(path) for path, _ in paths_in(test)}
        turns = max([abs(s) for s in strides.values()] or [0])
        if not turns:
            return None, 1
        if any(s % turns for s in strides.values()):
            raise Unknown()

        def at(ahead):
            return bool(evaluate(test, lambda path: self.observed[path][-1] + strides[path] // turns * ahead if strides[path] else self.observed[path][-1]))

        return at, turns

    def steps_left(self, frame):
        """How often the loop goes round from now on, where it says so."""
        node = self.node
        if isinstance(node, ast.While):
            try:
                at, turns = self.outlook(node.test)
                for ahead in range(1, MOST_AHEAD if at else 0):
                    if not at(ahead):
                        return ahead
            except Exception:
                pass
            return MOST_AHEAD
        target, iterator = node.target, node.iter
        if isinstance(target, ast.Name) and isinstance(iterator, ast.Call) and path_of(iterator.func) == "range" and not iterator.keywords:
            try:
                span = range(*[now(a, frame) for a in iterator.args])
                return len(span) - 1 - span.index(light.resolve(target, frame))
            except Exception:
                pass
        return MOST_AHEAD

    def opens(self, branch, left):
        """(steps from now, statements) of the side of a branch that was not taken yet and will be."""
        try:
            at, turns = self.outlook(branch.test)
            if at is None:
                return
            count = len(next(iter(self.observed.values())))
            seen = {at(ahead) for ahead in range(1 - count * turns, 1)}
            if len(seen) != 1:
                return
            taken = seen.pop()
            for ahead in range(1, min(left, MOST_AHEAD) + 1):
                if at(ahead) != taken:
                    side = branch.orelse if taken else branch.body
                    if side:
                        yield -(-ahead // turns), side
                    return
        except Exception:
            return


def now(node, frame):
    """The value of an expression at this moment."""

    def value(path):
        name, _, attribute = path.partition(".")
        found = light.resolve(ast.Name(name), frame) if not attribute else light.resolve(ast.Attribute(ast.Name(name), attribute), frame)
        if not isinstance(found, PLAIN):
            raise Unknown(path)
        return found

    return evaluate(node, value)


def weigh(side, loop, frame):
    """What a side of a branch does; of an expression that chooses a size, that it changes what the loop works on."""
    if isinstance(side, list):
        return light.weigh(side, loop, frame)
    try:
        value = now(side, frame)
        return light.CHANGES if isinstance(value, int) and not isinstance(value, bool) else None
    except Exception:
        return light.weigh([side], loop, frame)


def inside(loop):
    """The nodes of a loop's body, without those of functions that are defined in it."""
    stack = list(loop.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        yield node
        stack.extend(ast.iter_child_nodes(node))


def loops_around(tree, line, name):
    """The loops of the function `name` around a line, the innermost first, each with the statements behind it up to the next loop."""
    found = []

    def visit(body, loops, behind):
        for i, node in enumerate(body):
            if not node.lineno <= line <= getattr(node, "end_lineno", node.lineno):
                continue
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                visit(node.body, [], [])
                if isinstance(node, ast.ClassDef) or node.name == name or found:
                    return
                continue
            rest = body[i + 1:] + behind
            is_loop = isinstance(node, (ast.For, ast.While))
            inner = loops + [(node, rest)] if is_loop else loops
            blocks = [b for b in (getattr(node, f, None) for f in ("body", "orelse", "finalbody")) if isinstance(b, list)]
            blocks += [h.body for h in getattr(node, "handlers", [])]
            for block in blocks:
                if block and block[0].lineno <= line <= getattr(block[-1], "end_lineno", line):
                    visit(block, inner, [] if is_loop else rest)
                    return
            found[:] = inner
            return

    visit(tree.body, [], [])
    return found[::-1]


class Horizon:
    """The loops around the training step, from the first step on."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.loops = {}  # (id of a frame, line of a loop) -> Loop
        self.trees = {}
        self.times = []  # of the first and the last step
        self.evaluations = MOST_EVALUATIONS
        self.until = None
        self.changing, self.evaluating = [], []

    def _tree(self, filename):
        if filename not in self.trees:
            tree = None
            if is_users(filename) and os.path.getsize(filename) <= MOST_SOURCE_BYTES:
                try:
                    tree = ast.parse("".join(linecache.getlines(filename)))
                except (SyntaxError, ValueError, RecursionError):
                    pass
            self.trees[filename] = tree
        return self.trees[filename]

    def _around(self, frame):
        """The program's own frames, the innermost first, with their loops."""
        for _ in range(MOST_FRAMES):
            if frame is None:
                return
            tree = self._tree(frame.f_code.co_filename)
            if tree is not None:
                loops = []
                for node, behind in loops_around(tree, frame.f_lineno, frame.f_code.co_name):
                    key = id(frame), node.lineno
                    if key not in self.loops:
                        self.loops[key] = Loop(node, behind, frame.f_code.co_filename)
                    loops.append(self.loops[key])
                yield frame, loops
            frame = frame.f_back

    def observe(self, frame):
        """A training step has ended."""
        if self.until is not None:
            return
        self.times = self.times[:1] + [time.monotonic()]
        for f, loops in self._around(frame):
            for loop in loops:
                loop.observe(f)

    def wants_more(self, frame, number, begin, fed, alone):
        """Whether to go on for what comes soon, asked after each step once enough steps were seen."""
        if self.until is None:
            step_seconds = (self.times[-1] - self.times[0]) / max(number - 1, 1)
            allowed = min(MOST_SECONDS, BUDGET_SHARE * (self.seconds - (time.monotonic() - begin))) if alone else 0
            self.until = number
            self._look(frame, number, step_seconds, allowed, fed)
        return number < self.until

    def _look(self, frame, number, step_seconds, allowed, fed):
        stepping = True  # the innermost loop of all goes round once a step
        for f, loops in self._around(frame):
            for loop in loops:
                left = loop.steps_left(f)
                for branch in loop.branches:
                    self.evaluations -= min(left, MOST_AHEAD)
                    if self.evaluations < 0:
                        return
                    for ahead, side in loop.opens(branch, left):
                        what = weigh(side, loop.node, f)
                        soon = stepping and ahead * step_seconds <= allowed
                        if what and soon:
                            self.until = max(self.until, number + ahead + light.STEPS_AFTER)
                        elif what:
                            self._name(what, loop.filename, (side[0] if isinstance(side, list) else side).lineno, ahead if stepping else None)
                if stepping and not fed:
                    what = light.weigh(loop.behind, loop.node, f)
                    if what:
                        self._name(what, loop.filename, loop.behind[0].lineno, None)
                stepping = False

    def _name(self, what, filename, line, ahead):
        names = self.changing if what == light.CHANGES else self.evaluating
        text = "%s line %d%s" % (os.path.basename(filename), line, ", %d steps later" % ahead if ahead else "")
        if len(names) < MOST_NAMED and text not in names:
            names.append(text)
