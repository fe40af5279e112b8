"""How the capture measures: the result so far, the card's use, and the trace of PyTorch's allocator."""

import contextlib
import ctypes
import json
import os
import time

import torch


MiB = 1 << 20
DEV = "cuda"


class Capture:
    """The result so far, the clock, and the two ways to measure: the card's use and the allocator's trace."""

    def __init__(self, path, seconds):
        self.path, self.out = path, {}
        self.end = self.stop = time.time() + seconds

    def left(self):
        """Seconds left to the section that runs."""
        return self.stop - time.time()

    def save(self):
        with open(self.path + ".tmp", "w") as f:
            json.dump(self.out, f, separators=(",", ":"), default=str)
        os.replace(self.path + ".tmp", self.path)

    def run(self, name, fn, last):
        """Run a section; one that is not the last may take three fifths of the time that is left."""
        t = time.time()
        self.stop = self.end if last else t + (self.end - t) * 0.6
        try:
            fn(self)
        except Exception as e:  # a section that fails must not cost the others
            self.out.setdefault("errors", {})[name] = repr(e)[:500]
        self.out.setdefault("section_seconds", {})[name] = round(time.time() - t, 2)
        self.save()


def outside():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def requested(which):
    return torch.cuda.memory_stats().get(f"requested_bytes.all.{which}", 0)


def record(on=True):
    """Begin the allocator's history, or end it, which empties it in every release; to empty it at the beginning can be asked for only since PyTorch 2.9."""
    if on:
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=20000)
    else:
        torch.cuda.memory._record_memory_history(enabled=None)


def events():
    return torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]


def traced(fn, limit=60):
    """Run fn and return its value and what the allocator saw."""
    torch.cuda.synchronize()
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    record()
    t = time.time()
    try:
        value = fn()
        torch.cuda.synchronize()
    finally:
        trace = events()
        record(False)
    allocs = [e["size"] if e["action"] == "alloc" else -e["size"] for e in trace if e["action"] in ("alloc", "free_completed")]
    row = dict(peak=requested("peak") - before, kept=requested("current") - before, ms=round((time.time() - t) * 1e3, 2))
    row["allocs"] = allocs[:limit]
    if len(allocs) > limit:
        row["allocs_cut"] = len(allocs)
    segments = [e["size"] for e in trace if e["action"] == "segment_alloc"]
    if segments:
        row["segments"] = segments[:20]
    return value, row


def loaded(part):
    """The path of the first loaded library whose file name begins with part."""
    with open("/proc/self/maps") as f:
        paths = {line.split()[-1] for line in f if ".so" in line}
    return next((p for p in sorted(paths) if os.path.basename(p).startswith(part)), None)


def library(part, *fallback):
    for path in [loaded(part), *fallback]:
        if path:
            with contextlib.suppress(OSError):
                return ctypes.CDLL(path)
    raise OSError(f"{part}: not loaded")
