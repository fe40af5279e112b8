"""Tensors that another stream uses, in a program that never waits for the card.

On the virtual GPU every kernel is done when its launch returns. A real card's host runs ahead of it until the program waits, and the allocator gives a block
that was recorded on another stream out again only when that has passed it: how many batches are held by then is not known.
"""
from __future__ import annotations

import functools
import sys

from ..process import native
from ..program import own_files

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time

    from gresize_types import Torch

    from ..values.patches import Calls

# A thousand of what is smaller are within what an upper end holds.
LEAST_BYTES = 1 << 20
STEPS = 2


class Flights:
    def __init__(self) -> None:
        self.bytes = self.waits = 0  # of this step
        self.dry = self.dry_bytes = 0  # steps in a row that recorded and did not wait, and what the last one recorded
        self.reads = 0

    def hook(self, torch: Torch, calls: Calls) -> None:
        flights = self

        def records(original):
            @functools.wraps(original)
            def record_stream(self, *args, **kwargs):
                if self.is_cuda and own_files.is_users(sys._getframe(1).f_code.co_filename):
                    flights.bytes += self.numel() * self.element_size()
                return original(self, *args, **kwargs)

            return record_stream

        def waits(original):
            @functools.wraps(original)
            def synchronize(*args, **kwargs):
                flights.waits += 1
                return original(*args, **kwargs)

            return synchronize

        calls.replace(torch.Tensor, "record_stream", records)
        for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event):
            calls.replace(owner, "synchronize", waits)

    def step(self) -> None:
        """A training step has ended."""
        reads = native.unknown_reads() + native.all_reads()
        flown = self.bytes >= LEAST_BYTES and not self.waits and reads == self.reads
        self.dry, self.dry_bytes = (self.dry + 1 if flown else 0), self.bytes
        self.bytes, self.waits, self.reads = 0, 0, reads

    def in_flight_bytes(self) -> int:
        """What a step leaves to another stream, where none of the last waited for the card."""
        return self.dry_bytes if self.dry >= STEPS else 0
