"""Faults of this layer, which are never the program's."""
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable


def complain() -> None:
    """Faults of this layer are the program's business only when someone looks for them."""
    if os.environ.get("GRESIZE_VGPU_DEBUG"):
        import traceback

        traceback.print_exc(file=sys.stderr)


def quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Calls what must not reach the program as an exception; after one it gives None."""
    try:
        return function(*args)
    except Exception:
        complain()
        return None
