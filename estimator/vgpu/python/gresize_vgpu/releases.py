"""What differs between the releases of PyTorch: questions that the older ones cannot answer."""
import functools

_fractions = {}  # device -> fraction, where PyTorch does not tell


def hook_memory_fraction(torch):
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


def memory_fraction(device):
    """The part of a card that the program allows itself, as it was remembered."""
    return _fractions.get(device, 1.0)
