"""Says which folders the program itself reads the names of.

Who watches the calls of a probe cannot tell the program's own look into a folder from that of Python, which reads every folder of its modules, where the outputs
of jobs often lie. Python announces both here; of the program's own, the watcher is told by a question for a file of this name in the folder.
"""
from __future__ import annotations

import os
import sys

MARK = ".gresize-listing"

# Modules that read folders to find modules and packages, where what they find is opened afterwards and counts by itself; and ours, which are not the program.
_NOT_THE_PROGRAM = ("gresize_vgpu", "importlib", "_frozen_importlib", "pkgutil", "pkg_resources", "importlib_metadata", "importlib_resources", "zipimport", "site")

_access = os.access
_readlink = os.readlink


def _tell(event, args):
    if event != "os.listdir" and event != "os.scandir":
        return
    try:
        frame = sys._getframe(1)
        name = frame.f_globals.get("__name__") or ""
        if name.split(".", 1)[0] in _NOT_THE_PROGRAM or name.startswith("_frozen_importlib"):
            return
        folder = args[0]
        if isinstance(folder, int):
            folder = _readlink("/proc/self/fd/%d" % folder)
        folder = os.fsdecode(folder) if folder else "."
        _access(folder + "/" + MARK, 0)
    except Exception:  # the program's own call goes on, whatever is wrong here
        pass


def watch() -> None:
    """From here on, for the life of the process: an audit hook cannot be taken back."""
    sys.addaudithook(_tell)
