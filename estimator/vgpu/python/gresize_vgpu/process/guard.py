"""Faults of this layer, which are never the program's."""
import os
import sys


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
