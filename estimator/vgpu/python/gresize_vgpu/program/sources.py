"""The program's own source, and where its functions are in it."""
from __future__ import annotations

import ast
import inspect
import linecache
import os

from . import own_files

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import CodeType
    from typing import Any, Iterator

MOST_SOURCE_BYTES = 1 << 20
MOST_FILES = 200
_trees, _definitions = {}, {}


def tree(filename: str) -> ast.Module | None:
    """The syntax of a file of the program's; None where there is none to be read."""
    if filename not in _trees:
        found = None
        if own_files.is_users(filename) and len(_trees) < MOST_FILES and not own_files.came_and_went(filename) and os.path.getsize(filename) <= MOST_SOURCE_BYTES:
            try:
                found = ast.parse("".join(linecache.getlines(filename)))
            except (SyntaxError, ValueError, RecursionError):
                pass
        _trees[filename] = found
    return _trees[filename]


def definition(function: Any) -> Any:
    """The syntax of a function of the program's; None for others."""
    code = own_files.code_of(function)
    return definition_of(code) if inspect.iscode(code) else None


def definition_of(code: CodeType) -> Any:
    if code not in _definitions:
        _definitions[code] = None
        for node in ast.walk(tree(code.co_filename) or ast.Module([], [])):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name or isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
                first = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])])
                if code.co_firstlineno in (first, node.lineno):
                    _definitions[code] = node
                    break
    return _definitions[code]


def span(node: Any) -> range:
    return range(min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])]), (getattr(node, "end_lineno", None) or node.lineno) + 1)


def body_of(node: Any) -> list[Any]:
    return node.body if isinstance(node.body, list) else [node.body]


def inside(body: Any) -> Iterator[ast.AST]:
    """The nodes of some statements, without those of functions that are defined in them."""
    stack = list(body)[::-1]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        yield node
        stack.extend(list(ast.iter_child_nodes(node))[::-1])


def asks_for_locals(code: CodeType) -> bool:
    """Whether a function asks for the dictionary of its names: by locals(), or by vars() of nothing; what vars() says of something is another dictionary."""
    if "locals" not in code.co_names and "vars" not in code.co_names:
        return False
    node = definition_of(code)
    if node is None:
        return True
    nodes = list(inside(body_of(node)))
    of_something = {id(n.func) for n in nodes if isinstance(n, ast.Call) and len(n.args) == 1 and not isinstance(n.args[0], ast.Starred)}
    return any(isinstance(n, ast.Name) and (n.id == "locals" or n.id == "vars" and id(n) not in of_something) for n in nodes)
