"""What of a program goes on beside its training loop, or comes when that has ended: threads, exit handlers, signal handlers, finalizers, other processes."""
from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import signal
import sys
import threading
import time

from . import own_files

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Collection

    from .lines_not_run import Blocks

MOST_PLACES = 8
# As long as this a training goes on for processes of its own that may be about to use the card, and have not yet.
MOST_SECONDS = 30.0
BUDGET_SHARE = 0.5
# A child that has not begun to use the card by then is taken to do something else.
BEGINS_WITHIN_SECONDS = 15.0
# One that is forked has nothing to import.
FORKED_BEGINS_WITHIN_SECONDS = 5.0
ASKED_EVERY_SECONDS = 0.2
# What runs beside many programs and uses no card.
HELPERS = (b"resource_tracker", b"semaphore_tracker", b"forkserver", b"compile_worker", b"tensorboard", b"wandb")

_at_exit = []


def hook_exit() -> None:
    original: Any = atexit.register

    @functools.wraps(original)
    def register(function, *args, **kwargs):
        if len(_at_exit) < 100:
            _at_exit.append(function)
        return original(function, *args, **kwargs)

    atexit.register = register  # type: ignore


def came() -> None:
    """The interpreter ends: what was registered for that has been called."""
    _at_exit.clear()


def _waiting():
    """Functions that something else than the training loop may call."""
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread is threading.main_thread() or thread.name.startswith("gresize-"):
            continue
        for function in (getattr(thread, "function", None), getattr(thread, "_target", None), type(thread).__dict__.get("run")):
            yield function
    for function in _at_exit:
        yield function
    for number in range(1, signal.NSIG):
        try:
            yield signal.getsignal(number)
        except (ValueError, OSError):
            continue
    weak = sys.modules.get("weakref")
    for info in list(getattr(getattr(weak, "finalize", None), "_registry", {}).values())[:100]:
        yield getattr(info, "func", None)
    for name, module in list(sys.modules.items()):
        if own_files.is_users(own_files.file_of(module)):
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name and "__del__" in value.__dict__ and _has_objects(value):
                    yield value.__dict__["__del__"]


def _has_objects(cls):
    return any(type(o) is cls for o in gc.get_objects()) or any(type(o) is cls for o in gc.get_referrers(cls))


def places(blocks: Blocks, children: Children) -> list[str]:
    """Where those functions are that were not run and may take memory of the card, and whether another process may be about to."""
    found = ["a process that it started and that was not seen whole"] if children.answer else []
    for function in _waiting():
        if own_files.is_users_function(function) and blocks.function(function):
            code: Any = own_files.code_of(function)
            text = "%s line %d" % (os.path.basename(code.co_filename), code.co_firstlineno)
            if text not in found and len(found) < MOST_PLACES:
                found.append(text)
    return found


class Children:
    """Waits for processes of the program's own that are about to use the card: they may share it with this one."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline: float | None = None
        self.asked = 0.0
        self.answer = False

    def busy(self, elapsed_seconds: float, workers: Collection[int]) -> bool:
        """Whether to go on for them; the workers of data loaders are none of them."""
        now = time.monotonic()
        if self.deadline is None:
            self.deadline = now + min(MOST_SECONDS, BUDGET_SHARE * (self.seconds - elapsed_seconds))
        if now - self.asked > ASKED_EVERY_SECONDS:
            self.asked, self.answer = now, any(_is_busy(pid) for pid in _descendants(os.getpid(), workers))
        return self.answer and now <= self.deadline


def _descendants(pid, workers, depth=0):
    """The processes below one, but these workers."""
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return
    for thread in threads[:64]:
        try:
            with open("/proc/%d/task/%s/children" % (pid, thread)) as f:
                children = [int(word) for word in f.read().split()[:64]]
        except (OSError, ValueError):
            continue
        for child in children:
            if child not in workers:
                yield child
                if depth < 3:
                    for below in _descendants(child, workers, depth + 1):
                        yield below


def _is_busy(pid):
    """Whether a process uses the card and has not been seen for long enough, or is young enough to begin."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            command = f.read(4096)
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rpartition(")")[2].split()
        with open("/proc/uptime") as f:
            age = float(f.read().split()[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return False
    if fields[0] == "Z" or b"python" not in command.split(b"\0")[0] or any(h in command for h in HELPERS):
        return False
    try:
        with open(os.path.join(os.environ.get("GRESIZE_VGPU_REPORT_DIR", ""), "python-%d.json" % pid)) as f:
            return bool(json.load(f).get("cuda_initialized"))
    except (OSError, ValueError):
        if command == _own_command():
            return age < FORKED_BEGINS_WITHIN_SECONDS
        return age < BEGINS_WITHIN_SECONDS or _imports_torch(pid)


def _imports_torch(pid):
    try:
        with open("/proc/%d/maps" % pid) as f:
            return "libtorch" in f.read(4 << 20)
    except OSError:
        return False


def _own_command():
    with open("/proc/self/cmdline", "rb") as f:
        return f.read(4096)
