"""Least squares: what a program reserves as a sum of what its layers hold, each with a factor. estimator/methods/gpumemnet/sums.go is the same in Go.

A training step keeps outputs, gradients and states, and what it needs beside them is of the size of its largest layers. Factors below zero are left out one by
one. Rows that the sum misses by far weigh less, so that a few odd programs do not bend the rest.
"""
import torch

import features

MIB = 1 << 20
BYTES = 4  # fp32
ROUNDS = 10
# Below this many MiB a row weighs as one of this many: its share of an error is noise.
LEAST_MIB = 200.0
# A row that is missed by more than this weighs less.
MISS = 0.03
# How the true figure of a row that was not fitted lies to the sum: so many of these ratios go with the weights.
RATIOS = 41


def names(kind):
    return ["constant"] + ["outputs of " + token for token in features.TOKENS[kind]] + ["parameters", "states", "largest outputs", "largest parameters", "largest outputs of two"]


def terms(kind, layers, batch, states):
    """In MiB."""
    tokens = features.tokens(kind, layers)
    outputs, parameters = [t[1] * batch for t in tokens], [t[2] for t in tokens]
    of_kind = [sum(o for o, t in zip(outputs, tokens) if t[0] == place) for place in range(len(features.TOKENS[kind]))]
    two = max([a + b for a, b in zip(outputs, outputs[1:])] or outputs)
    numbers = of_kind + [sum(parameters), sum(parameters) * states, max(outputs), max(parameters), two]
    return [1.0] + [n * BYTES / MIB for n in numbers]


def fit(x, y):
    """The factors, of rows of terms and of MiB."""
    share = 1 / y.clamp_min(LEAST_MIB)
    weight = share
    for _ in range(ROUNDS):
        factors = _not_below_zero(x * weight[:, None], y * weight)
        miss = (x @ factors - y).abs() * share
        weight = share / (miss.clamp_min(MISS) / MISS).sqrt()
    return factors


def _not_below_zero(x, y):
    kept = list(range(x.shape[1]))
    while True:
        solved = torch.linalg.lstsq(x[:, kept], y[:, None], driver="gelsd").solution[:, 0]
        if not len(kept) or solved.min() >= 0:
            break
        del kept[int(solved.argmin())]
    factors = torch.zeros(x.shape[1], dtype=x.dtype)
    factors[kept] = solved
    return factors


def ratios(truth, sums):
    """From the smallest to the largest."""
    return torch.quantile(truth / sums, torch.linspace(0, 1, RATIOS, dtype=truth.dtype)).tolist()
