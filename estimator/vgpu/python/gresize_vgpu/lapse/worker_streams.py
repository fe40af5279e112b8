"""Streams that processes of workers read, in time-lapse: they are read on in this process, the share of one worker after that of another, so that their own loops and
counters can be seen."""
from __future__ import annotations

import copy
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

STREAM = 1  # the kind of a data set that is a loop itself


def is_read_here(iterator: Any) -> bool:
    """Whether what a loader goes through is such a data set, and is read in this process."""
    held = getattr(iterator, "__dict__", {})
    return held.get("_dataset_kind", 0) == STREAM and "_dataset_fetcher" in held


def read_here(iterator: Any) -> None:
    """Has the batches of a loader whose workers read a stream made in this process from here on, from the stream's beginning."""
    held = vars(iterator)
    if held.get("_dataset_kind", 0) != STREAM or is_read_here(iterator) and "_gresize_worker" not in held:
        return
    _read_as(iterator, 0)


def _read_as(iterator, number):
    held = vars(iterator)
    info = _Worker(number, held["_num_workers"], copy.copy(held["_dataset"]))
    with info:
        if held.get("_worker_init_fn") is not None:
            held["_worker_init_fn"](number)
        fetch = sys.modules["torch.utils.data._utils.fetch"]
        fetcher = fetch._IterableDatasetFetcher(info.worker.dataset, held["_auto_collation"], held["_collate_fn"], held["_drop_last"])
    iterator._dataset_fetcher, iterator._gresize_worker, iterator._gresize_indices = fetcher, info, iter(iterator._index_sampler)


def share(iterator: Any) -> int:
    """The worker whose share is read; 0 without workers."""
    info = vars(iterator).get("_gresize_worker")
    return info.worker.id if info is not None else 0


def next_worker(iterator: Any) -> bool:
    """Whether there is a share that was not read, which is read from here on."""
    info = vars(iterator).get("_gresize_worker")
    if info is None or info.worker.id + 1 >= info.worker.num_workers:
        return False
    _read_as(iterator, info.worker.id + 1)
    return True


def next_batch(iterator: Any) -> Any:
    while True:
        try:
            with iterator._gresize_worker:
                return iterator._dataset_fetcher.fetch(next(iterator._gresize_indices))
        except StopIteration:
            if not next_worker(iterator):
                iterator.__dict__.pop("_gresize_until", None)  # a loader that keeps its workers begins anew with this iterator
                raise


class _Worker:
    """What torch.utils.data.get_worker_info says while the stream is read: that of one of several workers, with a data set of its own."""

    def __init__(self, number, count, dataset):
        self.module: Any = sys.modules["torch.utils.data._utils.worker"]
        self.worker = self.module.WorkerInfo(id=number, num_workers=count, seed=number, dataset=dataset)

    def __enter__(self):
        self.before, self.module._worker_info = self.module._worker_info, self.worker

    def __exit__(self, *raised):
        self.module._worker_info = self.before
