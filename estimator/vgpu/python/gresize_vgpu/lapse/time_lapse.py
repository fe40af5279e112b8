"""What comes after the first answer: the program goes on, in time-lapse, to its end or until nothing new is seen.

The first steps say what a step takes. What a later one takes is seen by running it: every data loader gives a few batches of its own and then the same
ones again, for a short time, so that all epochs, callbacks, evaluations, the next training and the next candidate of a search come by. Whatever the
program makes of that, the first answer stands: a failure from here on is no fault of its own.
"""
from __future__ import annotations

import gc
import os
import time

from ..process import exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time

    from gresize_types import Torch

# Without anything new for so long, of the processor's time and by the clock, or for so many times what the first answer took, it ends.
LEAST_QUIET_SECONDS, LEAST_WAITED_SECONDS = 5.0, 8.0
QUIET_FACTOR = 2
# Of the whole budget, which a run with other values needs a second time.
BUDGET_SHARE = 0.4
# Of what is left of it, where the first answer took long.
LEAST_SHARE = 0.25
LOOKS_EVERY_SECONDS = 0.25
# After so long without a new peak it is at rest.
RESTS_SECONDS = 1.0
# Frozen parameters that are so much of all are worth a word where time was short.
FROZEN_SHARE = 0.1
# Of the steps of a program that was followed to its end, so many at least have come since its peak rose last.
RESTED_SHARE = 0.1
# A peak that rises by less is that of what each step leaves.
NEW_BYTES = 1 << 20


def wanted() -> bool:
    # Ranks that leave out different turns would wait for each other.
    return os.environ.get("GRESIZE_PROBE_QUICK") != "1" and os.environ.get("WORLD_SIZE", "1") == "1"


def frozen(torch: Torch) -> list[str]:
    """In words, the parameters on the card that take no part in the training: a later epoch may free them."""
    sizes = {True: 0, False: 0}
    for found in gc.get_objects():
        if isinstance(found, torch.nn.Parameter) and found.is_cuda:
            sizes[found.requires_grad] += found.numel() * found.element_size()
    if sizes[False] <= FROZEN_SHARE * sum(sizes.values()):
        return []
    return ["%d MiB of parameters are frozen, and there was no time to see whether a later epoch frees them" % (sizes[False] >> 20)]


def begun_anew(trainings: int) -> list[str]:
    """In words, that one training has followed another where time was short."""
    return ["a training followed another one, and there was no time to see whether more do"] if trainings else []


class TimeLapse:
    """Whether the first answer is known, since when nothing new was seen, and how it ended."""

    def __init__(self, seconds: float, share: float = BUDGET_SHARE, waited_seconds: float = LEAST_WAITED_SECONDS) -> None:
        self.budget, self.share, self.waited_seconds = seconds, share, waited_seconds
        self.active = False
        self.failure = None  # the traceback of that
        self.ended = ""  # in words for the report: "", "program", "nothing_new", "budget", or the exception
        self.first_peak = 0  # allocated, when the first answer was known
        self._first = self._first_processor = self._news = self._news_processor = self._rose = self._until = 0.0
        self._rose_steps = 0  # how many steps there were when a peak was new
        self._known: tuple[int, int, tuple[int, ...]] | None = None

    def start(self, begin: float, allocated: int) -> bool:
        now = time.monotonic()
        self.first_peak = allocated
        self._first, self._first_processor, self._news = now - begin, time.process_time(), now
        self._news_processor = self._first_processor
        self._until = begin + max(self.share * self.budget, self._first + LEAST_SHARE * (self.budget - self._first))
        self.active = True  # from here on another thread asks whether it is over
        return now < self._until

    def see(self, steps: int, allocated: int, reserved: int, *others: int) -> bool:
        """Notes what is to be seen now: steps, peaks, and how many optimizers, loaders and the like there were. Returns whether a peak is new."""
        known = self._known
        rose = known is None or allocated > known[0] + NEW_BYTES or reserved > known[1]
        if known is None or rose or others != known[2]:
            self._known = allocated, reserved, others
            self.news()
        if rose:
            self._rose, self._rose_steps = time.monotonic(), steps
        return rose

    def rested(self, steps: int, reserved: int) -> bool:
        """Whether the program was followed to its end, and its peak stood for the last part of it."""
        return self.whole() and self._known is not None and reserved <= self._known[1] and steps - self._rose_steps > RESTED_SHARE * steps

    def news(self) -> None:
        """Something new has come, or comes now."""
        self._news, self._news_processor = time.monotonic(), time.process_time()

    def quiet(self, share: float = 1.0) -> bool:
        """Whether nothing new has come for so long that nothing is expected, or for a share of that."""
        return time.monotonic() - self._news > share * max(self.waited_seconds, 2 * QUIET_FACTOR * self._first) or (
            time.process_time() - self._news_processor > share * max(LEAST_QUIET_SECONDS, QUIET_FACTOR * self._first_processor)
        )

    def rests(self) -> bool:
        return bool(self.ended) and self.ended not in ("budget", "nothing_new") or time.monotonic() - self._rose > RESTS_SECONDS

    def left_seconds(self) -> float:
        return max(self._until - time.monotonic(), 0.0)

    def over(self) -> bool:
        """Whether to end it here, and why."""
        if not self.active:
            return False
        if time.monotonic() > self._until:
            self.ended = "budget"
        elif self.quiet():
            self.ended = "nothing_new"
        return bool(self.ended)

    def end(self, exception: BaseException | None) -> None:
        """The program has ended by itself."""
        self.failure = getattr(exception, "__traceback__", None)
        self.ended = "program" if exception is None else ("%s: %s" % (type(exception).__name__, exceptions.summary(exception)))[:200]

    def whole(self) -> bool:
        """Whether the program was followed to its own end."""
        return self.ended == "program"

    def said(self) -> str:
        """How it ended, for the report: nothing before it began, and "on" while the program goes on."""
        return self.ended or ("on" if self.active else "")
