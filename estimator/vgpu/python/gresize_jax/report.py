"""Writes what one process of JAX was seen to need: jax-<pid>.json."""
from __future__ import annotations

import importlib.util
import json
import os
import platform
import resource
import sys
import time

from gresize_vgpu.process import exceptions, guard, native, report_file, settings

from . import arrays, pjrt, processes

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

SCHEMA = "gresize.vgpu.jax/1"
MOST_COMPUTATIONS = 128
GRANULE = 256  # to which XLA's allocator rounds up
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


def version_of(name: str) -> str | None:
    try:
        from importlib.metadata import version

        return version(name)
    except Exception:
        return None


def plugin() -> tuple[str | None, str | None]:
    """The package with the backend for NVIDIA's cards, and its version; none where JAX is for the CPU alone."""
    for major in ("13", "12"):
        if importlib.util.find_spec("jax_cuda%s_plugin" % major) is not None:
            return "cuda" + major, version_of("jax-cuda%s-plugin" % major)
    return None, None


def backends() -> dict[str, Any]:
    """The backends that have been started, by name."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return dict(getattr(bridge, "_backends", None) or {})


def failures() -> dict[str, str]:
    """What backends that did not start said."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return {str(name): exceptions.summary(text) for name, text in (getattr(bridge, "_backend_errors", None) or {}).items()}


def card_devices() -> list[Any]:
    """The cards of this process."""
    devices = []
    for backend in backends().values():
        if getattr(backend, "platform", "") in ("gpu", "cuda"):
            devices.extend(backend.local_devices())
    return devices


def memory_stats(device: Any) -> dict[str, int]:
    try:
        return device.memory_stats() or {}
    except Exception:  # an allocator without counters: only the native layer sees what it takes
        return {}


def peak_bytes() -> int:
    """The most that lived at once on any card."""
    return max([memory_stats(d).get("peak_bytes_in_use", 0) for d in card_devices()], default=0)


def live_bytes() -> int:
    """What the program's arrays have that live now: XLA gives back in its own time, which would look as if less was kept."""
    live = [a for b in backends().values() if getattr(b, "platform", "") in ("gpu", "cuda") for a in b.live_arrays()]
    return sum(-(-a.nbytes // GRANULE) * GRANULE for a in live if not a.is_deleted())


def devices() -> list[dict[str, Any]]:
    listed = []
    for device in card_devices():
        stats = memory_stats(device)
        listed.append(
            {
                "index": getattr(device, "local_hardware_id", None) or 0,
                "peak_in_use_bytes": stats.get("peak_bytes_in_use", 0),
                "in_use_bytes": stats.get("bytes_in_use", 0),
                "largest_bytes": stats.get("largest_alloc_size", 0),
                "limit_bytes": stats.get("bytes_limit", 0),
                "peak_pool_bytes": stats.get("peak_pool_bytes", 0),
                "allocations": stats.get("num_allocs", 0),
            }
        )
    return listed


def out_of_memory(value: Any) -> bool:
    return value is not None and OUT_OF_MEMORY in exceptions.summary(value)


def exception(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    text = exceptions.summary(value)
    return {"type": type(value).__name__, "text": text, "out_of_memory": out_of_memory(value)}


def preallocates() -> bool:
    return os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true").lower() not in ("0", "false")


def write(watch: Any, reason: str, raised: BaseException | None = None) -> None:
    """Write the report of this process; a fault here is never the program's."""
    try:
        native.flush()
        goes_on = watch.first_answer is not None and reason == "running"
        if goes_on:
            reason = "stopped"  # the first answer stands
        name, version = plugin()
        rank, count = processes.place()
        started = backends()
        computations, counts = pjrt.computations(), pjrt.Counts()
        content = {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "reason": reason,
            "exception": exception(raised),
            "python": platform.python_version(),
            "jax": version_of("jax"),
            "jaxlib": version_of("jaxlib"),
            "plugin": name,
            "plugin_version": version,
            "backends": sorted(getattr(b, "platform", "") for b in started.values()),
            "failures": failures(),
            "devices": devices(),
            "allocator": os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default"),
            "preallocates": preallocates(),
            "process": rank,
            "processes": count,
            "node": settings.integer("SLURM_NODEID") or 0,
            "cards": settings.cards(),
            "interface": counts.minor,
            "steps": pjrt.steps(computations),
            "flat": watch.first_answer is not None and watch.later.flat(watch.rested),
            **(watch.looking(watch.later.said, watch.faults) or {}),
            "executions": counts.executions,
            "asked_bytes": counts.asked_bytes,
            "computations": [c.said() for c in sorted(computations, key=lambda c: -c.bytes())[:MOST_COMPUTATIONS]],
            "compile_seconds": round(counts.compile_seconds, 3),
            "import_seconds": round(watch.import_seconds, 3),
            "values_read": counts.values,
            "arrays_read": counts.arrays,
            "values": watch.reads.said(),
            "goes_on": goes_on,
            "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "began_unix": round(watch.began_unix, 3),
            "wall_seconds": round(time.monotonic() - watch.begin, 3),
            "virtual": native.library() is not None,
            "environment_kept": settings.environment_kept(),
        }
        report_file.write("jax-%d.json" % os.getpid(), [json.dumps(content)])
        if os.environ.get("GRESIZE_PROBE_EVENTS") and reason != "running" and content["devices"]:
            guard.quietly(arrays.write, content["devices"][0]["index"], computations)
    except Exception:
        guard.complain()


def write_tensorflow() -> None:
    """TensorFlow was imported. Alone it is a reason for no answer; beside JAX or PyTorch it may only read data."""
    try:
        content = {"schema": SCHEMA, "pid": os.getpid(), "ppid": os.getppid(), "reason": "tensorflow", "tensorflow": version_of("tensorflow")}
        name = "jax-%d.json" % os.getpid()
        if not os.path.exists(os.path.join(os.environ.get("GRESIZE_VGPU_REPORT_DIR", ""), name)):
            report_file.write(name, [json.dumps(content)])
    except Exception:
        guard.complain()
