"""One process that is watched, with PyTorch as with JAX: when it began, and that it ends once, with its report."""
from __future__ import annotations

import os
import threading
import time

from . import guard, report_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable


class Watched:
    def __init__(self) -> None:
        self.faults: list[str] = []  # of what looks at what comes later, in words
        self.begin_anew()

    def looking(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls what looks at what comes later."""
        try:
            return function(*args)
        except Exception as e:
            self.fault(e)

    def fault(self, e: Exception) -> None:
        """A look that failed has seen nothing: no answer may rest on it."""
        guard.complain()
        text = "what comes later could not be examined (%s)" % type(e).__name__
        if text not in self.faults:
            self.faults.append(text)

    def begin_anew(self) -> None:
        """Also in a forked child: its parent's lock, clock and report are not its own."""
        self.lock = threading.RLock()
        self.begin = time.monotonic()
        self.began_unix = time.time()
        self.done = False

    def leave_report(self, reason: str) -> None:
        """Writes what was seen, and what else is to be done before the process ends without unwinding."""
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Write the report and end this process, without unwinding: user code must not save a checkpoint of zeros."""
        with self.lock:
            if self.done:
                return
            self.done = True
            try:
                report_file.hide_from_measurement()
                self.leave_report(reason)
            finally:
                os._exit(0)
