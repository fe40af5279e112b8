"""What a run was asked to do: its environment variables, which docs/architecture.md lists."""
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable


def number(name: str, fallback: float, kind: Callable[[str], float]) -> Any:
    """A setting of the run: what an environment variable has, where that is a number above zero."""
    try:
        value = kind(os.environ[name])
    except (KeyError, ValueError):
        return fallback
    return value if value > 0 else fallback


def integer(name: str) -> int | None:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def wants_part(name: str) -> bool:
    """Whether this optional part of the bundle is to be recorded."""
    return name in os.environ.get("GRESIZE_PROBE_PARTS", "").split(",")


def records_events() -> bool:
    """Whether the history of the allocator is recorded."""
    return os.environ.get("GRESIZE_PROBE_EVENTS") == "1"


def environment_kept() -> bool:
    """Whether the variables that put the virtual GPU under a process are still there."""
    stubs = os.environ.get("GRESIZE_VGPU_DIR", "")
    audit = os.environ.get("LD_AUDIT", "").split(":")
    return bool(stubs) and os.path.join(stubs, "gresize-audit.so") in audit


def cards() -> list[int]:
    """The numbers on the node of the devices that the program sees, where it was given some of them."""
    cards = []
    for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[:64]:
        if not word.strip().isdigit():
            break
        cards.append(int(word))
    return cards
