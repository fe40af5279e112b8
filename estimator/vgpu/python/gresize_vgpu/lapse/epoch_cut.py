"""Lets a program go on from its training to what follows an epoch, such as a validation, without reading the whole epoch.

Once enough steps were seen, the data loader in use says that it is at its end. The program then does what it does after an epoch, and its next loaders
give some batches each, until the next epoch has begun: what a validation takes is thus in the figure. In time-lapse (time_lapse.py) a loader gives a few
batches and then the last of them again, as many as it has in all where there is time for that, so that the program counts as it would.
"""
from __future__ import annotations

import copy
import functools
import os
import sys
import time
import weakref

from ..steady import largest_batch, steady_state
from . import gathered, worker_streams

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

    from gresize_types import Torch

    from ..steady.steady_state import Steadiness
    from .counting_loops import Loops
    from .time_lapse import TimeLapse

# Batches of a loader that is first read after the training was cut short. The first are full ones.
BATCHES_AFTER = 3
# Optimizer steps of the next epoch before the run is stopped: the memory of both phases together has been seen then.
STEPS_AFTER = 2
# In time-lapse, what a loader may take of the time that is left, and at most: the first that is read of a data set. The n-th takes an n-th of the second share, since
# it has mostly nothing new.
FIRST_SHARE, NEXT_SHARE = 0.1, 0.06
OWN_SHARE = 0.1  # of the time that is left, for a batch of its own at each later time: what makes them may go by the epoch
MOST_PASS_SECONDS = 0.6  # and of a later one that part by its number: thirty passes take less than what counts as nothing new
# And once more, where the training that it feeds counts its steps and has not come to all that its counters ask.
COUNTERS_SHARE = 0.2
# And to its end, where it feeds none and something is gathered of its batches.
GATHERED_SHARE = 0.5
# Of the time that is left, for asking a data set of samples of several sizes for the largest, and at most.
ASKED_SHARE, MOST_ASKED_SECONDS = 0.05, 2.0
# By the clock it may be so many times the processor's time: a busy machine, or workers that are waited for.
WAITED_FACTOR = 5
# Of checkpoints, in time-lapse.
MOST_SAVED_BYTES = 512 << 20
# What follows an epoch may take as long as all before it, and at least this; so may the steps of the next epoch, which on a busy machine show late that the peak rests.
LEAST_SECONDS = 10.0


class Passed:
    """A data set that loaders with batches of one size read in time-lapse."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.reads = 0
        self.batch, self.elements = None, 0  # the one that is given again
        self.own_seconds = 0.0  # what its own batches took, but those of its first time
        self.on_card = False  # batches lie there, where one that is kept would take room
        self.asked, self.largest = False, None
        self.read_on = {}  # worker -> whether its share of a stream was read to its end
        self.ended = (-1, 0)  # how many steps there were when a pass ended last, and the batches that it gave


class Phases:
    """Whether epochs are being cut short, and what was seen since."""

    def __init__(self, steadiness: Steadiness, look: Callable[[], gathered.Look], fault: Callable[[Exception], None]) -> None:
        self.steadiness, self.fault = steadiness, fault
        self.gathered = gathered.Gathered(look)
        self.workers = set()  # processes of loaders
        self.active = self.together = False
        self.turned = False  # a loader was ended
        self.resumed = False  # the training goes on after that
        self.steps_after = 0
        self.deadline: float | None = None
        self.allowed = LEAST_SECONDS
        self.given = self.given_before = 0
        self.length = None  # of the loader that was begun last, in batches
        self.fed = False  # the last step took a batch from a loader
        self.reader: Any = None  # a weak reference to the iterator that gave the last batch
        self.per_batch = 1.0  # steps that a batch makes
        self.lapse: Any = None  # from go_on on
        self.next_of_loader: Any = None  # PyTorch's own function
        self.loops: Any = None  # counting_loops.Loops
        self.passed = {}  # (id of a data set, samples in a batch) -> Passed
        self.loaders = 0  # data sets that were read in time-lapse
        self.saved = 0  # bytes of checkpoints, in time-lapse
        self.left_out = False  # a loader was ended before its time
        self.streams: dict[int, str] = {}  # data set -> in words, that it was ended so

    def hook(self, torch: Torch) -> None:
        self._hook_save(torch)
        module = sys.modules.get("torch.utils.data.dataloader")
        iterator = getattr(module, "_BaseDataLoaderIter", None)
        if iterator is None:
            return
        original = self.next_of_loader = iterator.__next__
        phases = self

        @functools.wraps(original)
        def next_batch(self):
            if phases.looking(phases.at_end, self):
                raise StopIteration
            reads = self.__dict__.pop("_gresize_reads", None)
            if reads is not None:
                reads()
            if phases.lapse is not None:
                batch = phases.looking(phases.again, self)
                if batch is not None:
                    phases.looking(phases.gave, self)
                    phases.looking(phases.gathered.batch, self)
                    return batch
            batch = phases.own(self, original) if phases.lapse is not None else original(self)
            phases.looking(phases.gave, self)
            phases.look_at(self, batch)
            if phases.active:
                self._gresize_batches = getattr(self, "_gresize_batches", 0) + 1
                phases.looking(phases.gathered.batch, self)
                if "_gresize_known" in self.__dict__:
                    phases.keep(self, batch)
            return batch

        iterator.__next__ = next_batch
        iterator.next = next_batch

    def _hook_save(self, torch):
        original = torch.save
        phases = self

        @functools.wraps(original)
        def save(*args, **kwargs):
            # A checkpoint of a run like this is of use to nobody but the program itself, which may read it again, and takes room and time.
            if phases.turned and (phases.lapse is None or phases.saved > MOST_SAVED_BYTES):
                return None
            try:
                return original(*args, **kwargs)
            finally:
                if phases.lapse is not None:
                    phases.saved += _size_of(args[1] if len(args) > 1 else kwargs.get("f"))

        torch.save = save

    def own(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """A batch of the loader's own, in time-lapse."""
        held = iterator.__dict__
        known, worker, begin = held.get("_gresize_known"), held.get("_gresize_worker"), time.monotonic()
        self.loops.stream(iterator, held.get("_gresize_until"), True)
        try:
            batch = worker_streams.next_batch(iterator) if worker is not None else original(iterator)
            if held.get("_gresize_worker") is not worker:
                held["_gresize_until"] = _from_now(self._seconds(known))
            return batch
        except StopIteration:
            if not held.pop("_gresize_cut", False):  # of no worker's share
                self.streams.pop(id(iterator._dataset), None)
            raise
        finally:
            self.loops.stream(iterator, None, False)
            if known is not None and known.reads > 1:
                known.own_seconds += time.monotonic() - begin

    def gave(self, iterator: Any) -> None:
        self.given += 1
        self.reader = weakref.ref(iterator)
        iterator._gresize_given = getattr(iterator, "_gresize_given", 0) + 1
        if "_gresize_fed" in iterator.__dict__:
            iterator._gresize_fed[0] += 1
            self.loops.counters.room = self.steps_left(iterator)

    def stepped(self, optimizer: Any) -> None:
        """A training step has ended, in time-lapse."""
        self.gathered.step()
        iterator = self.reader and self.reader()
        if iterator is not None and "_gresize_fed" in iterator.__dict__ and id(optimizer) == self.loops.counters.optimizer:
            fed = iterator._gresize_fed
            fed[1] += 1
            self.per_batch = fed[1] / fed[0]

    def steps_left(self, iterator: Any) -> int | None:
        """How many steps a training has before it when it reads a loader; None where that is not known."""
        length = gathered.length_of(iterator)
        left_out = self.loops.counters.left_out_steps - iterator._gresize_fed[2]
        return max(int((length - iterator._gresize_given) * self.per_batch) - left_out, 0) if length is not None else None

    def batches(self) -> int:
        """How many batches the loader has that was read last."""
        return self.length or 0

    def look_at(self, iterator: Any, batch: Any) -> None:
        try:
            if not hasattr(iterator, "_gresize_seen"):
                iterator._gresize_seen = True
                self.length = gathered.length_of(iterator)
                self.workers.update(w.pid for w in getattr(iterator, "_workers", ()))
            self.steadiness.batch(iterator, batch)
        except Exception as e:
            self.fault(e)

    def looking(self, function: Callable[..., Any], iterator: Any) -> Any:
        try:
            return function(iterator)
        except Exception as e:
            self.fault(e)
            return None

    def at_end(self, iterator: Any) -> bool:
        if not self.active:
            return False
        if not self.turned and self.lapse is None:  # the one that training reads from
            self.turned = self.left_out = True
            self.steadiness.keep(iterator)
            return True
        given, held = getattr(iterator, "_gresize_given", 0), iterator.__dict__
        if self.lapse is None:
            if held.get("_gresize_batches", 0) < BATCHES_AFTER:
                return False
        else:
            length = gathered.length_of(iterator)
            if "_gresize_until" not in held:
                self.begin(iterator)
            known = held["_gresize_known"]
            if given != length and self.gives_more(iterator, given, length):
                return False
            self.left_out = self.left_out or given != length
            if worker_streams.is_read_here(iterator):
                if self.loops.stream_goes_on():
                    self.streams[id(iterator._dataset)] = "a stream of %s was not read on to where its items may differ" % type(iterator._dataset).__name__
                    held["_gresize_cut"] = True
                if given != length and self.reads_on(iterator):
                    return False
                if given != length and worker_streams.next_worker(iterator):
                    held["_gresize_until"] = _from_now(self._seconds(known))
                    return False
            if given != length and held["_gresize_fed"][1]:
                self.loops.pass_over(sys._getframe(2), self.steps_left(iterator))
            if known.read_on and all(known.read_on.values()):
                self.streams.pop(id(known.dataset), None)
                if self.steadiness.is_largest(known.dataset, known.batch):
                    self.steadiness.settle(known.dataset)
            self.settle(known, 1)
            known.ended = self.loops.steps, given
        self.turned = True
        self.gathered.ended(iterator, given, bool(held.get("_gresize_fed", (0, 0))[1]))
        for name in ("_gresize_batches", "_gresize_given", "_gresize_until", "_gresize_cut", "_gresize_longer", "_gresize_fed"):
            held.pop(name, None)  # a loader with persistent workers uses it again
        return True

    def gives_more(self, iterator: Any, given: int, length: int | None) -> bool:
        """Whether a loader in time-lapse gives more batches than it has given."""
        held = iterator.__dict__
        known = held["_gresize_known"]
        if known.ended[0] == self.loops.steps and known.ended[1]:
            return given < known.ended[1]  # as many as just now: a program may put side by side what came of both
        if given < max(held["_gresize_own"], 1) or not _past(held["_gresize_until"]):
            return True
        if held["_gresize_fed"][1]:  # for as long as the program's counters have not come to all that is asked of them
            return self.loops.counters_come() and self._longer(held, COUNTERS_SHARE)
        if length is None or not self.gathered.wants_all(iterator):
            return False
        if "_gresize_longer" not in held and (time.monotonic() - held["_gresize_begun"]) / max(held["_gresize_fed"][0], 1) * (length - given) > GATHERED_SHARE * self.lapse.left_seconds():
            return False
        self.lapse.news()  # what is made of all of it
        return self._longer(held, GATHERED_SHARE)

    def _longer(self, held, share):
        if "_gresize_longer" not in held:
            held["_gresize_longer"] = _from_now(share * self.lapse.left_seconds() / held["_gresize_known"].reads)
        return not _past(held["_gresize_longer"])

    # -- in time-lapse

    def go_on(self, lapse: TimeLapse, loops: Loops) -> None:
        """The first answer is known."""
        self.active, self.lapse, self.loops = True, lapse, loops

    def begin(self, iterator: Any) -> None:
        """A loader is asked for the first time in time-lapse, perhaps on its way. What a data set gives in another epoch is mostly what it gave before."""
        if not self.steadiness.sources:  # the one that training reads from
            self.steadiness.keep(iterator)
        worker_streams.read_here(iterator)
        held = iterator.__dict__
        known = self.passed.setdefault(gathered.key_of(iterator), Passed(iterator._dataset))
        self.loaders += not known.reads
        self.loops.begun += 1
        held["_gresize_known"], held["_gresize_own"] = known, BATCHES_AFTER
        if known.reads:
            cheap = known.own_seconds <= OWN_SHARE * self.lapse.left_seconds()
            held["_gresize_own"] = 1 if known.batch is None or cheap or known.reads & (known.reads - 1) == 0 else 0
        held["_gresize_until"], held["_gresize_begun"] = _from_now(self._seconds(known)), time.monotonic()
        known.reads += 1
        held["_gresize_fed"] = [0, 0, self.loops.counters.left_out_steps]  # batches, the steps that they made, and what was left out before

    def _seconds(self, known):
        """For how long a data set is read once more."""
        share = NEXT_SHARE / known.reads if known.reads else FIRST_SHARE
        return min(share * self.lapse.left_seconds(), MOST_PASS_SECONDS / max(known.reads, 1))

    @staticmethod
    def keep(iterator: Any, batch: Any) -> None:
        """The batch that is given again from here on: the largest so far."""
        known, given = iterator._gresize_known, iterator._gresize_given
        try:
            known.on_card = known.on_card or _on_card(batch)
            if known.on_card:
                known.batch = None
            elif known.largest is None and given >= iterator._gresize_own and (known.batch is None or _elements(batch) >= known.elements):
                known.batch, known.elements = _copy(batch), _elements(batch)
        except Exception:
            known.batch = None

    def again(self, iterator: Any) -> Any:
        """The batch that a loader gives once more; None where it gives its next one."""
        known = iterator._gresize_known
        if worker_streams.is_read_here(iterator):
            # What it gives may go by how far it has come, which its own loop is asked for.
            return known.batch if iterator.__dict__.pop("_gresize_further_on", False) else None
        if not known.asked and getattr(iterator, "_gresize_batches", False) and not known.on_card:
            known.asked = True
            known.largest = largest_batch.find(iterator, steady_state.batch_size(iterator), min(ASKED_SHARE * self.lapse.left_seconds(), MOST_ASKED_SECONDS))
            if known.largest is not None:
                known.batch, iterator._gresize_own, iterator._gresize_until = known.largest.batch, 0, _from_now(MOST_PASS_SECONDS)
        if known.batch is None or getattr(iterator, "_gresize_given", 0) < iterator._gresize_own:
            return None
        if known.largest is not None:
            known.largest.given += 1
            self.settle(known, 3)  # the program asks for more, and is done with the last, or with the one before it, where it takes one ahead
        return _copy(known.batch)

    def reads_on(self, iterator: Any) -> bool:
        """Whether a stream that is left has more to give: it is read on for a while, and no step is made of what it has there but of the largest."""
        known, share = iterator._gresize_known, worker_streams.share(iterator)
        if share in known.read_on or known.on_card or known.batch is None:
            return False
        until, elements, kept = _from_now(min(ASKED_SHARE * self.lapse.left_seconds(), MOST_ASKED_SECONDS)), known.elements, largest_batch.states()
        known.read_on[share] = False
        try:
            while not _past(until) and not known.read_on[share]:
                batch = self.own(iterator, self.next_of_loader)
                known.read_on[share] = worker_streams.share(iterator) != share
                if _on_card(batch):
                    return False  # what makes it takes memory
                self.steadiness.batch(iterator, batch)
                if _elements(batch) > known.elements:
                    known.batch, known.elements = batch, _elements(batch)
        except StopIteration:
            known.read_on[share] = True
        finally:
            largest_batch.restore(kept)
        iterator._gresize_further_on = known.elements > elements
        return iterator._gresize_further_on or worker_streams.share(iterator) != share

    def settle(self, known: Any, times: int) -> None:
        """The largest batch that the data set can give was run, where it was given so many times."""
        if known.largest is not None and known.largest.bounds and known.largest.given >= times:
            self.steadiness.settle(known.dataset)

    def step(self) -> None:
        """A training step has ended."""
        self.gathered.step()
        if self.turned and not self.resumed:
            self.resumed, self.deadline = True, time.monotonic() + self.allowed
        self.fed, self.given_before = self.given > self.given_before, self.given

    def wants_more(self, elapsed_seconds: float) -> bool:
        """Whether to go on, asked after each step once enough steps were seen."""
        if self.turned:
            self.steps_after += 1
            return self.steps_after < STEPS_AFTER and not self.late()
        if self.active or not self.fed or os.environ.get("WORLD_SIZE", "1") != "1":
            return self.active and self.together and not self.late()
        self.cut(elapsed_seconds)
        return True

    def cut(self, elapsed_seconds: float, together: bool = False) -> None:
        """The loader that feeds the training ends with its next batch; together: that of each rank, at the same step: they would wait for each other."""
        self.active, self.together = True, together
        self.allowed = max(LEAST_SECONDS, elapsed_seconds)
        self.deadline = time.monotonic() + self.allowed

    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline


def _from_now(seconds):
    return time.process_time() + seconds, time.monotonic() + WAITED_FACTOR * seconds


def _past(until):
    processor, clock = until
    return time.process_time() > processor or time.monotonic() > clock


def _size_of(path):
    try:
        return os.path.getsize(path)
    except (TypeError, OSError):
        return MOST_SAVED_BYTES // 8  # a stream, which says nothing of its size


def _parts(batch):
    if isinstance(batch, dict):
        return list(batch.values())
    return list(batch) if isinstance(batch, (list, tuple)) else []


def _on_card(batch):
    """Whether some part of a batch lies on the card, where one that is kept would take room."""
    return getattr(batch, "is_cuda", False) is True or any(_on_card(part) for part in _parts(batch))


def _elements(batch):
    return batch.numel() if hasattr(batch, "numel") else sum(_elements(part) for part in _parts(batch))


def _copy(batch):
    """A batch of the same tensors: what a program puts into it, or takes out, is its own."""
    if type(batch) in (list, tuple):
        return type(batch)(_copy(part) for part in batch)
    if type(batch) is dict:
        return {key: _copy(part) for key, part in batch.items()}
    return copy.copy(batch) if not isinstance(batch, (int, float, str, bytes)) and not hasattr(batch, "storage") else batch
