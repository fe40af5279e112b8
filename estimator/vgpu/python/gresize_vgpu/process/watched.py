"""One process that is watched, with PyTorch as with JAX: when it began, and that it ends once, with its report."""
from __future__ import annotations

import os
import threading
import time

from . import report_file


class Watched:
    def __init__(self) -> None:
        self.begin_anew()

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
