"""What a program is told where it asks for values that only a kernel could have computed.

One run cannot know them, so each run takes a side: LOW answers as a program hopes that goes on training and finds little, HIGH finds
everything and sends all of it the same way. A program whose memory depends on such values is run with both, and its need lies between. HALF finds
every other one: what a run is held against whose ends are alike, and what stands for an end that no working program is at.
"""
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Sequence

    from gresize_types import Tensor, Torch

LOW, HALF, HIGH, OFF = "low", "half", "high", "off"

# An index among more than this many is a word of a vocabulary, not a route: whether it equals a given one is again a question.
MOST_ROUTES = 1024
# Whole numbers that are neither found nor bounded.
SOME, MANY = 7, 100
# On the high side the share of rows that go the same way changes from call to call, in so many steps from all to few.
SHARES = 5


class Side:
    """The side that this run takes, and the numbers that it says."""

    def __init__(self) -> None:
        wanted = os.environ.get("GRESIZE_VGPU_VALUES")
        self.side = wanted if wanted in (HALF, HIGH, OFF) else LOW
        self.reads = 0

    def scalar(self) -> float:
        """A number as a loss would be: always a little better than before on the low side, always a little worse on the high one."""
        if self.side == OFF:
            return 0.0
        self.reads += 1
        step = min(self.reads, 100000) * 1e-6
        return 1e-3 + step if self.side == HIGH else 1.0 - step

    def element(self) -> float:
        """A number as one of an array would be, such as of scores or losses: above zero, next to nothing on the low side, and much on the high one."""
        return self.scalar() * (1e3 if self.side == HIGH else 1e-3)

    def number(self, read: int) -> int:
        """A whole number of which nothing is known: another on each side, so that what is as large as it is shows. Of what a side fails at nothing is said."""
        return {HALF: max(read, SOME), HIGH: max(read, MANY)}.get(self.side, read)

    def true(self) -> bool:
        """The answer to a question about one value."""
        return self.side == HIGH


class Policy(Side):
    """How many elements of a large mask are found is a function of its shape alone, so that a backward pass gets what its forward pass got."""

    def __init__(self, torch: Torch) -> None:
        super().__init__()
        self.torch = torch
        self.calls = 0
        self.healthy = 0  # above zero while PyTorch checks what a healthy run passes
        self.generator = torch.Generator()
        self.generator.manual_seed(0)

    def mask(self, shape: Sequence[int], found: bool = True) -> Tensor:
        """Which elements a comparison finds: none, all, or every other one. found=False is the opposite question."""
        torch = self.torch
        if self.side == HALF and not self.healthy and len(shape):
            total = 1
            for n in shape:
                total *= n
            return (torch.arange(total, device="cpu") % 2 == 0).view(shape) == found
        return torch.full(shape, bool(self.healthy) or (self.side == HIGH) == found, dtype=torch.bool, device="cpu")

    def count(self, most: int) -> int:
        """How many of so many elements are found, where there are too many to tell one by one."""
        return {HIGH: most, HALF: (most + 1) // 2}.get(self.side, 0)

    def kept(self, most: int) -> int:
        """How many boxes a suppression keeps: at least one, if there is any."""
        return max(self.count(most), min(most, 1))

    def routes(self, shape: Sequence[int], classes: int, dim: int | None = None) -> Tensor:
        """Indices below classes, distinct along dim: spread evenly, or most rows the same way."""
        torch = self.torch
        chosen = shape[dim] if dim is not None and len(shape) else 1
        kept = _without(shape, dim)
        total = 1
        for n in kept:
            total *= n
        first = torch.arange(total, device="cpu").view(kept + (1,)) * chosen
        rows = (first + torch.arange(chosen, device="cpu")) % max(classes, 1)
        if self.side in (HALF, HIGH):
            # Not the same share each time: blocks of changing sizes are what an allocator cannot use again.
            same = self.count(total) * (SHARES - self.calls % SHARES) // SHARES
            self.calls += 1
            rank = torch.arange(chosen - 1, -1, -1, device="cpu") + (classes - chosen)
            rows.view(total, chosen)[:same] = rank
        if dim is None or not len(shape):
            return rows.reshape(shape).contiguous()
        return rows.movedim(-1, dim).contiguous()

    def order(self, shape: Sequence[int], dim: int) -> Tensor:
        """A permutation along dim."""
        torch = self.torch
        if not len(shape):
            return torch.zeros(shape, dtype=torch.int64, device="cpu")
        rank = torch.arange(shape[dim], device="cpu")
        return rank.expand(_without(shape, dim) + (shape[dim],)).movedim(-1, dim).contiguous()


def _without(shape, dim):
    shape = tuple(shape)
    if dim is None or not shape:
        return shape
    dim %= len(shape)
    return shape[:dim] + shape[dim + 1 :]
