"""Notes that torch could not be imported, and what of the place where it runs may be the cause."""
from __future__ import annotations

import glob
import json
import os
import platform
import sys

from ..process import exceptions, guard, report_file, settings
from . import report

MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x15: "ppc64", 0xF3: "riscv64", 0x03: "i386"}


def machine_of(path: str) -> int | None:
    """The processor that an ELF file is for; None when it is no ELF file."""
    try:
        with open(path, "rb") as f:
            head = f.read(20)
    except OSError:
        return None
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return None
    return int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")


def foreign_library() -> tuple[str, str] | None:
    """A library of torch that is for another processor than this interpreter, with that processor's name."""
    own = machine_of(sys.executable)
    for place in sys.path:
        home = os.path.join(place or ".", "torch")
        if not os.path.isdir(home):
            continue
        for path in sorted(glob.glob(os.path.join(home, "_C*.so")) + glob.glob(os.path.join(home, "lib", "libtorch*.so"))):
            other = machine_of(path)
            if own is not None and other is not None and other != own:
                return path, MACHINES.get(other, "another processor")
        return None
    return None


def note(exception: BaseException) -> None:
    """Write a report in the place of the one that a process with torch writes."""
    try:
        while exception.__context__ is not None:  # PyTorch looks for its libraries in another way, and the first error is behind the last
            exception = exception.__context__
        lines = [line for line in str(exception).strip().splitlines() if line.strip()]
        foreign = foreign_library()
        content = {
            "schema": report.SCHEMA,
            "pid": os.getpid(),
            "reason": "import_failed",
            "exception": {"type": type(exception).__name__, "text": (lines[0] if lines else "")[: exceptions.MOST_TEXT]},
            "python": platform.python_version(),
            "environment_kept": settings.environment_kept(),
            "foreign": "%s is for %s" % foreign if foreign else "",
        }
        report_file.write("python-%d.json" % os.getpid(), [json.dumps(content)])
    except Exception:
        guard.complain()
