"""The files in which a process says what it was seen to need, and the writing of them, which nobody measures as the program's."""
from __future__ import annotations

import itertools
import json
import os
import sys

from . import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Iterable

# The name that a process bears while this layer writes down what the process was seen to need, and what it has then, in units of 64 KiB: names have 15 characters.
REPORTING = b"gresize:"
REPORTING_UNIT_KIB = 64

_parts = itertools.count()  # threads write reports at the same time: each has a file of its own until it is whole


def hide_from_measurement() -> None:
    """What this process takes from here on is not the program's: whoever measures it from outside knows it by this name."""
    try:
        with open("/proc/self/status") as f:
            own = sum(int(line.split()[1]) for line in f if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")))
        with open("/proc/self/comm", "wb", buffering=0) as f:
            f.write(REPORTING + b"%07x" % min(own // REPORTING_UNIT_KIB, 0xFFFFFFF))
    except (OSError, ValueError):
        pass


def host_peak_bytes() -> int:
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except Exception:
        return 0


def flush_streams() -> None:
    """What the program has printed is out before the process ends without unwinding."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def write(name: str, chunks: Iterable[str]) -> None:
    directory = os.environ.get("GRESIZE_VGPU_REPORT_DIR")
    if not directory:
        return
    path, part = os.path.join(directory, name), os.path.join(directory, ".%s.%d.part" % (name, next(_parts)))
    try:
        with open(part, "w") as f:
            for chunk in chunks:
                f.write(chunk)
        os.replace(part, path)
    except BaseException:
        # An earlier report knows of less, and would be believed: none at all is a lost one.
        for left in (part, path):
            if os.path.exists(left):
                os.unlink(left)
        raise


def write_lines(name: str, lines: Iterable[Any]) -> None:
    """Write a list of values, one a line, which only some answers need: without it the report stands."""
    try:
        compact = json.JSONEncoder(separators=(",", ":")).encode
        write("%s-%d.jsonl" % (name, os.getpid()), (compact(line) + "\n" for line in lines))
    except Exception:
        guard.complain()
