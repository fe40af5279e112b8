"""Runs cases of a script one after the other, each in a process forked once PyTorch is imported, with reports of its own: each.py REPORTS SCRIPT CASE..."""
import os
import runpy
import sys

import torch  # noqa: F401

reports, script, cases = sys.argv[1], sys.argv[2], sys.argv[3:]
for case in cases:
    pid = os.fork()
    if pid == 0:
        os.environ["GRESIZE_VGPU_REPORT_DIR"] = os.path.join(reports, case)
        sys.argv = [script, case]
        runpy.run_path(script, run_name="__main__")
        break  # and ends as a program does
    if os.waitpid(pid, 0)[1] != 0:
        print("failed:", case, file=sys.stderr)
