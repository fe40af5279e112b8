"""The native layer in this process, as ctypes reaches it: reads of the card, checks that pass, values that the host knows."""
from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any

_native: Any = None


def library() -> Any:
    """The native layer that is already in this process; None when no library was replaced."""
    global _native
    if _native is None:
        try:
            # RTLD_NOLOAD: opening it anew would put a second state beside the one in use.
            _native = ctypes.CDLL("libgresize-vgpu.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            _native.gresize_vgpu_values_read_back.restype = ctypes.c_uint64
            _native.gresize_vgpu_unknown_reads.restype = ctypes.c_uint64
            _native.gresize_vgpu_arrays_read_back.restype = ctypes.c_uint64
        except (OSError, AttributeError):
            _native = False
    return _native or None


def values_read_back(watched: int) -> int:
    """Small reads of what a kernel would have computed, but those whose use is watched."""
    return max(0, all_reads() - watched)


def unknown_reads() -> int:
    """Reads of any size of what a kernel would have computed."""
    native = library()
    return int(native.gresize_vgpu_unknown_reads()) if native else 0


def arrays_read_back() -> int:
    """Reads of more than a few numbers, of what a kernel would have computed."""
    native = library()
    return int(native.gresize_vgpu_arrays_read_back()) if native else 0


def all_reads() -> int:
    """Small reads of what a kernel would have computed."""
    native = library()
    return int(native.gresize_vgpu_values_read_back()) if native else 0


def peek(to: Any, address: int, size: int) -> bool:
    """Copy what the host, or another rank, has put at an address of the card; False where a kernel may have written there since."""
    native = library()
    give = getattr(native, "gv_peek", None)
    if give is None:
        return False
    give.restype = ctypes.c_bool
    return give(to, ctypes.c_void_p(address), ctypes.c_size_t(size))


def let_checks_pass(on: bool) -> None:
    """Whether one byte that C++ asks for, and that a kernel would have computed, reads as true."""
    give = getattr(library(), "gresize_vgpu_checks_pass", None)
    if give is not None:
        give(bool(on))


def flush() -> None:
    native = library()
    if native:
        native.gresize_vgpu_flush()
