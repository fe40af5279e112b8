"""What a program has at hand and has not used yet, such as the tasks and data loaders among which chance chooses."""
import math
import threading
import time

from . import lists, report, sources, steadiness
from .growth import Reach

MOST_SECONDS = 1.0
MOST_LOADERS = 8
MOST_CHOSEN = 64
# Samples of an unread loader that are asked for.
PLACES = (0.0, 0.37, 0.999)


def functions(frames, scopes, lines):
    """(filename, line) of the functions of the program's that a step may take from a list or table, that train, and of which none of the lines was run."""
    found = []
    for statements, scope, own in lists.read(frames, scopes):
        for _, value in lists.taken_from(statements, scope, own):
            if len(value) > MOST_CHOSEN:
                continue
            for item in value.values() if isinstance(value, dict) else value:
                for part in item if type(item) in (tuple, list) else [item]:
                    code = sources.code_of(part) if sources.is_users_function(part) else None
                    if code is not None and (code.co_filename, code.co_firstlineno) not in found and _trains(part, lines) is False:
                        found.append((code.co_filename, code.co_firstlineno))
    return found


def _trains(function, lines):
    """Whether a function that trains was run; None of one that does not train."""
    code, node, reach = sources.code_of(function), sources.definition(function), Reach()
    if node is None:
        return None
    reach.function(function, None, None, 0)
    if not any("backward" in sources.code_of(s.function).co_names for s in reach.scopes):
        return None
    return any(node.lineno <= n <= (getattr(node, "end_lineno", None) or node.lineno) for n in lines.get(code.co_filename, ()))


def larger_samples(loaders, largest):
    """In words, a data loader that was not read and whose batches are larger than the largest that was; in a thread, for it may take long."""
    found = []
    waiting = [(loader, loader.batch_size or 1) for loader in loaders if isinstance(getattr(loader, "batch_size", 0) or 0, int)][:MOST_LOADERS]
    if not waiting or not largest:
        return found
    asking = threading.Thread(target=_ask, args=(waiting, largest, found, time.monotonic() + MOST_SECONDS), name="gresize-unread", daemon=True)
    try:
        asking.start()
    except RuntimeError:  # the interpreter is on its way out
        return found
    asking.join(MOST_SECONDS)
    return list(found)


def _ask(waiting, largest, found, deadline):
    for loader, rows in waiting:
        try:
            dataset, collate, collates, kind = steadiness.source(loader)
            items = (dataset[int(len(dataset) * p)] for p in PLACES) if kind == 0 else [next(iter(dataset))]
            for item in items:
                shapes = steadiness.shapes(collate([item])) if collates else steadiness.shapes(item)
                rows = min(rows, len(dataset)) if kind == 0 else rows
                most = max([math.prod(s) for s in shapes] or [0]) * (rows if collates else 1)
                if most > largest * (1 + steadiness.MOST_SPREAD):
                    shape = max(shapes, key=math.prod)
                    found.append("a data loader of %s that was not read yet has samples of %s, %d in a batch" % (type(dataset).__name__, shape[1:] if collates else shape, rows if collates else 1))
                    break
                if time.monotonic() > deadline:
                    return
        except Exception:
            report.complain()
