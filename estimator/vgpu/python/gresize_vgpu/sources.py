"""The program's own source: what it says where, and what its names stand for at a moment. What libraries do is not read."""
import ast
import inspect
import linecache
import os
import sys
import sysconfig

from gresize_imports import HERE

MOST_SOURCE_BYTES = 1 << 20
MOST_FILES = 200
DEEPEST = 8


def _library_folders():
    paths = sysconfig.get_paths()
    folders = {os.path.realpath(paths[k]) for k in ("stdlib", "platstdlib", "purelib", "platlib") if k in paths}
    return tuple(f + os.sep for f in folders) + (HERE,)


LIBRARIES = _library_folders()
_users, _trees, _definitions = {}, {}, {}
_installed = None


def _installed_folders():
    """Folders on the path into which packages were installed, such as by `pip install --target`."""
    found = []
    for folder in list(dict.fromkeys(sys.path))[:50]:
        try:
            if folder and any(name.endswith(".dist-info") for name in os.listdir(folder)):
                found.append(folder + os.sep)
                found.append(os.path.realpath(folder) + os.sep)
        except OSError:
            continue
    return tuple(found)


def _is_library(path):
    global _installed
    if _installed is None:
        _installed = _installed_folders()
    return path.startswith(LIBRARIES) or path.startswith(_installed) or "site-packages" in path or "dist-packages" in path


def is_users(filename):
    """Whether code is the program's own."""
    known = _users.get(filename)
    if known is None:
        known = not _is_library(filename)
        if known:
            path = os.path.realpath(filename)
            known = os.path.isfile(path) and not _is_library(path)
        _users[filename] = known
    return known


def tree(filename):
    """The syntax of a file of the program's; None where there is none to be read."""
    if filename not in _trees:
        found = None
        if is_users(filename) and len(_trees) < MOST_FILES and os.path.getsize(filename) <= MOST_SOURCE_BYTES:
            try:
                found = ast.parse("".join(linecache.getlines(filename)))
            except (SyntaxError, ValueError, RecursionError):
                pass
        _trees[filename] = found
    return _trees[filename]


def unwrapped(function):
    """A function without what decorators put around it, of which PyTorch has one around every optimizer's step."""
    function = getattr(function, "func", function)  # functools.partial
    for _ in range(DEEPEST):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return getattr(function, "__func__", function)


def code_of(function):
    return getattr(unwrapped(function), "__code__", None)


def is_users_function(value):
    code = code_of(value)
    return inspect.iscode(code) and is_users(code.co_filename)


def definition(function):
    """The syntax of a function of the program's; None for others."""
    code = code_of(function)
    return definition_of(code) if inspect.iscode(code) else None


def definition_of(code):
    if code not in _definitions:
        _definitions[code] = None
        for node in ast.walk(tree(code.co_filename) or ast.Module([], [])):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name or isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
                first = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])])
                if code.co_firstlineno in (first, node.lineno):
                    _definitions[code] = node
                    break
    return _definitions[code]


def body_of(node):
    return node.body if isinstance(node.body, list) else [node.body]


def inside(body):
    """The nodes of some statements, without those of functions that are defined in them."""
    stack = list(body)[::-1]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        yield node
        stack.extend(list(ast.iter_child_nodes(node))[::-1])


def loops_around(module, line, name):
    """The loops of the function `name` around a line, the innermost first, each with the statements behind it up to the next loop; and
    what is behind all of them, or, without a loop, behind the line."""
    found, last = [], []

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
                    after = getattr(node, "finalbody", []) if block is not getattr(node, "finalbody", None) else []
                    visit(block, inner, [] if is_loop else after + rest)
                    return
            found[:], last[:] = inner, rest
            return

    visit(module.body, [], [])
    return found[::-1], last if not found else []


class Moment:
    """The names of a running function, as they are now."""

    def __init__(self, frame):
        self.code = frame.f_code
        self.globals = frame.f_globals
        self.names = names_of(frame)

    def find(self, name):
        return self.names.get(name, self.globals.get(name))


def names_of(frame):
    """Before Python 3.13 a function's f_locals is a copy that its frame keeps: what is in it, such as the last batch, would live longer. So it is emptied;
    but where the program itself asks for locals(), that is the dictionary that it got, and is left alone."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return frame.f_locals
    if sys.version_info >= (3, 13):
        return dict(frame.f_locals)
    if _asks_for_locals(code):
        return {}
    names = frame.f_locals
    kept = dict(names)
    names.clear()
    return kept


def _asks_for_locals(code):
    """Whether a function asks for the dictionary of its names: by locals(), or by vars() of nothing; what vars() says of something is another dictionary."""
    if "locals" not in code.co_names and "vars" not in code.co_names:
        return False
    node = definition_of(code)
    if node is None:
        return True
    nodes = list(inside(body_of(node)))
    of_something = {id(n.func) for n in nodes if isinstance(n, ast.Call) and len(n.args) == 1 and not isinstance(n.args[0], ast.Starred)}
    return any(isinstance(n, ast.Name) and (n.id == "locals" or n.id == "vars" and id(n) not in of_something) for n in nodes)


class Called:
    """The names of a function of the program's in a call of it that has not happened yet, or is over."""

    def __init__(self, function, node, arguments, caller, objects):
        self.function, self.node, self.arguments, self.caller, self.objects = function, node, arguments, caller, objects
        self.depth = getattr(caller, "depth", 0) + 1
        plain = unwrapped(function)
        self.globals = getattr(plain, "__globals__", {})
        code = code_of(function)
        self.cells = {}
        for name, cell in zip(code.co_freevars, getattr(plain, "__closure__", None) or ()):
            try:
                self.cells[name] = cell.cell_contents
            except ValueError:  # not set yet
                pass
        self.locals = set(code.co_varnames) | set(code.co_cellvars)
        self._assigned = None
        self._finding = set()

    def assigned(self):
        """What the function itself assigns to its names: path -> nodes."""
        if self._assigned is None:
            self._assigned = assignments(body_of(self.node))
        return self._assigned

    def yields(self):
        return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in inside(body_of(self.node)))

    def find(self, name):
        if name in self.objects:
            return self.objects[name]
        if name in self.arguments:
            return resolve(self.arguments[name], self.caller)
        if name in self.cells:
            return self.cells[name]
        if name in self.locals:
            values = self.assigned().get(name, [])
            if len(values) == 1 and isinstance(values[0], (ast.Name, ast.Attribute, ast.Subscript)) and self.depth < DEEPEST:
                return self._once(name, values[0], False)
            if len(values) == 1 and isinstance(values[0], ast.For) and getattr(values[0].target, "id", None) == name:
                return self._once(name, values[0].iter, True)
            return None
        return self.globals.get(name)

    def _once(self, name, node, first):
        """What a local name is assigned once: an object, or the first of those that a loop goes through, which stands for the others. Numbers are another one each time."""
        if name in self._finding:
            return None
        self._finding.add(name)
        try:
            value = resolve(node, self)
        finally:
            self._finding.discard(name)
        if not first:
            return value
        value = value[0] if type(value) in (list, tuple) and value else None
        return None if isinstance(value, (int, float, str)) else value


def called(function, call, caller):
    """The scope of a call of a function; None where its source is not known."""
    node = definition(function)
    if node is None:
        return None
    names = [a.arg for a in list(getattr(node.args, "posonlyargs", [])) + node.args.args]
    objects, arguments = {}, {}
    owner = getattr(getattr(function, "func", function), "__self__", None)
    if owner is not None and names:
        objects[names.pop(0)] = owner
    if call is not None:
        if not any(isinstance(a, ast.Starred) for a in call.args):
            arguments.update(zip(names, call.args))
        arguments.update((k.arg, k.value) for k in call.keywords if k.arg)
    plain = unwrapped(function)
    for name, value in zip(names[::-1], (getattr(plain, "__defaults__", None) or ())[::-1]):
        if name not in arguments:
            objects[name] = value
    for name, value in (getattr(plain, "__kwdefaults__", None) or {}).items():
        if name not in arguments:
            objects[name] = value
    return Called(function, node, arguments, caller, objects)


def assignments(body):
    """path -> what is assigned to it in these statements: expressions, nodes of AugAssign and For; None for what comes out of a tuple or a block."""
    from .expressions import path_of

    found = {}

    def note(target, value):
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else [None] * len(target.elts)
            for t, v in zip(target.elts, parts):
                note(t, v)
            return
        path = path_of(getattr(target, "value", target) if isinstance(target, ast.Starred) else target)
        if path is not None:
            found.setdefault(path, []).append(value)

    for node in inside(body):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                note(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            note(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            note(node.target, node)
        elif isinstance(node, ast.NamedExpr):
            note(node.target, node.value)
        elif isinstance(node, ast.Call):
            for path, value in _assigned_by_call(node):
                found.setdefault(path, []).append(value)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    note(item.optional_vars, None)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            for target in ast.walk(node.target):
                if isinstance(target, ast.Name):
                    note(target, node)
    return found


def _assigned_by_call(call):
    """(path, value) of what `table.update(...)` and `setattr(...)` assign."""
    from .expressions import path_of

    if isinstance(call.func, ast.Attribute) and call.func.attr == "update" and path_of(call.func.value):
        pairs = [(k.arg, k.value) for k in call.keywords if k.arg]
        for table in call.args:
            if isinstance(table, ast.Dict):
                pairs += [(k.value, v) for k, v in zip(table.keys, table.values) if isinstance(k, ast.Constant)]
        for key, value in pairs:
            yield "%s[%r]" % (path_of(call.func.value), key), value
    if isinstance(call.func, ast.Name) and call.func.id == "setattr" and len(call.args) == 3:
        owner, name = path_of(call.args[0]), getattr(call.args[1], "value", None)
        if owner and isinstance(name, str):
            yield "%s.%s" % (owner, name), call.args[2]


def resolve(node, scope):
    """The object that a name or a chain of attributes and subscripts stands for, as far as no code of the program has to run for it; None if not known."""
    from .expressions import constant_key

    if isinstance(node, ast.Name):
        return scope.find(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, scope)
        return None if owner is None else attribute(owner, node.attr)
    if isinstance(node, ast.Subscript):
        owner, key = resolve(node.value, scope), constant_key(node)
        try:
            asked = getattr(node.slice, "value", node.slice) if type(node.slice).__name__ == "Index" else node.slice
            if key is None and isinstance(owner, dict) and isinstance(asked, ast.Name):  # an optimizer's table of what it keeps for each parameter
                held = scope.find(asked.id)
                return dict.get(owner, held) if type(held).__name__ == "Parameter" else None
            if isinstance(owner, dict) and key is not None:
                return dict.get(owner, key)
            if type(owner) in (list, tuple) and type(key) is int:
                return owner[key]
        except Exception:
            pass
    return None


def attribute(owner, name):
    """An attribute that an object holds, found without running what stands behind a property."""
    try:
        held = object.__getattribute__(owner, "__dict__")
    except Exception:
        held = {}
    for place in [held] + [held.get(n) or {} for n in ("_modules", "_parameters", "_buffers") if isinstance(held.get(n), dict)]:
        if name in place:
            return place[name]
    for cls in type(owner).__mro__:
        if name in cls.__dict__:
            found = cls.__dict__[name]
            if inspect.isfunction(found):
                return found.__get__(owner, type(owner))
            return getattr(found, "__func__", found)
    return None
