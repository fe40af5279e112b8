"""Settings that one process trains with one after the other, and that are given to what trains by something else than a name: tables, rows, command lines,
`map`, jobs of a pool, a library that looks for the best ones. What of a later one is a larger number, or another word, is larger until it was seen.
"""
import ast
import itertools
import re
import sys
import threading

from . import lists, motions, sources
from .expressions import path_of
from .sources import resolve

MOST_FRAMES = 200
MOST_SETTINGS = 200
MOST_LEAVES = 64
DEEPEST = 4
# Calls that give a function one thing after the other.
MAPS = {"map": False, "imap": False, "imap_unordered": False, "map_async": False, "starmap": True, "starmap_async": True}
SUBMITS = {"submit", "apply_async", "apply"}
POOLS = ("multiprocessing.pool", "concurrent.futures.process", "joblib.externals.loky")
# Libraries that call a function again and again with settings of their choice.
SEARCHES = ("optuna", "hyperopt", "ray.tune", "wandb.agents", "sklearn.model_selection", "skopt", "nevergrad", "bayes_opt", "smac", "ax.")
# Settings of which another number or word takes no memory of the card.
HARMLESS = re.compile(
    r"seed|fold|epoch|step|iter|patience|warm|every|interval|log|save|worker|^run$|trial|^id$|_id$|rank|gpu|device|^lr|rate|decay|momentum|beta|eps|"
    r"^start|offset|shift|^name$|run_name|exp|path|dir|^out|file|^tag|desc|note|verbose|print|repeat")


class Grids:
    """Looks at the frames around a training step, the innermost first."""

    def __init__(self, frame, moments, scopes, fed):
        self.frames, self.moments, self.scopes, self.fed = [], moments, scopes, fed
        while frame is not None and len(self.frames) < MOST_FRAMES:
            self.frames.append(frame)
            frame = frame.f_back
        self.users = [f for f in self.frames if sources.is_users(f.f_code.co_filename)]
        if threading.current_thread() is not threading.main_thread():
            waiting = sys._current_frames().get(threading.main_thread().ident)
            while waiting is not None and len(self.users) < MOST_FRAMES:
                if sources.is_users(waiting.f_code.co_filename):
                    self.users.append(waiting)
                waiting = waiting.f_back

    def places(self):
        """(filename, line) of where later settings may need more."""
        for place in self._of_libraries():
            yield place
        for inner, outer in zip(self.users, self.users[1:]):
            for place in self._given(inner, outer):
                yield place
        outer = [(moment, loop) for _, moment, loops in self.moments for loop in loops][1:]
        for moment, loop in outer:
            if isinstance(loop.node, ast.For) and self._worse_in_loop(loop.node, moment):
                yield loop.filename, loop.node.lineno

    # -- libraries

    def _of_libraries(self):
        for i, frame in enumerate(self.frames):
            module = frame.f_globals.get("__name__") or ""
            if not module.startswith(POOLS + SEARCHES) or sources.is_users(frame.f_code.co_filename):
                continue
            called = next((f for f in self.frames[:i][::-1] if sources.is_users(f.f_code.co_filename)), None)
            if called is None:
                continue
            if module.startswith("optuna"):
                line = self._suggested()
                if line is not None:
                    yield line
            else:
                yield called.f_code.co_filename, called.f_code.co_firstlineno
            return

    def _suggested(self):
        """Where a setting is asked for that is no fraction."""
        bodies = [(f.f_code.co_filename, sources.definition_of(f.f_code)) for f in self.users]
        bodies += [(sources.code_of(s.function).co_filename, s.node) for s in self.scopes]
        for filename, node in bodies:
            for part in sources.inside(sources.body_of(node)) if node is not None else ():
                name = getattr(part.func, "attr", "") if isinstance(part, ast.Call) else ""
                if name.startswith("suggest_") and not name.endswith(("float", "uniform")) and not any(HARMLESS.search(str(getattr(a, "value", ""))) for a in part.args[:1]):
                    return filename, part.lineno
        return None

    # -- jobs

    def _given(self, inner, outer):
        """Where the function that runs in one frame is given other things by the function of the frame around it."""
        node = sources.tree(outer.f_code.co_filename) if outer.f_code.co_name == "<module>" else sources.definition_of(outer.f_code)
        if node is None:
            return
        scope, now = sources.Moment(outer), sources.Moment(inner).names
        names = inner.f_code.co_varnames[: inner.f_code.co_argcount + inner.f_code.co_kwonlyargcount]
        now = {n: now.get(n) for n in names}
        for call, settings in self._jobs(sources.body_of(node), scope, inner.f_code, names):
            if _grows(now, settings, True):
                yield outer.f_code.co_filename, call.lineno
        for call in self._drawn(node, outer, scope, inner.f_code):
            yield outer.f_code.co_filename, call.lineno

    @staticmethod
    def _drawn(node, frame, scope, code):
        """The calls in a loop that give a function settings that chance has chosen anew."""
        module = sources.tree(frame.f_code.co_filename)
        for loop, _ in sources.loops_around(module, frame.f_lineno, frame.f_code.co_name)[0]:
            drawn = {t.id for n in sources.inside(loop.body) if isinstance(n, ast.Assign) and _is_drawn(n.value, scope) for t in n.targets if isinstance(t, ast.Name)}
            for call in sources.inside(loop.body):
                if isinstance(call, ast.Call) and _is(call.func, scope, code):
                    given = [a.value if isinstance(a, ast.Starred) else a for a in call.args] + [k.value for k in call.keywords]
                    for name in {a.id for a in given if isinstance(a, ast.Name)} & drawn:
                        if any(isinstance(v, (int, str)) and not _is_harmless(place) for place, v in leaves({name: scope.find(name)})):
                            yield call

    def _jobs(self, statements, scope, code, names):
        """(node, settings) of what gives a function one thing after the other."""
        for node in sources.inside(statements):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in MAPS and len(node.args) > 1 and _is(node.args[0], scope, code):
                    rows = [through(a, scope) for a in node.args[1:]]
                    if None not in rows:
                        spread = MAPS[name]
                        yield node, [dict(zip(names, r[0] if spread and type(r[0]) in (tuple, list) else r)) for r in itertools.islice(zip(*rows), MOST_SETTINGS)]
            elif isinstance(node, (ast.GeneratorExp, ast.ListComp)) and len(node.generators) == 1 and isinstance(node.elt, ast.Call):
                call, given = node.elt, node.elt.args
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                if name in SUBMITS and given and _is(given[0], scope, code):
                    given = given[1:]
                elif not (_is(call.func, scope, code) or isinstance(call.func, ast.Call) and call.func.args and _is(call.func.args[0], scope, code)):  # delayed(f)(x)
                    continue
                items = through(node.generators[0].iter, scope)
                if items is not None:
                    yield node, [self._bound(call, given, node.generators[0].target, item, names, scope) for item in items[:MOST_SETTINGS]]

    @staticmethod
    def _bound(call, given, target, item, names, scope):
        """The arguments of a call for one item, as far as they are known."""
        parts = dict(_parts(target, item))
        within, found = _With(parts, scope), {}
        for name, node in zip(names, given):
            if isinstance(node, ast.Starred):
                found.update(zip(names, _value(node.value, within) or ()))
            else:
                found[name] = _value(node, within)
        for keyword in call.keywords:
            if keyword.arg is None and isinstance(_value(keyword.value, within), dict):
                found.update(_value(keyword.value, within))
            elif keyword.arg:
                found[keyword.arg] = _value(keyword.value, within)
        return found

    # -- loops

    def _worse_in_loop(self, loop, moment):
        """Whether a later turn of an outer loop has a larger setting; a plain number under a name is followed by itself."""
        items = through(loop.iter, moment)
        if not items or len(items) < 2 or not any(isinstance(i, (dict, tuple, list)) or hasattr(i, "__dict__") for i in items):
            return False
        target = loop.target
        if isinstance(target, ast.Name):
            called = [n for n in sources.inside(loop.body) if isinstance(n, ast.Call) and any(isinstance(a, ast.Starred) and getattr(a.value, "id", None) == target.id for a in n.args)]
            names = [a for n in called for a in _parameters(resolve(n.func, moment))]
            if names and all(isinstance(i, (tuple, list)) for i in items):
                items = [dict(zip(names, i)) for i in items]
                now = moment.find(target.id)
                return _grows(dict(zip(names, now)) if isinstance(now, (tuple, list)) else items[0], items, not self.fed)
            return _grows({target.id: moment.find(target.id)}, [{target.id: i} for i in items], not self.fed or isinstance(items[0], dict))
        settings = [dict(_parts(target, i)) for i in items]
        return not self.fed and _grows({n: moment.find(n) for n in settings[0]}, settings, True, False)


class _With:
    """A scope with some names more."""

    def __init__(self, parts, scope):
        self.parts, self.scope = parts, scope

    def find(self, name):
        return self.parts[name] if name in self.parts else self.scope.find(name)


def _value(node, scope):
    return node.value if isinstance(node, ast.Constant) else resolve(node, scope)


def _is_drawn(node, scope):
    """Whether a value is drawn by chance, all of it or a part; an order is no setting."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr not in ("permutation", "shuffle", "sample", "seed"):
            owner = resolve(part.func.value, scope)
            if getattr(owner, "__name__", "") in motions.RESTLESS[:1] + motions.RESTLESS[2:3] or type(owner).__module__ in ("random", "numpy.random._generator"):
                return True
    return False


def _is(node, scope, code):
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and code.co_firstlineno == node.lineno
    return sources.code_of(resolve(node, scope)) is code


def _parameters(function):
    code = sources.code_of(function)
    return code.co_varnames[: code.co_argcount] if code is not None and sources.is_users_function(function) else ()


def _parts(target, item):
    """(name, value) of what the names of a loop stand for, of one item."""
    if isinstance(target, ast.Name):
        yield target.id, item
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(item, (tuple, list)) and len(item) == len(target.elts):
        for t, i in zip(target.elts, item):
            for part in _parts(t, i):
                yield part


def through(node, scope):
    """The items of what a loop goes through, where they are known."""
    name = path_of(node.func) if isinstance(node, ast.Call) else None
    name = name.rpartition(".")[2] if name else None
    if name in ("product", "zip") and not node.keywords:
        sides = [s for a in node.args for s in _sides(a, scope)]
        if sides and None not in sides:
            return list(itertools.islice(itertools.product(*sides) if name == "product" else zip(*sides), MOST_SETTINGS))
        return None
    if name == "ParameterGrid" and node.args and isinstance(resolve(node.args[0], scope), dict):
        table = resolve(node.args[0], scope)
        sides = [list(v) for v in table.values() if isinstance(v, (list, tuple))]
        return [dict(zip(table, v)) for v in itertools.islice(itertools.product(*sides), MOST_SETTINGS)] if len(sides) == len(table) else None
    if name in motions.THROUGH | {"enumerate"} and node.args:
        found = through(node.args[0], scope)
        return list(enumerate(found)) if found is not None and name == "enumerate" else found
    if isinstance(node, (ast.Tuple, ast.List)):
        found = [_written(e, scope) for e in node.elts]
        return None if None in found else found
    value = resolve(node, scope) if path_of(node) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items") and isinstance(resolve(node.func.value, scope), dict):
        value = list(getattr(dict, node.func.attr)(resolve(node.func.value, scope)))
    return list(value)[:MOST_SETTINGS] if type(value) in lists.CONTAINERS + (set,) and not isinstance(value, dict) else None


def _sides(node, scope):
    """The sides of a product: one, or those that are in a table or list."""
    if not isinstance(node, ast.Starred):
        return [through(node, scope)]
    sides = through(node.value, scope)
    return [list(s) if isinstance(s, (list, tuple, range)) else None for s in sides] if sides is not None else [None]


def _written(node, scope):
    """The value of a setting that is written down, or that a name stands for."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return [_written(e, scope) for e in node.elts]
    if isinstance(node, ast.Dict):
        return {getattr(k, "value", None): _written(v, scope) for k, v in zip(node.keys, node.values)}
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "dict" and not node.args:
        return {k.arg: _written(k.value, scope) for k in node.keywords}
    return _value(node, scope)


def leaves(value, place=(), depth=0):
    """(place, value) of the plain values of a setting; how many a row has is one of them."""
    if isinstance(value, (int, float, str, type)):
        yield place, value
    elif depth < DEEPEST and isinstance(value, dict):
        for key, part in list(value.items())[:MOST_LEAVES]:
            for leaf in leaves(part, place + (key,), depth + 1):
                yield leaf
    elif depth < DEEPEST and isinstance(value, (list, tuple)):
        yield place + ("count",), len(value)
        for i, part in enumerate(list(value)[:MOST_LEAVES]):
            told = value[i - 1] if i and isinstance(value[i - 1], str) and value[i - 1].startswith("-") else None  # of a command line
            for leaf in leaves(part, place + (told or i,), depth + 1):
                yield leaf
    elif depth < DEEPEST and isinstance(getattr(value, "__dict__", None), dict) and not callable(value) and _is_plain(value):
        for leaf in leaves(vars(value), place, depth + 1):
            yield leaf


def _is_plain(value):
    """Whether an object holds settings: one of the program's own, or of a parser."""
    module = sys.modules.get(type(value).__module__)
    return type(value).__name__ in ("Namespace", "SimpleNamespace") or sources.is_users(getattr(module, "__file__", None) or "")


def _grows(now, settings, words, within=True):
    """Whether one of the settings behind the present one has a larger number, or another word where words count; within says whether plain values alone count, too."""
    every = [dict(leaves(s)) for s in settings]
    now = dict(leaves(now)) or (every[0] if every else {})  # a comprehension has names of its own
    behind = every[every.index(now) + 1 :] if now in every else every
    return any(_more(now.get(place), value, words) for setting in behind for place, value in setting.items() if (within or len(place) > 1) and not _is_harmless(place))


def _is_harmless(place):
    return any(isinstance(key, str) and HARMLESS.search(key.lower().lstrip("-")) for key in place[-1:])


def _more(now, later, words):
    if isinstance(later, str) and isinstance(now, str):
        try:
            now, later = int(now), int(later)
        except ValueError:
            try:
                float(now), float(later)
                return False
            except ValueError:
                return words and now != later
    if isinstance(later, bool) or isinstance(later, type):
        return words and later is not now
    if isinstance(later, int):
        return type(now) is not int or later > now
    return isinstance(later, str) and words
