"""Data loaders that a program has made and has not read yet, such as those among which chance chooses."""
from __future__ import annotations

import gc
import math
import sys
import threading
import time

from ..process import guard
from . import steady_state

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterable

MOST_SECONDS = 1.0
MOST_LOADERS = 8
# Samples of a loader that are asked for.
PLACES = (0.0, 0.37, 0.999)


def begun() -> list[Any]:
    """The iterators of loaders that were begun and have given nothing yet."""
    kind = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", ())
    return [found for found in gc.get_objects() if issubclass(type(found), kind) and "_gresize_reads" in vars(found)]


def larger_samples(loaders: Iterable[Any], largest: int) -> list[str]:
    """In words, a data loader that was not read and whose batches are larger than the largest that was; in a thread, for it may take long."""
    found = []
    sizes = [(loader, getattr(loader, "batch_size", None) or steady_state.batch_size(loader) or 1) for loader in loaders if not _reads(loader)]
    waiting = [(loader, size) for loader, size in sizes if isinstance(size, int)][:MOST_LOADERS]
    if not waiting or not largest:
        return found
    asking = threading.Thread(target=_ask, args=(waiting, largest, found, time.monotonic() + MOST_SECONDS), name="gresize-unread", daemon=True)
    try:
        asking.start()
    except RuntimeError:  # the interpreter is on its way out
        return found
    asking.join(MOST_SECONDS)
    return list(found)


def _reads(loader):
    return getattr(loader, "_gresize_given", 0) > 0


def _ask(waiting, largest, found, deadline):
    for loader, rows in waiting:
        try:
            dataset, collate, collates, kind, _ = steady_state.source(loader)
            items = (dataset[int(len(dataset) * p)] for p in PLACES) if kind == 0 else [next(iter(dataset))]
            for item in items:
                shapes = steady_state.shapes(collate([item])) if collates else steady_state.shapes(item)
                rows = min(rows, len(dataset)) if kind == 0 else rows
                most = max([math.prod(s) for s in shapes] or [0]) * (rows if collates else 1)
                if most > largest * (1 + steady_state.MOST_SPREAD):
                    shape = max(shapes, key=math.prod)
                    found.append("a data loader of %s that was not read yet has samples of %s, %d in a batch" % (type(dataset).__name__, shape[1:] if collates else shape, rows if collates else 1))
                    break
                if time.monotonic() > deadline:
                    return
        except Exception:
            guard.complain()
