"""What GPUMemNet's nets see of a program: scalars and a sequence of tokens, made from its list of layers. estimator/methods/gpumemnet/features.go is the same in Go."""
import math

import programs

# The kind of token for each class of layer that the nets know.
LAYERS = {
    "Linear": "linear", "Conv1D": "linear", "Conv2d": "conv2d", "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm", "LayerNorm": "layer_norm",
    "Dropout": "dropout", "MultiheadAttention": "attention", "Embedding": "embedding", "MaxPool2d": "pool", "AvgPool2d": "pool",
    "AdaptiveAvgPool2d": "pool", "Softmax": "activation", "LogSoftmax": "activation", "ReLU6": "activation", "GELUActivation": "activation",
    "NewGELUActivation": "activation", "QuickGELUActivation": "activation", "BatchNormAct2d": "batch_norm",
    "StochasticDepth": "dropout", "DropPath": "dropout", "LayerNorm2d": "batch_norm", "GroupNorm": "batch_norm", "Hardswish": "activation", "Hardsigmoid": "activation",
}
LAYERS.update((name, "activation") for name in programs.ACTIVATIONS)
# Which of the published activation functions a class stands for.
FUNCTIONS = dict({name: name for name in programs.ACTIVATIONS}, ReLU6="ReLU", GELUActivation="GELU", NewGELUActivation="GELU", QuickGELUActivation="GELU")

TOKENS = {
    "mlp": ("linear", "batch_norm", "activation", "dropout"),
    "cnn": ("conv2d", "batch_norm", "activation", "dropout", "linear", "pool"),
    "transformer": ("linear", "layer_norm", "dropout", "attention", "embedding", "activation"),
}
COUNTS = {
    "mlp": ("batch_norm", "dropout"),
    "cnn": ("conv2d", "batch_norm", "dropout"),
    "transformer": ("linear", "layer_norm", "dropout", "attention"),
}
DEPTH = {"mlp": "linear", "cnn": "conv2d", "transformer": "layer_norm"}


def names(kind):
    return ["depth", "activations", "activations_batch", "parameters", "batch", "optimizer_states"] + list(COUNTS[kind]) + ["function_sin", "function_cos"]


def listed(kind, layers):
    """The layers that count. An Identity is an activation function in an MLP, and elsewhere nothing."""
    return [l for l in layers if l[0] != "Flatten" and (kind == "mlp" or l[0] != "Identity")]


def scalars(kind, layers, batch, states):
    """The published features, and the numbers that the optimizer keeps for each parameter, as counted: nothing is scaled here."""
    layers = listed(kind, layers)
    count = lambda token: sum(LAYERS[l[0]] == token for l in layers)
    activations = sum(l[1] for l in layers)
    used = [FUNCTIONS[l[0]] for l in layers if l[0] in FUNCTIONS]
    function = max(programs.ACTIVATIONS, key=lambda name: (used.count(name), -programs.ACTIVATIONS.index(name)))
    angle = programs.ACTIVATIONS.index(function) * math.pi / len(programs.ACTIVATIONS)
    depth = count(DEPTH[kind])
    return [depth, activations, activations * batch, sum(l[2] for l in layers), batch, states] + [count(c) for c in COUNTS[kind]] + [math.sin(angle), math.cos(angle)]


def tokens(kind, layers):
    """(place of the kind of layer, outputs for one sample, parameters) of each layer."""
    return [(TOKENS[kind].index(LAYERS[name]), activations, parameters) for name, activations, parameters in listed(kind, layers)]


def unpack(text):
    """The layers of a row that label.py wrote."""
    return [(name, int(a), int(p)) for name, a, p in (l.split(":") for l in text.split())]
