"""Writes what one process was seen to need: python-<pid>.json, and events-<pid>.jsonl and modules-<pid>.jsonl when they are recorded."""
import ctypes
import json
import os
import platform
import sys
import time

from . import releases

SCHEMA = "gresize.vgpu.python/1"
MOST_STEPS = 1024
MOST_TEXT = 1000

_native = None


def complain():
    """Faults of this layer are the program's business only when someone looks for them."""
    if os.environ.get("GRESIZE_VGPU_DEBUG"):
        import traceback

        traceback.print_exc(file=sys.stderr)


def quietly(function, *args):
    """Calls what must not reach the program as an exception."""
    try:
        function(*args)
    except Exception:
        complain()


def number(name, fallback, kind):
    """A setting of the run: what an environment variable has, where that is a number above zero."""
    try:
        value = kind(os.environ[name])
    except (KeyError, ValueError):
        return fallback
    return value if value > 0 else fallback


def library():
    """The native layer that is already in this process; None when no library was replaced."""
    global _native
    if _native is None:
        try:
            # RTLD_NOLOAD: opening it anew would put a second state beside the one in use.
            _native = ctypes.CDLL("libgresize-vgpu.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            _native.gresize_vgpu_values_read_back.restype = ctypes.c_uint64
            _native.gresize_vgpu_unknown_reads.restype = ctypes.c_uint64
        except (OSError, AttributeError):
            _native = False
    return _native or None


def values_read_back(watched):
    """Small reads of what a kernel would have computed, but those whose use is watched."""
    return max(0, all_reads() - watched)


def unknown_reads():
    """Reads of any size of what a kernel would have computed."""
    native = library()
    return int(native.gresize_vgpu_unknown_reads()) if native else 0


def peek(to, address, size):
    """Copy what the host, or another rank, has put at an address of the card; False where a kernel may have written there since."""
    native = library()
    give = getattr(native, "gv_peek", None)
    if give is None:
        return False
    give.restype = ctypes.c_bool
    return give(to, ctypes.c_void_p(address), ctypes.c_size_t(size))


def let_checks_pass(on):
    """Whether one byte that C++ asks for, and that a kernel would have computed, reads as true."""
    give = getattr(library(), "gresize_vgpu_checks_pass", None)
    if give is not None:
        give(bool(on))


def all_reads():
    """Small reads of what a kernel would have computed."""
    native = library()
    return int(native.gresize_vgpu_values_read_back()) if native else 0


def flush_native():
    native = library()
    if native:
        native.gresize_vgpu_flush()


def flush_streams():
    """What the program has printed is out before the process ends without unwinding."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def environment_kept():
    """Whether the variables that put the virtual GPU under a process are still there."""
    stubs = os.environ.get("GRESIZE_VGPU_DIR", "")
    audit = os.environ.get("LD_AUDIT", "").split(":")
    return bool(stubs) and os.path.join(stubs, "gresize-audit.so") in audit


# The name that a process bears while this layer writes down what the process was seen to need, and what it has then, in units of 64 KiB: names have 15 characters.
REPORTING = b"gresize:"
REPORTING_UNIT_KIB = 64


def hide_from_measurement():
    """What this process takes from here on is not the program's: whoever measures it from outside knows it by this name. Returns the name that it had."""
    try:
        with open("/proc/self/status") as f:
            own = sum(int(line.split()[1]) for line in f if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")))
        with open("/proc/self/comm", "rb+", buffering=0) as f:
            name = f.read(64).strip()
            f.write(REPORTING + b"%07x" % min(own // REPORTING_UNIT_KIB, 0xFFFFFFF))
            return name
    except (OSError, ValueError):
        return None


def show_to_measurement(name):
    try:
        if name and not name.startswith(REPORTING):
            with open("/proc/self/comm", "wb", buffering=0) as f:
                f.write(name)
    except OSError:
        pass


def _host_peak_bytes():
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except Exception:
        return 0


def integer(name):
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def _node(watch):
    """The number of the node that this rank would be on: ranks of different nodes share no card."""
    each = integer("LOCAL_WORLD_SIZE")
    if watch.rank is not None and each and watch.world_size and each <= watch.world_size:
        return watch.rank // each
    return integer("SLURM_NODEID") or 0


def _cards():
    """The numbers on the node of the devices that the program sees, where it was given some of them."""
    cards = []
    for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[:64]:
        if not word.strip().isdigit():
            break
        cards.append(int(word))
    return cards


def memory_stats(torch, device):
    """The allocator's counters; none where the program put an allocator of its own in its place, which only the native layer sees."""
    try:
        return torch.cuda.memory_stats(device)
    except RuntimeError:
        return {}


def devices_of(watch):
    devices = []
    if not watch.cuda_used():
        return devices
    cuda = watch.torch.cuda
    for index in range(cuda.device_count()):
        watch.keep_peaks(index)
        stats = memory_stats(watch.torch, index)
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


def memory_fraction(torch, device):
    """The part of a card that the program allows itself."""
    current = torch.cuda.current_device()
    try:
        return torch.cuda.memory.get_per_process_memory_fraction(device)
    except Exception:  # older releases cannot be asked
        return releases.memory_fraction(device)
    finally:
        torch.cuda.set_device(current)  # PyTorch 2.6 makes the device that it is asked about the current one


def _memory_fraction(watch):
    """Whether the program allows itself a part of a card only."""
    if not watch.cuda_used():
        return False
    try:
        return any(memory_fraction(watch.torch, index) < 1 for index in range(watch.torch.cuda.device_count()))
    except Exception:
        return False


def is_out_of_memory(torch, exception):
    """Whether the card was full."""
    types = [getattr(torch, "OutOfMemoryError", None), getattr(torch.cuda, "OutOfMemoryError", None)]
    return isinstance(exception, tuple(t for t in types if t))


def summary(value):
    """The first line of an exception's text, and the second where the first only announces it: what follows is advice or a list."""
    lines = [line.strip() for line in str(value).strip().splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    return text[:MOST_TEXT]


def _exception(torch, value):
    if value is None:
        return None
    return {
        "type": type(value).__name__,
        "text": summary(value),
        "out_of_memory": is_out_of_memory(torch, value),
    }


def write_file(name, chunks):
    directory = os.environ.get("GRESIZE_VGPU_REPORT_DIR")
    if not directory:
        return
    part = os.path.join(directory, "." + name + ".part")
    with open(part, "w") as f:
        for chunk in chunks:
            f.write(chunk)
    os.replace(part, os.path.join(directory, name))


def _cudnn_version(torch, used):
    try:
        return torch.backends.cudnn.version() if used else None
    except Exception:
        return None


def write(watch, reason, exception=None, initializing=False):
    """Write the report of this process; a fault here is never the program's."""
    try:
        flush_native()  # the two halves are of one moment: with an older one of the other side, this one is not written
        torch = watch.torch
        devices = watch.figures or devices_of(watch)
        unread, larger = (0, False) if watch.lapse.whole() or reason == "exit" else watch.loaders.unread()
        leaves, steps = watch.looking(watch.leaves) or (0, 0)
        rising = watch.looking(watch.rising) or []
        if watch.lapse.active and reason == "running":
            reason = "stopped"  # the first answer stands
        content = {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "reason": reason,
            "exception": _exception(torch, exception),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "cudnn": _cudnn_version(torch, bool(devices)),
            "cuda_initialized": watch.cuda_used() or initializing,
            "virtual": library() is not None,
            "rank": watch.rank,
            "local_rank": integer("LOCAL_RANK"),
            "world_size": watch.world_size,
            "node": _node(watch),
            "cards": _cards(),
            "steps": watch.steps,
            "backward_calls": watch.backward_calls,
            "scaler_steps": watch.scaler_steps,
            "optimizers": len(watch.optimizers),
            "flat": watch.flat(),
            "per_step": watch.history,
            "devices": devices,
            "values_read_back": values_read_back(watch.decisions.watched_reads),
            "decisions": watch.decisions.count,
            "values": watch.calls.shadow.report() if watch.calls else {},
            "loaders_unread": unread,
            "larger_loader_unread": larger,
            "epochs_cut_short": watch.phases.turned,
            "time_lapse": watch.lapse.said(),
            "changes_ahead": watch.faults + watch.frozen + watch.larger + watch.ahead.doubts,
            "not_run": watch.ahead.advice,
            "growth_ahead": watch.phases.keeping + rising,
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
            "host_peak_bytes": _host_peak_bytes(),
            "began_unix": round(watch.began_unix, 3),
            "environment_kept": environment_kept(),
            "wall_seconds": round(time.monotonic() - watch.begin, 3),
        }
        write_file("python-%d.json" % os.getpid(), [json.dumps(content)])
    except Exception:
        complain()


def wants_part(name):
    """Whether this optional part of the bundle is to be recorded."""
    return name in os.environ.get("GRESIZE_PROBE_PARTS", "").split(",")


def write_lines(name, lines):
    """Write a list of values, one a line, which only some answers need: without it the report stands."""
    try:
        compact = json.JSONEncoder(separators=(",", ":")).encode
        write_file("%s-%d.jsonl" % (name, os.getpid()), (compact(line) + "\n" for line in lines))
    except Exception:
        complain()
