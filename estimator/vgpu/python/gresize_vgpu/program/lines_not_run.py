"""What of the program was not run, and whether that may take memory of the card: the one rule by which its source is read.

Which lines were run is seen. A block that was not, such as one side of a branch, or what stands behind a loop, is a doubt where it can be seen to make tensors, to use a
network, or to change a size or what has gradients, and where it may still come: by a counter that has not come as far, by chance or by the time, or because
the program was not followed to its end. All other blocks are advice.
"""
from __future__ import annotations

import ast
import builtins
import os
import re
import sys

from . import own_files, sources

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import CodeType
    from typing import Any, Collection, Iterable

    from gresize_types import Place

MOST_NAMED = 8
MOST_CALLS = 400
DEEPEST = 6
# Questions of chance and of the time, by the name of what is called.
CHANCE = re.compile(r"rand|random|rand\w+|\w*random\w*|choices?|uniform|gauss|normalvariate|bernoulli|multinomial|time|time_ns|monotonic|perf_counter|now")
# Methods of networks that compute nothing, and functions that only look at what they are given.
STILL = set(
    "eval train state_dict load_state_dict zero_grad parameters named_parameters modules named_modules children named_children buffers apply requires_grad_ no_sync extra_repr half float"
    " named_buffers get_parameter get_submodule jit devices local_devices device_count local_device_count process_index process_count device_get block_until_ready register_buffer register_forward_hook get_num_params print len isinstance issubclass type id hasattr getattr str repr save log watch".split()
)
# What makes tensors, by name alone: a device is asked for in words, or the default one counts.
FACTORIES = set("zeros ones empty full rand randn randint randperm arange linspace tensor as_tensor eye zeros_like ones_like empty_like full_like rand_like randn_like load".split())
MAKES = set("clone repeat repeat_interleave cuda new_zeros new_ones new_empty new_full new_tensor backward generate DataLoader cat stack einsum matmul".split())
GRADIENTS = set("requires_grad_ set_grad_enabled".split())
ARITHMETIC = set("int float bool abs min max round len floor ceil sqrt divmod".split())
COUNTS = set("range trange enumerate count".split())
# What is given sizes: of a tensor, or of a loop that makes some. The first number of some is all that is one.
SIZED = FACTORIES - set("tensor as_tensor eye zeros_like ones_like empty_like full_like rand_like randn_like load arange linspace".split()) | set("repeat repeat_interleave new_zeros new_ones new_empty new_full".split())
FIRST_ALONE = set("full new_full repeat_interleave".split())
# What the steps of a schedule change, and methods that make a list longer.
MOVED, GROWS = ("lr", "get_last_lr", "last_epoch"), set("append appendleft extend push put".split())
EXITS = (ast.Return, ast.Continue, ast.Break, ast.Raise)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def name_of(node: Any) -> str:
    """The last name of what is called, assigned or asked."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _root(node):
    """The first name of what is called."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return getattr(node, "id", "")


def _names(node):
    return {name_of(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _key(node):
    """The name of what moves: a local name is one of its function, and everywhere else it stands for each that is called so."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return getattr(node, "own", None) or name_of(node)


def _keys(node):
    return {_key(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}


def _words(node):
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


class Blocks:
    def __init__(self, lines: dict[str, set[int]], turns: Any, answered: Collection[Place] = (), networks: Collection[str] = (), makers: Collection[str] = (), anew: Collection[Any] = ()) -> None:
        """lines: file -> those that were run. turns: the loops around the steps. answered: (file, line) of tests that had either answer. networks: names that
        networks were seen to have; makers: those of a library's modules and functions that make arrays; anew: (code or file, name) of numbers of the steps that are given anew in each."""
        self.lines, self.turns, self.answered, self.networks = lines, turns, set(answered), set(networks)
        self.makers = set(makers)
        self.doubts, self.advice = [], []
        self.counted, self.drawn, self.sizes = set(), set(), set()  # names of counters, of what chance gave, and of what goes into what makes tensors
        self.in_sizes = set()  # questions whose answer goes into such
        self.definitions = {}  # name -> the program's functions that have it
        self._known, self._calls = {}, MOST_CALLS
        self.trees: dict[str, Any] = {filename: sources.tree(filename) for filename in list(lines) if sources.tree(filename) is not None}
        nodes = [node for tree in self.trees.values() for node in ast.walk(tree)]
        for node in nodes:
            if isinstance(node, FUNCTIONS + (ast.Module,)):
                inside: list[Any] = [n for n in sources.inside(sources.body_of(node)) if isinstance(n, ast.Name)]
                own = {n.id for n in inside if isinstance(n.ctx, ast.Store)}
                for n in inside:
                    n.own = "%s %d" % (n.id, id(node)) if n.id in own else None
        for filename, tree in self.trees.items():
            for node in ast.walk(tree):
                if not isinstance(node, ast.For) or (filename, node.lineno) in turns.around:
                    self.counted.update(name for target in _counted(node) for name in (_key(target), name_of(target)))
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.definitions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                self.definitions.setdefault(node.name, []).extend(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name in ("__init__", "__call__"))
        given = [pair for node in nodes for pair in _given(node)]
        computed = {name for names, value in given for name in names if any(isinstance(n, (ast.Call, ast.Name)) for n in ast.walk(value))}
        self.written = {name for names, _ in given for name in names} - computed  # names of what is written out
        self.anew = {"%s %d" % (name, id(self.trees.get(where) if isinstance(where, str) else sources.definition_of(where))) for where, name in anew}
        self.moved = self.anew | set(MOVED) | {name for node in nodes if not any(_counted(node)) for target in _moved(node) for name in (_key(target), name_of(target))}  # names of what each turn changes
        for _ in range(3):  # what is reckoned from those
            for names, value in given:
                reckoned = _is_reckoned(value) and _keys(value)
                for kind in (self.counted, self.moved):
                    kind.update(names if reckoned and reckoned & kind else ())
                if _draws(value) and not _is_tensor(value) or reckoned and reckoned & self.drawn:
                    self.drawn.update(names)
        for node in nodes:
            if isinstance(node, ast.Slice) or isinstance(node, ast.Call) and self._makes(node, set()):
                for inner in [node] if isinstance(node, ast.Slice) else node.args + [k.value for k in node.keywords]:
                    self.sizes.update(_names(inner))
                    self.in_sizes.update(n for n in ast.walk(inner) if isinstance(n, ast.IfExp) or isinstance(n, ast.Compare) and not isinstance(n.ops[0], (ast.In, ast.NotIn)))
        for node in nodes:
            if isinstance(node, ast.Assign) and any(name_of(t) in self.sizes or name_of(t) == "requires_grad" for t in node.targets):
                self.in_sizes.update(n for n in ast.walk(node.value) if isinstance(n, ast.IfExp) or n is node.value and isinstance(n, ast.Compare))

    def _may_come(self, test, filename):
        """Whether a question may still have another answer."""
        keys = _keys(test)
        return _draws(test) or bool(keys & self.drawn or self.left_out and (keys | _words(test)) & self.moved or keys & self.counted and not self.settled and (filename, test.lineno) not in self.answered)

    # -- what may take memory

    def takes(self, statements: Iterable[Any], seen: set[Any] | None = None) -> bool:
        """Whether some statements may take memory, or have others take more."""
        seen = set() if seen is None else seen
        stack = list(statements)
        while stack:
            node = stack.pop()
            if isinstance(node, FUNCTIONS + (ast.ClassDef, ast.Raise)):
                continue
            if isinstance(node, ast.Call) and self._makes(node, seen):
                return True
            if isinstance(node, ast.Assign) and not (isinstance(node.value, ast.Constant) and not node.value.value):
                if any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets):
                    return True
            stack.extend(ast.iter_child_nodes(node))
        return False

    def _makes(self, call, seen):
        name, around = name_of(call.func), call.func.value if isinstance(call.func, ast.Attribute) else None
        given = list(call.args) + [k.value for k in call.keywords]
        if name in GRADIENTS:
            return not (given and isinstance(given[0], ast.Constant) and not given[0].value)
        if name == "deepcopy":
            return not (given and name_of(given[0]) in self.written)
        if _root(call.func) in self.makers and name not in STILL:
            return True
        if name in MAKES or name == "to" and around is not None and given and not _is_host(given[0]) or name in self.networks:
            return True
        if name in FACTORIES and (around is None or name_of(around) == "torch"):
            return any(k.arg == "device" and not _is_host(k.value) for k in call.keywords) or name.endswith("_like") or not _default_is_host()
        if name in self.definitions:
            return any([self._function(node, seen) for node in self.definitions[name]])
        if around is not None and name_of(around) in self.networks:
            return name not in STILL
        given = [g for g in given if isinstance(g, (ast.Name, ast.Attribute))]
        if name in STILL or hasattr(builtins, name):
            return False
        return any(name_of(g) in self.networks for g in given) or any(self._function(node, seen) for g in given for node in self.definitions.get(name_of(g), ()))

    def _function(self, node, seen):
        """Whether a function of the program's may take memory."""
        if id(node) not in self._known:
            if id(node) in seen or self._calls <= 0:
                return self._calls <= 0
            self._calls -= 1
            seen.add(id(node))
            self._known[id(node)] = self.takes(node.body, seen)
        return self._known[id(node)]

    def function(self, function: Any) -> bool:
        """Whether a function of the program's may take memory, and was not run."""
        code, node = own_files.code_of(function), sources.definition(function)
        return code is not None and node is not None and not self.ran(sources.body_of(node), code.co_filename) and self.takes(sources.body_of(node))

    # -- what was not run

    def ran(self, body: list[Any], filename: str) -> bool:
        lines = self.lines.get(filename, ())
        first = next((s for s in body if not isinstance(s, (ast.Global, ast.Nonlocal)) and not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))), None)
        return first is None or any(n in lines for n in sources.span(first))

    def look(self, running: dict[str, set[int]], whole: bool, settled: bool, left_out: bool = False) -> None:
        """running: file -> lines at which its functions are. whole: the program was followed to its own end; settled: and all that its counters ask came by; left_out: not
        all of its turns and batches were run."""
        self.settled, self.left_out = whole and settled, left_out or not whole
        for filename, tree in self.trees.items():
            self.running = running.get(filename, ())
            for node in ast.walk(tree):
                if isinstance(node, FUNCTIONS + (ast.Module,)):
                    body = sources.body_of(node)
                    if isinstance(node, ast.Module) or self.ran(body, filename) and isinstance(body[0], ast.stmt):
                        self._body(body, filename)
                elif isinstance(node, ast.IfExp):
                    self._one_line(node, node.test, node in self.in_sizes or self.takes([node.body, node.orelse]), filename)
                elif isinstance(node, ast.BoolOp):
                    self._one_line(node, node.values[0], self.takes(node.values[1:]), filename)
                elif node in self.in_sizes:
                    self._one_line(node, node, True, filename)

    def _body(self, body, filename):
        """The blocks in some statements of which the first was run, and what is behind the last that was."""
        last = max((i for i, node in enumerate(body) if self.ran([node], filename)), default=-1)
        guard = None  # the test by which what follows may have been left out
        for node in body[: last + 1]:
            if not isinstance(node, FUNCTIONS + (ast.ClassDef,)) and self.ran([node], filename):
                self._inside(node, filename)
                if any(isinstance(n, EXITS) for n in sources.inside([node])):
                    guard = next((n.test for n in sources.inside([node]) if isinstance(n, (ast.If, ast.While))), guard)
        if 0 <= last < len(body) - 1:
            self._not_run(body[last + 1:], guard, self._is_in(body[last]), filename)

    def _is_in(self, node):
        """Whether a function is within a statement, and what is behind that is to come."""
        return any(n in sources.span(node) for n in self.running)

    def _inside(self, node, filename):
        test = node.test if isinstance(node, (ast.If, ast.While)) else node.subject if type(node).__name__ == "Match" else None
        blocks = [getattr(node, f, None) for f in ("body", "orelse", "finalbody")] + [h.body for h in getattr(node, "handlers", [])] + [c.body for c in getattr(node, "cases", [])]
        for block in blocks:
            if not block:
                continue
            if block[0].lineno == node.lineno and isinstance(node, (ast.If, ast.While)):
                self._one_line(node, test, self.takes(block) or self._changes_sizes(block), filename)
            elif self.ran(block, filename):
                self._body(block, filename)
            else:
                behind = block is getattr(node, "orelse", None) and isinstance(node, (ast.For, ast.While)) or block is getattr(node, "finalbody", None)
                self._not_run(block, test, behind and self._is_in(node), filename)
        if isinstance(node, ast.For) and self._is_in(node) and (filename, node.lineno) in self.turns.around - self.turns.turned and not _names(node.iter) & COUNTS:
            if _names(node.target) & self.sizes and self.takes(node.body):
                self._say(self.doubts, filename, node.lineno, "later turns of ")

    def _one_line(self, node, test, takes, filename):
        """Which side of a question was taken is not seen where both are in one line."""
        if takes and any(n in self.lines.get(filename, ()) for n in sources.span(node)) and (filename, test.lineno) not in self.answered and self._may_come(test, filename):
            self._say(self.doubts, filename, node.lineno)

    def _not_run(self, block, test, behind, filename):
        takes = self.takes(block) or self._changes_sizes(block)
        if takes:
            self._say(self.doubts if behind or test is not None and self._may_come(test, filename) else self.advice, filename, block[0].lineno)

    def _changes_sizes(self, block):
        """Whether a name is given another value that goes into what makes tensors."""
        for node in sources.inside(block):
            for names, value in _given(node):
                if names & self.sizes and not (isinstance(value, ast.Constant) and type(value.value) is not int) and not isinstance(value, (ast.Dict, ast.List)):
                    return True
        return False

    def held(self, codes: Iterable[CodeType]) -> None:
        """Functions that lay in a list or table which a running loop asks, and were not run."""
        for code in codes:
            node = sources.definition_of(code)
            if node is not None and not self.ran(sources.body_of(node), code.co_filename) and self.takes(sources.body_of(node)):
                self._say(self.doubts, code.co_filename, code.co_firstlineno)

    def larger(self, places: Iterable[Place]) -> None:
        """Numbers that later turns would make larger, where they go into what makes tensors or say how often a loop goes round."""
        for filename, tree in self.trees.items():
            for node in ast.walk(tree):
                if (filename, getattr(node, "lineno", 0)) in places and (
                    isinstance(node, ast.Call) and (name_of(node.func) == "range" or self._makes(node, set()))
                    or isinstance(node, (ast.While, ast.Slice))
                    or any(names & self.sizes for names, _ in _given(node))
                ):
                    self._say(self.doubts, filename, getattr(node, "lineno", 0), "later turns of ")

    def grown(self, loops: bool, others: bool = True) -> None:
        """Where a number that was counted up goes into sizes, in a run whose later turns were not followed; loops: those that a loop gives are some, too; others: as those
        that are not given anew in each turn."""
        nodes: list[Any] = [node for filename, tree in self.trees.items() for node in ast.walk(tree) if isinstance(node, FUNCTIONS) or hasattr(node, "lineno") and self.ran([node], filename)]
        given = [pair for node in nodes for pair in _given(node)]
        asked = {key for node in nodes if isinstance(node, ast.While) for key in _keys(node.test)}
        counted = {key for node in nodes if not isinstance(node, ast.For) for target in _counted(node) for key in (_key(target), name_of(target))}
        counted |= {_key(node.target) for node in nodes if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and _key(node.target) in asked}
        counted = self.anew | (counted if others else set())
        if loops:
            around = {line for _, line in self.turns.around}
            turns = [node for node in nodes if isinstance(node, ast.For) and (node.lineno in around or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in sources.inside(node.body)))]
            counted |= {name for node in turns for target in _counted(node) for name in (_key(target), name_of(target))}
            counted |= {_key(n.func.value) for node in turns for n in sources.inside(node.body) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "append"}
        for _ in range(3):
            for names, value in given:
                if _is_reckoned(value) and _keys(value) & counted:
                    counted.update(names)
            for node in nodes:
                if isinstance(node, ast.Call):
                    for function in self.definitions.get(name_of(node.func), ()):
                        counted.update(name for name, value in _arguments(node, function) if _is_reckoned(value) and _keys(value) & counted)
        for filename, tree in self.trees.items():
            for node in ast.walk(tree):
                line = getattr(node, "lineno", 0)
                if line in self.lines[filename] and any(_keys(size) & counted for size in _sizes(node, given)):
                    self._say(self.doubts, filename, line, "later turns of ")

    def again(self, calls: Collection[tuple[str, int, str]]) -> None:
        """What trains and may be called once more."""
        for filename, line, before in calls:
            self._say(self.doubts, filename, line, before)

    def _say(self, what, filename, line, before=""):
        text = "%s%s line %d" % (before, os.path.basename(filename), line)
        if len(what) < MOST_NAMED and text not in what:
            what.append(text)


def _counted(node):
    """What a statement counts up."""
    if isinstance(node, ast.AugAssign) and _is_number(node.value):
        yield node.target
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and _is_number(node.value.right) and name_of(node.value.left) == name_of(node.targets[0]) != "":
        yield node.targets[0]
    elif isinstance(node, ast.For) and _names(node.iter) & COUNTS:
        for target in ast.walk(node.target):
            if isinstance(target, ast.Name):
                yield target
                break


def _moved(node):
    """What a statement changes by what it was, otherwise than by counting."""
    if isinstance(node, ast.AugAssign) and (isinstance(node.op, (ast.Mult, ast.Div, ast.Pow)) or isinstance(node.value, ast.Constant)):
        yield node.target
    elif isinstance(node, ast.Assign) and _is_reckoned(node.value) and _key(node.targets[0]) in _keys(node.value):
        yield node.targets[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWS:
        yield node.func.value


def _arguments(call, function):
    """(name in the function, what is given for it) of a call."""
    names = [a.arg for a in function.args.args]
    if names[:1] == ["self"]:
        names = names[1:]
    return list(zip(names, call.args)) + [(k.arg, k.value) for k in call.keywords]


def _sizes(node, given):
    """What is a size in a call, or the end of a slice that does not begin where a turn begins."""
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        if name == "DataLoader":
            return node.args[1:2] + [k.value for k in node.keywords if k.arg == "batch_size"]
        if name == "range":
            return _length(node.args[0], node.args[1], given) if len(node.args) > 1 else node.args
        if name[:1].isupper():  # a network of the parts in a list
            return [a for a in node.args if isinstance(a, ast.Starred)]
        return node.args[: 1 if name in FIRST_ALONE else None] if name in SIZED else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [other for one, other in ((node.left, node.right), (node.right, node.left)) if isinstance(one, ast.List)]
    if not isinstance(node, ast.Subscript):
        return []
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    ends = [part for part in parts if isinstance(part, ast.Slice) and part.upper is not None]
    return [size for part in ends for size in ([part.upper] if part.lower is None else _length(part.lower, part.upper, given))]


def _length(lower, upper, given):
    """What says how far it is from one end to the other; where both go on with a turn, the turn does not."""
    whence = _whence(lower, given)
    return [n for n in ast.walk(upper) if isinstance(n, (ast.Name, ast.Attribute)) and not _whence(n, given) & whence]


def _whence(node, given):
    """The names in something, and in what those were given."""
    keys = _keys(node)
    return keys | {key for names, value in given if names & keys for key in _keys(value)}


def _is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) is int or isinstance(node, ast.Call) and name_of(node.func) in ("len", "size", "numel") or isinstance(node, ast.Subscript) and name_of(node) == "shape"


def _given(node):
    """(names, value) of what a statement gives a value; a function has what it returns."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            pairs = zip(target.elts, node.value.elts) if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) else [(target, node.value)]
            for one, value in pairs:
                yield {_key(one), name_of(one)} | (_words(one.slice) if isinstance(one, ast.Subscript) else set()), value
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield {_key(node.target), name_of(node.target)}, node.value
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for inner in sources.inside(node.body):
            if isinstance(inner, ast.Return) and inner.value is not None:
                yield {node.name}, inner.value


def _is_reckoned(node):
    """Whether something is a number or an answer that is reckoned, and nothing that is computed otherwise."""
    return all(
        not isinstance(n, (ast.Call, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.Dict, ast.List)) or isinstance(n, ast.Call) and name_of(n.func) in ARITHMETIC
        for n in ast.walk(node)
    )


def _draws(node):
    return any(isinstance(n, ast.Call) and CHANCE.fullmatch(name_of(n.func)) for n in ast.walk(node))


def _is_tensor(node):
    """Whether something is what a function of PyTorch gives, and no number of it."""
    return isinstance(node, ast.Call) and name_of(node.func) in FACTORIES and isinstance(node.func, ast.Attribute) and name_of(node.func.value) != "random"


def _is_host(node):
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and value.startswith("cpu") or isinstance(node, ast.Attribute) and name_of(node.value) == "torch" or isinstance(node, ast.Attribute) and node.attr == "dtype"


def _default_is_host():
    default: Any = getattr(sys.modules.get("torch"), "get_default_device", None)  # from 2.3 on
    return default is None or default().type == "cpu"
