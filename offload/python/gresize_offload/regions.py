"""Asks for the memory of an iteration in a few pieces, before the program asks for any, and gives them back to PyTorch's allocator at once.

The allocator keeps the pieces and cuts the program's blocks out of them, in place of a segment for each size. It stays the allocator that it is: streams, statistics
and empty_cache() do what they always do, and what finds no room in the pieces gets a segment of its own.
"""
from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Sequence

    from gresize_types import Torch


class Regions:
    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.taken_bytes = 0

    def begin(self, torch: Torch) -> None:
        """They are taken when the program first uses the card."""
        if self.sizes:
            torch.cuda._lazy_call(lambda: self._first_use(torch))

    def _first_use(self, torch):
        try:
            self._take(torch)
        except Exception as e:  # the program runs as it would without us
            print("gresize: the plan's regions are not taken: %s" % (str(e).splitlines() or [type(e).__name__])[0], file=sys.stderr)

    def _take(self, torch):
        if torch.cuda.device_count() != 1:
            raise RuntimeError("%d cards are visible, and which one the program will use is not known: let CUDA_VISIBLE_DEVICES name it" % torch.cuda.device_count())
        if torch.cuda.get_allocator_backend() != "native":
            raise RuntimeError("the program has chosen another allocator")
        held = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in self.sizes]
        del held
        torch.cuda.reset_peak_memory_stats()
        self.taken_bytes = sum(self.sizes)
