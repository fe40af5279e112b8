"""What PyTorch's allocator says of itself, in each release."""
from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time

    from gresize_types import Torch

_fractions = {}  # device -> fraction, where PyTorch does not tell


def hook_memory_fraction(torch: Torch) -> None:
    """Remember what a program allows itself, where it cannot be asked for: before 2.5."""
    if hasattr(torch.cuda.memory, "get_per_process_memory_fraction"):
        return
    original = torch.cuda.memory.set_per_process_memory_fraction

    @functools.wraps(original)
    def remember(fraction, device=None):
        result = original(fraction, device)
        index = torch.device(device).index if isinstance(device, str) else getattr(device, "index", device)
        _fractions[torch.cuda.current_device() if index is None else index] = float(fraction)
        return result

    torch.cuda.memory.set_per_process_memory_fraction = torch.cuda.set_per_process_memory_fraction = remember


def memory_fraction(torch: Torch, device: int) -> float:
    """The part of a card that the program allows itself."""
    current = torch.cuda.current_device()
    try:
        return torch.cuda.memory.get_per_process_memory_fraction(device)
    except Exception:  # older releases cannot be asked
        return _fractions.get(device, 1.0)
    finally:
        torch.cuda.set_device(current)  # PyTorch 2.6 makes the device that it is asked about the current one


def memory_stats(torch: Torch, device: int) -> dict[str, int]:
    """The allocator's counters; none where the program put an allocator of its own in its place, which only the native layer sees."""
    try:
        return torch.cuda.memory_stats(device)
    except RuntimeError:
        return {}
