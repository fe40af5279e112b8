"""What the native layer has seen XLA execute."""
from __future__ import annotations

import ctypes

from gresize_vgpu.process import native

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any, Callable

MOST = 4096
NAME_BYTES = 96
KNOWN_BYTES = 1024


class Computation(ctypes.Structure):
    """One program that XLA has compiled, as native/pjrt.c has it."""

    _fields_ = [
        ("loaded", ctypes.c_void_p),
        ("executions", ctypes.c_uint64),
        ("code_bytes", ctypes.c_int64),
        ("argument_bytes", ctypes.c_int64),
        ("output_bytes", ctypes.c_int64),
        ("alias_bytes", ctypes.c_int64),
        ("temporary_bytes", ctypes.c_int64),
        ("outputs", ctypes.c_uint64),
        ("name", ctypes.c_char * NAME_BYTES),
    ]

    def bytes(self) -> int:
        """What one execution needs beside what else there is."""
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.temporary_bytes

    def said(self) -> dict[str, Any]:
        said = {field: getattr(self, field) for field, *_ in self._fields_ if field not in ("loaded", "outputs")}
        said["name"] = self.name.decode("ascii", "replace")
        return said


def computations() -> list[Computation]:
    """In the order of their first executions."""
    layer = native.library()
    if layer is None:
        return []
    room = (Computation * MOST)()
    return list(room[: min(layer.gresize_pjrt_computations(room, MOST), MOST)])


def step(found: list[Computation]) -> int:
    """Which computation most bytes go through: a training step does so again and again, and what initialises a large model once. -1 where there is none."""
    return max(range(len(found)), key=lambda i: (found[i].bytes() * found[i].executions, found[i].executions), default=-1)  # an old release does not say the bytes


def largest(found: list[Computation]) -> int:
    """What one execution of the largest computation needs."""
    return max([c.bytes() for c in found], default=0)


def steps(found: list[Computation]) -> int:
    """How often the step was executed."""
    return int(found[step(found)].executions) if found else 0


class Told:
    """Has executions of at least so many bytes told to a function, in the thread that asks for them and behind each; it is given the number of the computation."""

    def __init__(self, function: Callable[[int], None]) -> None:
        self._kept = ctypes.CFUNCTYPE(None, ctypes.c_uint)(function)

    def begin(self, from_bytes: int) -> None:
        native.library().gresize_pjrt_tell(self._kept, ctypes.c_int64(from_bytes))

    @staticmethod
    def end() -> None:
        tell = getattr(native.library(), "gresize_pjrt_tell", None)
        if tell is not None:
            tell(None, ctypes.c_int64(0))


class Result(ctypes.Structure):
    """The value of one result of an execution; native/pjrt_known.h has the same."""

    _fields_ = [("output", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("age", ctypes.c_uint32), ("value", ctypes.c_ubyte * KNOWN_BYTES)]


FOLLOW = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_uint, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.POINTER(Result), ctypes.c_uint)


def known(handle: int | None, address: int = 0) -> tuple[bytes, int]:
    """The value of an array of few whole numbers, and its age: by its handle or, if no turns were left out since, by its address; empty where it is not known."""
    room, age = (ctypes.c_ubyte * KNOWN_BYTES)(), ctypes.c_uint32(0)
    ask = native.library().gresize_pjrt_known
    ask.restype = ctypes.c_size_t
    return ctypes.string_at(room, ask(ctypes.c_void_p(handle), ctypes.c_uint64(address), room, ctypes.byref(age))), age.value


class Counts:
    """executions of all computations; values and arrays that the host read; minor, the version of PJRT's interface, -1 where it was not seen; how long of the processor XLA compiled; the most
    bytes that the program asked for at once on its first card."""

    def __init__(self) -> None:
        layer = native.library()
        numbers = (ctypes.c_int64 * 6)(0, 0, 0, -1, 0, 0)
        if layer is not None:
            layer.gresize_pjrt_counts(numbers)
        self.executions, self.values, self.arrays, self.minor, nanos, self.asked_bytes = numbers
        self.compile_seconds = nanos / 1e9
