"""Copies between a device and the host, beside what the program computes.

Cuda has two streams of its own, one a direction. Host stands for a device where there is none: its memory is the host's, and a copy is done when it returns.
"""
from __future__ import annotations

from . import fitting, pace

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Tensor, Torch

# What a chunk of pinned memory is made of: PyTorch rounds pinned requests up to a power of two.
CHUNK_BYTES = 256 << 20
ALIGN_BYTES = 512


class Pool:
    """Buffers of host memory, at most so many bytes. A buffer that comes back is given out again for the same size."""

    def __init__(self, torch: Torch, most_bytes: int, pinned: bool) -> None:
        self.torch, self.most_bytes, self.pinned = torch, most_bytes, pinned
        self.taken_bytes = 0
        self.free = {}  # bytes -> buffers, each with the event after which it may be written
        self.chunk: Tensor = None
        self.used = 0

    def take(self, size: int) -> tuple[Tensor, Any] | None:
        """A buffer and what its last reader waits for; None where there is no room left."""
        waiting = self.free.get(size)
        if waiting:
            return waiting.pop()
        room = -(-size // ALIGN_BYTES) * ALIGN_BYTES
        if self.taken_bytes + room > self.most_bytes:
            return None
        if self.chunk is None or self.used + room > self.chunk.numel():
            try:
                self.chunk = self.torch.empty(max(room, CHUNK_BYTES), dtype=self.torch.uint8, pin_memory=self.pinned)
            except RuntimeError as e:  # the system pins no more: what does not leave is as it would be without us
                if self.taken_bytes == 0:
                    fitting.tell(
                        "the system gives no pinned host memory (%s), and the plan takes %.2f GiB: give the job more memory (sbatch --mem), or plan for a larger --target"
                        % ((str(e).splitlines() or [type(e).__name__])[0], self.most_bytes / fitting.GIB)
                    )
                self.most_bytes = self.taken_bytes
                return None
            self.used = 0
        buffer = self.chunk[self.used : self.used + size]
        self.used += room
        self.taken_bytes += room
        return buffer, None

    def give(self, buffer: Tensor, after: Any) -> None:
        self.free.setdefault(buffer.numel(), []).append((buffer, after))


class Cuda:
    pinned = True

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        # The operator itself: whoever has replaced Tensor.copy_ watches what the program reads, and this is no read of the program's.
        self.copy = torch.ops.aten.copy_.default
        self.streams = {}  # device -> out, in
        self.pace = pace.Pace(torch, pace.slowest())

    def usable(self) -> bool:
        return not self.torch.cuda.is_current_stream_capturing()

    def current(self, device: Any) -> Any:
        return self.torch.cuda.current_stream(device)

    def _stream(self, device, way):
        if device not in self.streams:
            self.streams[device] = self.torch.cuda.Stream(device), self.torch.cuda.Stream(device)
        return self.streams[device][way]

    def out(self, host: Tensor, storage: Tensor, after: Any) -> Any:
        """Begins to copy to the host; returns what has to be waited for."""
        stream = self._stream(storage.device, 0)
        stream.wait_stream(self.current(storage.device))
        if after is not None:
            stream.wait_event(after)
        with self.torch.cuda.stream(stream):
            self.copy(host, storage, True)
            return stream.record_event()

    def back(self, host: Tensor, storage: Tensor) -> Any:
        """Begins to copy from the host. What the current stream did with the memory of storage before comes first."""
        stream = self._stream(storage.device, 1)
        stream.wait_stream(self.current(storage.device))
        with self.torch.cuda.stream(stream):
            self.copy(storage, host, True)
            return stream.record_event()

    def begun(self) -> None:
        self.pace.begun()

    def slowdown(self) -> float | None:
        """By how many times a step is longer, as it was measured; None where it was not."""
        return self.pace.slowdown

    def wait(self, stream: Any, event: Any) -> None:
        """What stream does from now on comes after the copy; the host does not wait."""
        if not self.pace.measures():
            stream.wait_event(event)
            return
        before = self.pace.event(stream)
        stream.wait_event(event)
        self.pace.waits.append((before, self.pace.event(stream)))


class Host:
    pinned = False

    def __init__(self, torch: Torch) -> None:
        self.torch = torch

    def begun(self) -> None:
        pass

    def slowdown(self) -> float | None:
        return None

    def usable(self) -> bool:
        return True

    def current(self, device: Any) -> Any:
        return None

    def out(self, host: Tensor, storage: Tensor, after: Any) -> Any:
        host.copy_(storage)
        return True

    def back(self, host: Tensor, storage: Tensor) -> Any:
        storage.copy_(host)
        return True

    def wait(self, stream: Any, event: Any) -> None:
        pass
