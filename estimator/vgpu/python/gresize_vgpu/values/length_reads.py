"""Lengths that an operator reads from the card by itself: PyTorch's C++ copies them to the host where no Python function sees it."""
from __future__ import annotations

import functools

from ..process import guard

TYPE_CHECKING = False
if TYPE_CHECKING:  # types cost nothing at run time
    from typing import Any


def install(calls: Any) -> None:
    calls.replace(calls.torch, "ctc_loss", lambda original: _ctc(calls, original))


def _ctc(calls, original):
    shadow = calls.shadow

    @functools.wraps(original)
    def ctc_loss(log_probs, targets, input_lengths, target_lengths, *args, **kwargs):
        mirrors = []
        if shadow.on:
            try:
                mirrors = _mirrors(calls, log_probs, targets, input_lengths, target_lengths)
            except Exception:
                guard.complain()
        if not mirrors:
            return original(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)
        with shadow.showing(mirrors):
            return original(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)

    return ctc_loss


def _mirrors(calls, log_probs, targets, input_lengths, target_lengths):
    """What the lengths that are on the card hold, in the order in which they are read."""
    mirrors = []
    for lengths, make in (
        (input_lengths, lambda n: [log_probs.shape[0]] * n),
        (target_lengths, lambda n: _shares(calls, targets, n)),
    ):
        if not isinstance(lengths, calls.torch.Tensor) or not lengths.is_cuda:
            continue
        entry = calls.shadow.find_view(lengths)
        if entry is not None:
            if entry.taint.kind:
                calls.shadow.use("ctc_loss")
            mirrors.append(entry.mirror)
            continue
        calls.shadow.use("ctc_loss")
        count = make(lengths.numel())
        mirrors.append(calls.torch.tensor(count, dtype=lengths.dtype, device="cpu"))
    return mirrors


def _shares(calls, targets, n):
    """As many as a policy finds of padded targets; targets one behind the other are all somebody's."""
    if targets.dim() == 2:
        return [calls.shadow.policy.kept(targets.shape[1])] * n
    each = targets.numel() // max(n, 1)
    return [each] * (n - 1) + [targets.numel() - each * (n - 1)] if n else []
