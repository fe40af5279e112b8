"""Writes what one process was seen to need: python-<pid>.json, and events-<pid>.jsonl and modules-<pid>.jsonl when they are recorded."""
from __future__ import annotations

import json
import os
import platform
import time

from ..process import allocator, exceptions, guard, native, report_file, settings

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

SCHEMA = "gresize.vgpu.python/1"
MOST_STEPS = 1024


def _node(watch):
    """The number of the node that this rank would be on: ranks of different nodes share no card."""
    each = settings.integer("LOCAL_WORLD_SIZE")
    if watch.rank is not None and each and watch.world_size and each <= watch.world_size:
        return watch.rank // each
    return settings.integer("SLURM_NODEID") or 0


def devices_of(watch: Any) -> list[dict[str, Any]]:
    devices = []
    if not watch.cuda_used():
        return devices
    cuda = watch.torch.cuda
    for index in range(cuda.device_count()):
        watch.keep_peaks(index)
        stats = allocator.memory_stats(watch.torch, index)
        allocated, reserved = watch.highest[index]
        devices.append(
            {
                "index": index,
                "peak_allocated_bytes": allocated,
                "peak_reserved_bytes": reserved,
                "peak_requested_bytes": stats.get("requested_bytes.all.peak", 0),
                "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
                "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
                "segments": stats.get("segment.all.current", 0),
                "retries": stats.get("num_alloc_retries", 0),
                "ooms": stats.get("num_ooms", 0),
            }
        )
    return devices


def _memory_fraction(watch):
    """Whether the program allows itself a part of a card only."""
    if not watch.cuda_used():
        return False
    try:
        return any(allocator.memory_fraction(watch.torch, index) < 1 for index in range(watch.torch.cuda.device_count()))
    except Exception:
        return False


def _cudnn_version(torch, used):
    try:
        return torch.backends.cudnn.version() if used else None
    except Exception:
        return None


def write(watch: Any, reason: str, exception: BaseException | None = None, initializing: bool = False) -> None:
    """Write the report of this process; a fault here is never the program's."""
    try:
        native.flush()  # the two halves are of one moment: with an older one of the other side, this one is not written
        torch = watch.torch
        devices = watch.figures or devices_of(watch)
        unread, larger = (0, False) if watch.lapse.whole() or reason == "exit" else watch.loaders.unread()
        leaves, steps = watch.looking(watch.leaves) or (0, 0)
        rising = watch.looking(watch.loops.rising_in_words) or []
        if watch.lapse.active and reason == "running":
            reason = "stopped"  # the first answer stands
        content = {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "reason": reason,
            "exception": exceptions.described(torch, exception),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "cudnn": _cudnn_version(torch, bool(devices)),
            "cuda_initialized": watch.cuda_used() or initializing,
            "virtual": native.library() is not None,
            "rank": watch.rank,
            "local_rank": settings.integer("LOCAL_RANK"),
            "world_size": watch.world_size,
            "node": _node(watch),
            "cards": settings.cards(),
            "steps": watch.steps,
            "backward_calls": watch.backward_calls,
            "scaler_steps": watch.scaler_steps,
            "optimizers": len(watch.optimizers),
            "flat": watch.flat(),
            "per_step": watch.history,
            "devices": devices,
            "values_read_back": native.values_read_back(watch.decisions.watched_reads),
            "decisions": watch.decisions.count,
            "values": watch.calls.shadow.report() if watch.calls else {},
            "loaders_unread": unread,
            "larger_loader_unread": larger,
            "epochs_cut_short": watch.phases.turned,
            "time_lapse": watch.lapse.said(),
            "changes_ahead": watch.faults + watch.frozen + watch.larger + list(watch.phases.streams.values()) + watch.ahead.doubts,
            "not_run": watch.ahead.advice,
            "growth_ahead": list(watch.phases.gathered.words.values()) + rising,
            "afterwards": watch.afterwards,
            "step_leaves_bytes": leaves,
            "first_answer_bytes": watch.lapse.first_peak,
            "in_flight_bytes": watch.flights.in_flight_bytes(),
            "steps_in_all": steps,
            "batches_vary": watch.steadiness.varies,
            "largest_batch": bool(watch.steadiness.settled),
            "batch_spread": round(watch.steadiness.spread, 4),
            "steps_uneven": not watch.phases.fed and not watch.phases.turned and watch.steadiness.uneven(),
            "tuning": watch.tuning.counts(),
            "idle_optimizer": watch.idle_optimizer(),
            "memory_fraction": _memory_fraction(watch),
            "host_peak_bytes": report_file.host_peak_bytes(),
            "began_unix": round(watch.began_unix, 3),
            "environment_kept": settings.environment_kept(),
            "wall_seconds": round(time.monotonic() - watch.begin, 3),
        }
        report_file.write("python-%d.json" % os.getpid(), [json.dumps(content)])
    except Exception:
        guard.complain()
