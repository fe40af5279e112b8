"""Exceptions of the program, as a report names them."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

    from gresize_types import Torch


MOST_TEXT = 1000


def is_out_of_memory(torch: Torch, exception: BaseException | None) -> bool:
    """Whether the card was full."""
    types = [getattr(torch, "OutOfMemoryError", None), getattr(torch.cuda, "OutOfMemoryError", None)]
    return isinstance(exception, tuple(t for t in types if t))


def summary(value: object) -> str:
    """The first line of an exception's text, and the second where the first only announces it: what follows is advice or a list."""
    lines = [line.strip() for line in str(value).strip().splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    return text[:MOST_TEXT]


def described(torch: Torch, value: BaseException | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {
        "type": type(value).__name__,
        "text": summary(value),
        "out_of_memory": is_out_of_memory(torch, value),
    }
