"""Lists of the program's own of which it makes its batches: whether the longest of their items was in a step that was seen.

A sequence in a list has a length that costs nothing to ask. What the steps had on the card has sizes of which one is such a length; where the list holds a
longer one, and nothing in the source cuts all to that size, a later batch is larger. A list with which no size on the card has to do says nothing.
"""
import ast
import collections
import re
import time
import types

from . import light, sources
from .expressions import constant_key, path_of
from .growth import width
from .sources import resolve

MOST_ITEMS = 50000
MOST_PARTS = 16
DEEPEST = 4
MOST_LISTS = 40
MOST_SERIES = 400
MOST_SECONDS = 0.8
# Shorter things are no sequences, and fewer are no samples.
LEAST_LENGTH = 8
LEAST_ITEMS = 2
# Nobody minds an item that is longer by this share.
MOST_SPREAD = 0.05
CONTAINERS = (list, tuple, dict, collections.defaultdict, collections.OrderedDict, collections.deque)
# Functions that are given a table to choose or to take from.
TAKES = {"list", "iter", "sorted", "tuple", "enumerate", "zip", "cycle", "choice", "choices", "sample", "shuffle", "tqdm"}
# What bounds a length by its name.
CAP = re.compile(r"max|len|crop|block|ctx|context|window|resol|image_size|img_size|trunc|seq|bptt|horizon|chunk")
CUTS = re.compile(r"resize|crop|interpolate|trunc|pad|tokeniz")
TEXT = "text"
# Letters that become one number, at most.
MOST_OF_A_WORD = 12


class Lists:
    """What the steps had on the card, and whether a list has more."""

    def __init__(self):
        self.seen = {}  # (code, name, place) -> shapes, one a step
        self.words = set()  # those of whole numbers
        self.varies = ""
        self.trained = set()  # ids of what optimizers change, which they hold

    def trains(self, optimizer):
        """What an optimizer changes is no batch: copies of weights are plain tensors."""
        self.trained.update(id(p) for group in optimizer.param_groups for p in group["params"])

    def _are_trained(self, values):
        parts = [p for v in _some(values, MOST_PARTS) for p in (v[:MOST_PARTS] if isinstance(v, (list, tuple)) else [v])]
        return any(id(p) in self.trained for p in parts)

    def observe(self, code, moment, loops):
        """A training step has ended: the tensors that a function has under names that the step assigns."""
        names = loops[0].assigned() if loops else code.co_varnames
        for name in list(names)[:200]:
            value = moment.names.get(name) if moment.names else None
            if light.is_module(value) or isinstance(value, CONTAINERS) and len(value) > MOST_PARTS:
                continue
            for place, (shape, integers) in enumerate(_on_the_card(value, 0)):
                if len(self.seen) < MOST_SERIES or (code, name, place) in self.seen:
                    self.seen.setdefault((code, name, place), []).append(shape)
                    if integers:
                        self.words.add((code, name, place))

    def judge(self, frames, scopes, loaders, batches):
        """Looks at the lists that the loops around a step read, and at those of the data sets; batches are the shapes that data loaders gave, where all were alike."""
        deadline, known, numbers = time.monotonic() + MOST_SECONDS, {}, set()
        for statements, scope, own in read(frames, scopes):
            numbers.update(_bounds(statements, scope))
            for node, value in taken_from(statements, scope, own):
                if len(known) < MOST_LISTS and id(value) not in known and len(value) >= LEAST_ITEMS and not self._are_trained(value):
                    known[id(value)] = value, "%s line %d" % (_file(scope), getattr(node, "lineno", 0))
        for loader in loaders[:MOST_PARTS]:
            for value in _of_data_set(getattr(loader, "dataset", None), 0):
                known.setdefault(id(value), (value, "a data set that is a %s" % type(loader.dataset).__name__))
        series = list(_series((key in self.words, shapes) for key, shapes in self.seen.items())) + list(_series((False, [shape]) for shape in batches))
        for value, place in known.values():
            if self.varies or time.monotonic() > deadline:
                return
            longer = _longer(lengths(value, deadline), series, numbers)
            if longer:
                self.varies = "a list of which batches are made (%s) has items of length %d, and the longest so far had %d%s" % ((place,) + longer)


def _on_the_card(value, depth):
    """(shape, whether of whole numbers) of tensors that are on the card and need no gradient."""
    if light.is_tensor(value):
        if value.is_cuda and not value.requires_grad and value.dim():
            yield tuple(value.shape), not value.is_floating_point()
    elif depth < 3 and (isinstance(value, CONTAINERS) or isinstance(getattr(value, "data", None), dict)):
        parts = value if isinstance(value, CONTAINERS) else value.data
        for part in list(parts.values() if isinstance(parts, dict) else parts)[:MOST_PARTS]:
            for found in _on_the_card(part, depth + 1):
                yield found


def _series(shapes_of_steps):
    """(place of the dimension, whether of words, sizes) of what had as many dimensions at each step."""
    for integers, shapes in shapes_of_steps:
        if len({len(s) for s in shapes}) == 1:
            for place in range(len(shapes[0])):
                yield place, integers and len(shapes[0]) == 2, [s[place] for s in shapes]


def read(frames, scopes):
    """(statements, scope, names that each step assigns) of all that a step runs."""
    for frame, moment, loops in frames:
        node = loops[-1].node if loops else sources.definition_of(frame.f_code)
        if node is not None:
            yield [node] if loops else sources.body_of(node), moment, loops[0].assigned() if loops else {}
            if loops:
                break
    for scope in scopes:
        yield sources.body_of(scope.node), scope, {}


def _file(scope):
    code = scope.code if isinstance(scope, sources.Moment) else sources.code_of(scope.function)
    return code.co_filename.rpartition("/")[2]


def taken_from(statements, scope, own, depth=0):
    """(node, list) of the lists and tables of which statements take items that are not always the same."""
    for node in sources.inside(statements):
        for asked, table in _asked(node):
            root = asked
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if path_of(asked) is None or isinstance(root, ast.Name) and root.id in own:
                continue
            value = resolve(asked, scope)
            if isinstance(value, types.GeneratorType) and value.gi_frame is not None and depth < 2:
                inner = sources.definition_of(value.gi_frame.f_code)
                if inner is not None:
                    for found in taken_from(sources.body_of(inner), sources.Moment(value.gi_frame), {}, depth + 1):
                        yield found
            elif type(value) in CONTAINERS and (table or not isinstance(value, dict)):
                yield asked, value
            elif _is_array(value) and value.dtype == object and value.ndim == 1:
                yield asked, value


def _asked(node):
    """(expression, whether it may be a table) of what a node takes items from."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and constant_key(node) is None:
        yield node.value, True
    for through in [node.iter] if isinstance(node, (ast.For, ast.AsyncFor)) else [g.iter for g in getattr(node, "generators", [])]:
        yield through, True
        if isinstance(through, ast.Call) and isinstance(through.func, ast.Attribute) and through.func.attr in ("values", "items"):
            yield through.func.value, True
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for given in node.args:
            yield given, name in TAKES
        if isinstance(node.func, ast.Attribute) and name in ("pop", "popleft"):
            yield node.func.value, False


def _of_data_set(dataset, depth):
    """The lists in a data set that may hold its samples."""
    if type(dataset) in CONTAINERS:
        yield dataset
        return
    try:
        held = list(vars(dataset).items())[:100]
        count = len(dataset) if hasattr(type(dataset), "__len__") else 2 * MOST_PARTS  # a stream has none
    except Exception:
        return
    for name, value in held:
        if type(value) in (list, tuple, dict) and len(value) >= max(LEAST_ITEMS, count // 2):
            yield value
        elif depth < 3 and (name == "dataset" or name == "datasets" and type(value) is list):
            for part in value[:MOST_PARTS] if name == "datasets" else [value]:
                for found in _of_data_set(part, depth + 1):
                    yield found


def _is_array(value):
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _some(values, most):
    """Some of many, evenly; the last is one of them."""
    values = list(values.values()) if isinstance(values, dict) else list(values)
    if len(values) <= most:
        return values
    return values[:: -(-len(values) // most)] + values[-1:]


def lengths(value, deadline):
    """(place in an item, dimension) -> the sizes of the items."""
    found = {}
    for i, item in enumerate(_some(value, MOST_ITEMS)):
        _measure(item, (), 0, found)
        if i % 1000 == 999 and time.monotonic() > deadline:
            break
    return found


def _measure(item, place, depth, found):
    if isinstance(item, (int, float)) or item is None:
        return
    if light.is_tensor(item) or _is_array(item):
        if not getattr(item, "requires_grad", False) and type(item).__name__ != "Parameter":
            for i, size in enumerate(item.shape):
                found.setdefault((place, i), []).append(size)
    elif isinstance(item, str):
        found.setdefault((place, TEXT), []).append(len(item))
    elif depth >= DEEPEST or isinstance(item, type) or callable(item):
        return
    elif isinstance(item, dict):
        for key, part in list(item.items())[:MOST_PARTS]:
            _measure(part, place + (key,), depth + 1, found)
    elif isinstance(item, (list, tuple, collections.deque)):
        if item and isinstance(item[0], (int, float)) and isinstance(item[-1], (int, float)):
            found.setdefault((place, 0), []).append(len(item))
        elif len(item) > MOST_PARTS:  # a bucket of samples
            for part in _some(item, 64):
                _measure(part, place + ("*",), depth + 1, found)
        else:
            for i, part in enumerate(item):
                _measure(part, place + (i,), depth + 1, found)
    elif isinstance(getattr(item, "__dict__", None), dict):
        for key, part in list(vars(item).items())[:MOST_PARTS]:
            _measure(part, place + (key,), depth + 1, found)


def _longer(lengths_of, series, numbers):
    """(length of the longest item, that of the longest that was seen, what of) where a later batch may be larger."""
    for (_, dimension), sizes in lengths_of.items():
        least, most = min(sizes), max(sizes)
        if most < LEAST_LENGTH or least == most:
            continue
        values, usual, longest = set(sizes), sorted(sizes)[len(sizes) // 2], None
        for place, of_words, seen in series:
            varies = max(seen) != min(seen)
            if dimension == TEXT:
                concerned = place == 1 and max(seen) > 1 and (varies or of_words and usual // MOST_OF_A_WORD <= seen[0] <= usual)
            elif varies:
                concerned = least <= min(seen)
            else:
                concerned = seen[0] in values and (place > 0 or seen[0] not in numbers)
            if not concerned:
                continue
            if max(seen) in numbers or dimension != TEXT and max(seen) >= most:
                longest = None
                break
            longest = max(longest or 0, max(seen))
        if longest is not None and (dimension == TEXT and most > 2 * usual or dimension != TEXT and most > longest * (1 + MOST_SPREAD)):
            return most, longest, " in what was made of it" if dimension == TEXT else ""
    return None


def _bounds(statements, scope):
    """The numbers to which a source may cut what is longer, or fill up what is shorter."""
    assigned = sources.assignments(statements)

    def note(node):
        path = path_of(node)
        if any(not isinstance(v, (ast.Constant, ast.Name, ast.Attribute)) for v in assigned.get(path, ())):  # the length of this batch
            return []
        value = node.value if isinstance(node, ast.Constant) else resolve(node, scope) if path else None
        return [value] if type(value) is int else []

    for node in sources.inside(statements):
        given = []
        if isinstance(node, ast.Slice) and node.upper is not None:
            given = list(width(node))
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("min", "range") or CUTS.search(name.lower()):
                given = [e for a in list(node.args) + [k.value for k in node.keywords] for e in getattr(a, "elts", [a])]
            given = given + [k.value for k in node.keywords if k.arg and CAP.search(k.arg.lower()) and "batch" not in k.arg]
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            given = [node] if CAP.search(name.lower()) and "batch" not in name.lower() else []
        for number in given:
            for value in note(number):
                yield value
