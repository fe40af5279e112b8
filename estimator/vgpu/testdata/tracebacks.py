"""Ends with a traceback through gresize's own functions, and says what the program itself sees of it."""
import atexit
import sys
import traceback

import torch


def ours(exception):
    """How many frames of an exception, and of what it came from, are gresize's."""
    found = 0
    while exception is not None:
        found += sum("gresize_vgpu" in row.filename for row in traceback.extract_tb(exception.__traceback__))
        exception = exception.__cause__
    return found


def at_end():
    print("at the end:", ours(sys.last_value), flush=True)


atexit.register(at_end)
two = torch.ones(2, device="cuda")
try:
    two.item()
except RuntimeError as e:
    print("caught:", ours(e), flush=True)
    caught = e
if sys.argv[1:] == ["hook"]:
    sys.excepthook = lambda kind, exception, tb: print("a hook of the program:", ours(exception), flush=True)


def reads(tensor):
    try:
        tensor.item()
    except RuntimeError as e:
        raise ValueError("two numbers") from e


reads(two)
