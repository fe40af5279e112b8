"""What each turn of a loop leaves on the card, by what is held when turns begin: samples of which there are never many, however many turns there are."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Callable


MOST_SAMPLES = 16
LEAST_SAMPLES = 4
# Of the samples so many at least hold more than the one before, and none holds less.
SHARE = 0.7
# What comes with some turns only shows in samples that lie further apart.
STRIDES = 1, 2, 4


class Leaves:
    def __init__(self, held: Callable[[], int]) -> None:
        self.held = held  # held(): bytes
        self.samples, self.every, self.turns = [], 1, 0
        self.landings = []  # (turns that were run, bytes) where turns were left out before

    def turn(self) -> None:
        """A turn begins."""
        if self.turns % self.every == 0:
            self.samples.append(self.held())
            if len(self.samples) == MOST_SAMPLES:
                self.samples, self.every = self.samples[::2], 2 * self.every
        self.turns += 1

    def landed(self, turns: int) -> None:
        """Turns were left out, and so many run since the last time."""
        self.landings.append((turns, self.held()))

    def bytes(self) -> float:
        """What a turn leaves, on the average; nothing where that is not so all along. The first turn leaves what it holds until the next."""
        samples = self.samples[1:]
        if all(a <= b for a, b in zip(samples, samples[1:])):
            for stride in STRIDES:
                every = samples[::stride]
                rises = [b - a for a, b in zip(every, every[1:])]
                if len(every) >= LEAST_SAMPLES and sum(r > 0 for r in rises) >= SHARE * len(rises):
                    return sum(rises) / len(rises) / self.every / stride
        held = [held for _, held in self.landings]
        rose = len(held) >= LEAST_SAMPLES and all(a < b for a, b in zip(held, held[1:]))
        return (held[-1] - held[0]) / sum(turns for turns, _ in self.landings[1:]) if rose else 0
