"""Lets a program go on from its training to what follows an epoch, such as a validation, without running the whole epoch.

Once enough steps were seen, the data loaders in use say that they are at their end. The program then does what it does after an epoch, its next loaders
give some batches each, and the run is stopped in the next epoch. What a validation takes is thus in the figure.
"""
import functools
import os
import sys
import time

# Batches of a loader that is first read after the training was cut short. The first are full ones.
BATCHES_AFTER = 3
# Optimizer steps of the next epoch before the run is stopped: the memory of both phases together has been seen then.
STEPS_AFTER = 2
# What follows an epoch may take as long as all before it, and at least this; so may the steps of the next epoch, which on a busy machine show late that the peak rests.
LEAST_SECONDS = 10.0
# What all batches to come of such a loader may leave behind without being worth a word.
MOST_LEFT_BYTES = 16 << 20


class Phases:
    """Whether epochs are being cut short, and what was seen since."""

    def __init__(self, steadiness):
        self.steadiness = steadiness
        self.keeping = []  # in words: loaders of which each batch leaves something on the card, as where outputs are gathered
        self.workers = set()  # processes of loaders
        self.active = False
        self.turned = False  # a loader was ended
        self.resumed = False  # the training goes on after that
        self.steps_after = 0
        self.deadline, self.allowed = None, LEAST_SECONDS
        self.given = self.given_before = 0
        self.fed = False  # the last step took a batch from a loader

    def hook(self, torch):
        self._hook_save(torch)
        module = sys.modules.get("torch.utils.data.dataloader")
        iterator = getattr(module, "_BaseDataLoaderIter", None)
        if iterator is None:
            return
        original = iterator.__next__
        phases = self

        @functools.wraps(original)
        def next_batch(self):
            if phases.at_end(self):
                phases.hold(self, torch, True)
                raise StopIteration
            reads = self.__dict__.pop("_gresize_reads", None)
            if reads is not None:
                reads()
            batch = original(self)
            phases.given += 1
            phases.look_at(self, batch)
            if phases.active:
                self._gresize_batches = getattr(self, "_gresize_batches", 0) + 1
                phases.hold(self, torch)
            return batch

        iterator.__next__ = next_batch
        iterator.next = next_batch

    def _hook_save(self, torch):
        original = torch.save
        phases = self

        @functools.wraps(original)
        def save(*args, **kwargs):
            # A checkpoint of a run like this is of use to nobody, and takes room and time; it takes no memory of the GPU.
            return None if phases.turned else original(*args, **kwargs)

        torch.save = save

    def look_at(self, iterator, batch):
        try:
            if not hasattr(iterator, "_gresize_seen"):
                iterator._gresize_seen = True
                self.workers.update(w.pid for w in getattr(iterator, "_workers", ()))
            self.steadiness.batch(iterator, batch)
        except Exception:
            pass

    def hold(self, iterator, torch, ended=False):
        """Notes what is held on the card at each batch of a loader that is ended early, and whether each of them leaves something."""
        try:
            held = iterator.__dict__.setdefault("_gresize_held", [])
            held.append(torch.cuda.memory_allocated())
            if not ended:
                return
            left = [b - a for a, b in zip(held[1:], held[2:])]  # the first leaves its last tensors until the next
            held.clear()
            if len(left) >= 2 and min(left) > 0:
                to_come = len(iterator) - BATCHES_AFTER
                if min(left) * to_come > MOST_LEFT_BYTES:
                    text = "of a loader of %s %d %s not read, and each leaves %d bytes" % (
                        type(iterator._dataset).__name__, to_come, "batch was" if to_come == 1 else "batches were", min(left))
                    if text not in self.keeping and len(self.keeping) < 4:
                        self.keeping.append(text)
        except Exception:  # a stream has no length
            pass

    def at_end(self, iterator):
        if not self.active:
            return False
        if not self.turned:  # the one that training reads from
            self.turned = True
            self.steadiness.keep(iterator)
            return True
        if getattr(iterator, "_gresize_batches", 0) < BATCHES_AFTER:
            return False
        iterator._gresize_batches = 0  # a loader with persistent workers uses it again
        return True

    def step(self):
        """A training step has ended."""
        if self.turned and not self.resumed:
            self.resumed, self.deadline = True, time.monotonic() + self.allowed
        self.fed, self.given_before = self.given > self.given_before, self.given

    def wants_more(self, elapsed_seconds):
        """Whether to go on, asked after each step once enough steps were seen."""
        if self.turned:
            self.steps_after += 1
            return self.steps_after < STEPS_AFTER and not self.late()
        # Ranks that end an epoch at different steps would wait for each other; without a loader that feeds the steps there is no epoch.
        if self.active or not self.fed or os.environ.get("WORLD_SIZE", "1") != "1":
            return False
        self.active = True
        self.allowed = max(LEAST_SECONDS, elapsed_seconds)
        self.deadline = time.monotonic() + self.allowed
        return True

    def late(self):
        return self.deadline is not None and time.monotonic() > self.deadline
