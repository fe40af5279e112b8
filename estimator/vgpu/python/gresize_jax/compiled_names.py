"""Which names of the program's stand for something of JAX, or of a library on it: what is called by them may make arrays."""
from __future__ import annotations

import sys

from gresize_vgpu.program import own_files, program_frames

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from types import FrameType
    from typing import Any, Iterable

JAX = ("jax", "jaxlib")


def makers(frames: Iterable[FrameType]) -> set[str]:
    """frames: the program's functions that are running."""
    arrays = getattr(sys.modules["jax"], "Array", ())
    libraries = set(JAX)
    for name, module in list(sys.modules.items()):
        space = getattr(module, "__dict__", None)
        if type(space) is dict and not own_files.is_users(own_files.file_of(module)) and any(type(v) is type(sys) and v.__name__ in ("jax", "jax.numpy") for v in list(space.values())):
            libraries.add(name.split(".", 1)[0])
    spaces = [vars(module) for module in list(sys.modules.values()) if own_files.is_users(own_files.file_of(module))]
    spaces += [program_frames.names_of(frame) for frame in frames]
    return {name for space in spaces for name, value in list(space.items()) if not isinstance(value, arrays) and _of(value) & libraries}


def _of(value):
    """The libraries that something is of, or what it is made of."""
    modules: list[Any]
    if isinstance(value, type(sys)):
        modules = [value.__name__]
    elif isinstance(value, type):
        modules = [kind.__module__ for kind in value.__mro__]
    else:
        modules = [kind.__module__ for kind in type(value).__mro__] + [getattr(value, "__module__", None)]
    return {module.split(".", 1)[0] for module in modules if isinstance(module, str)}
