"""Values of expressions of plain numbers and text, worked out without running any of the program's code.

What is not known stays unknown, and only what depends on it: `known_false and anything` is false.
"""
import ast
import math

PLAIN = (int, float, bool, str)
MOST_ELEMENTS = 64
MOST_POWER = 64
# Numbers that a test may turn at, of one test.
MOST_LANDMARKS = 600


class Unknown(Exception):
    """A value that cannot be worked out without running the program's code."""


def path_of(node):
    """A name, or attributes and constant subscripts of one, as text; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = path_of(node.value)
        return owner and "%s.%s" % (owner, node.attr)
    if isinstance(node, ast.Subscript):
        owner, key = path_of(node.value), constant_key(node)
        return owner and key is not None and "%s[%r]" % (owner, key) or None
    return None


def constant_key(node):
    """The key of a subscript, where it is written down."""
    key = node.slice
    key = getattr(key, "value", key) if type(key).__name__ == "Index" else key  # before Python 3.9
    if isinstance(key, ast.UnaryOp) and isinstance(key.op, ast.USub) and isinstance(key.operand, ast.Constant) and type(key.operand.value) is int:
        return -key.operand.value
    return key.value if isinstance(key, ast.Constant) and type(key.value) in (int, str) else None


def paths_in(node):
    """Every path of an expression with the node that says it; the object of an attribute is no path of its own, nor is what is called."""
    path = path_of(node)
    if path is not None:
        yield path, node
        return
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call) and path_of(node.func) is not None:
        children = list(node.args) + [k.value for k in node.keywords]
    for child in children:
        for found in paths_in(child):
            yield found


def _power(a, b):
    if abs(a) > 1 << 32 or abs(b) > MOST_POWER:
        raise Unknown()
    return a**b


def _shift(a, b):
    if not 0 <= b <= MOST_POWER:
        raise Unknown()
    return a << b


ARITHMETIC = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b, ast.Div: lambda a, b: a / b, ast.Pow: _power, ast.LShift: _shift, ast.RShift: lambda a, b: a >> b,
    ast.BitAnd: lambda a, b: a & b, ast.BitOr: lambda a, b: a | b, ast.BitXor: lambda a, b: a ^ b,
}
COMPARISONS = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b, ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}
# Functions of numbers, by the names that they have.
PURE = {
    "int": int, "float": float, "bool": bool, "abs": abs, "min": min, "max": max, "round": round, "len": len,
    "math.floor": math.floor, "math.ceil": math.ceil, "math.sqrt": math.sqrt, "math.log": math.log, "math.log2": math.log2, "math.exp": math.exp,
    "math.cos": math.cos, "math.sin": math.sin,
}


def is_pure(call):
    return path_of(call.func) in PURE and not call.keywords


def evaluate(node, value):
    """The value of an expression; value(path, node) knows the names. Raises Unknown, and what arithmetic raises."""
    if isinstance(node, ast.Constant) and isinstance(node.value, PLAIN + (type(None),)):
        return node.value
    path = path_of(node)
    if path is not None:
        return value(path, node)
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left, right = evaluate(node.left, value), evaluate(node.right, value)
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):  # a string times a million is work
            raise Unknown()
        return ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not evaluate(node.operand, value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -evaluate(node.operand, value)
    if isinstance(node, ast.BoolOp):
        return _connected(node, value)
    if isinstance(node, ast.Compare):
        return _compared(node, value)
    if isinstance(node, ast.IfExp):
        return evaluate(node.body if evaluate(node.test, value) else node.orelse, value)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and len(node.elts) <= MOST_ELEMENTS:
        return [evaluate(e, value) for e in node.elts]
    if isinstance(node, ast.Call) and is_pure(node):
        return PURE[path_of(node.func)](*[evaluate(a, value) for a in node.args])
    raise Unknown()


def at_most(node, value):
    """The value of an expression, or, of the least of several things, the least that is known."""
    if isinstance(node, ast.Call) and path_of(node.func) == "min" and is_pure(node) and len(node.args) > 1:
        known = []
        for a in node.args:
            try:
                known.append(evaluate(a, value))
            except Unknown:
                pass
        if known:
            return min(known)
    return evaluate(node, value)


def _connected(node, value):
    unknown, result = False, None
    for part in node.values:
        try:
            result = evaluate(part, value)
        except Unknown:
            unknown = True
            continue
        if bool(result) == isinstance(node.op, ast.Or):
            return result
    if unknown:
        raise Unknown()
    return result


def _compared(node, value):
    unknown, sides = False, []
    for side in [node.left] + node.comparators:
        try:
            sides.append((evaluate(side, value),))
        except Unknown:
            sides.append(None)
    for op, left, right in zip(node.ops, sides, sides[1:]):
        if left is None or right is None or type(op) not in COMPARISONS:
            unknown = True
        elif not COMPARISONS[type(op)](left[0], right[0]):
            return False
    if unknown:
        raise Unknown()
    return True


def landmarks(numbers):
    """The numbers at which a test with these constants may turn: they, their sums, products and quotients, and their neighbours."""
    numbers = sorted({n for n in numbers if isinstance(n, (int, float)) and math.isfinite(n)}, key=abs)[:12]
    found = set(numbers)
    for a in numbers:
        found.update(m * a for m in (2, 3))
        for b in numbers:
            found.update((a * b, (a + 1) * b, a + b, a - b))
            if b:
                found.add(a / b)
    return sorted(found, key=abs)[:MOST_LANDMARKS]


def turns_to(begin, stride, numbers, most):
    """The turns, from the first on, after which a counter is at one of these numbers or beside it; the first turns and powers of two as well."""
    turns = set(range(1, int(min(most, 2048)) + 1))
    turns.update(1 << k for k in range(11, 50))
    for n in numbers:
        try:
            at = (n - begin) / stride
            turns.update((math.floor(at) - 1, math.floor(at), math.ceil(at), math.ceil(at) + 1))
        except (OverflowError, ZeroDivisionError, ValueError):
            continue
    turns.add(most)
    return sorted(t for t in turns if 1 <= t <= most)
