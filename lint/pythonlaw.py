"""Reads the Python layers for pythonlaw_test.go, without running them: pythonlaw.py FOLDER… prints {"imports": […], "faults": […]}.

A fault of a layer is silent, since it must never reach the program: a name that a module does not have any more is found here.
"""
import ast
import builtins
import dis
import json
import pathlib
import sys
import types

MODULE_NAMES = {"__annotations__", "__name__", "__file__", "__doc__", "__package__", "__path__", "__spec__", "__loader__", "__builtins__"}


def modules_of(folders):
    """Name of a module -> its file."""
    found = {}
    for folder in folders:
        root = pathlib.Path(folder)
        for path in sorted(root.rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def bound_at_top(tree):
    """The names that a module has once it has been imported."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            names.update(node.names)
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        else:
            names.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            waiting += [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)]
    return names


def target_of(node, name, is_package):
    """The module that `from … import` names."""
    if not node.level:
        return node.module
    parts = name.split(".")
    parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join(parts + ([node.module] if node.module else []))


def unknown_globals(code, known):
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval not in known:
            if instruction.opname == "LOAD_GLOBAL" or code.co_name == "<module>":
                yield code.co_firstlineno, instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from unknown_globals(constant, known)


def public_functions(tree, place=""):
    """The functions of a module, and of its public classes, that others may call."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node, place + node.name + ".")
        elif isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
            yield place + node.name, node


def read(name, path, modules, top):
    tree = ast.parse(path.read_text(), str(path))
    imports, faults, bound = [], [], {}

    def fault(line, text):
        faults.append("%s:%d: %s" % (path, line, text))

    if path.name == "__init__.py" and not ast.get_docstring(tree):
        fault(1, "a package says in one sentence what it owns")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [(alias.name, alias.asname or alias.name) for alias in node.names if alias.name in modules]
        elif isinstance(node, ast.ImportFrom):
            base, targets = target_of(node, name, path.name == "__init__.py"), []
            for alias in node.names:
                whole = "%s.%s" % (base, alias.name)
                if whole in modules:
                    targets.append((whole, alias.asname or alias.name))
                elif base in modules:
                    targets.append((base, None))
                    if alias.name not in top[base]:
                        fault(node.lineno, "%s has no %s" % (base, alias.name))
                elif node.level or base.split(".")[0] in modules:
                    fault(node.lineno, "there is no module %s" % whole)
        else:
            continue
        for target, here in targets:
            imports.append({"from": name, "to": target, "at": "%s:%d" % (path, node.lineno)})
            if here:
                bound[here] = target
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            if node.attr not in top[bound[node.value.id]]:
                fault(node.lineno, "%s has no %s" % (bound[node.value.id], node.attr))
        hides = [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else [node.arg] if isinstance(node, ast.arg) else []
        if isinstance(node, ast.FunctionDef):  # methods are found by way of their class
            hides = [n.name for n in node.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        for name_taken in hides:
            if name_taken in bound:
                fault(node.lineno, "%s hides the module of that name" % name_taken)
    for where, node in public_functions(tree):
        arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs + [a for a in (node.args.vararg, node.args.kwarg) if a]
        bare = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
        if bare or node.returns is None:
            fault(node.lineno, "%s has no types for %s" % (where, ", ".join(bare + ["its result"] * (node.returns is None))))
    known = top[name] | set(dir(builtins)) | MODULE_NAMES
    for line, unknown in unknown_globals(compile(tree, str(path), "exec"), known):
        fault(line, "nothing is called %s" % unknown)
    return imports, faults


def main():
    modules = modules_of(sys.argv[1:])
    top = {name: bound_at_top(ast.parse(path.read_text(), str(path))) for name, path in modules.items()}
    imports, faults = [], []
    for name, path in modules.items():
        more, wrong = read(name, path, modules, top)
        imports += more
        faults += wrong
    json.dump({"modules": sorted(modules), "imports": imports, "faults": faults}, sys.stdout)


main()
