"""Random programs by the recipe of GPUMemNet (arXiv 2602.17817), and their summaries.

A program is a flat dictionary of plain values ("spec"); the same spec is the same program everywhere. Row `index` of a kind depends on the
seed, the kind and the index alone. So that no class of memory is nearly empty, each row first draws the range in which its memory is to lie,
and then draws specs until a rough formula says that one does.

What differs from the published recipe, and why:
- Transformers: half of the vocabularies are of usual size (8 to 128 thousand), and half of the programs have their attention in plain layers (query, key,
  value, output), as those of Hugging Face do: published vocabularies go to a million, so that the embedding is nearly all of the network.
- Residual and dense ConvNets are kept: the published parser cannot count them, this one can.
- A third of the ConvNets are built in stages (blocks as in ResNet and MobileNet, some with squeeze and excitation, batches up to 128), some with a head of
  wide linear layers as in VGG, and transformers have up to 48 layers: a net answers only for what lies in the range of its training, and real networks are like that.
- The optimizer is Adam in half of the perceptrons and ConvNets, else SGD with or without momentum: the published nets know Adam alone, and call everything that.
"""
import math
import random

MIB = 1 << 20
KINDS = ("mlp", "cnn", "transformer")
# The optimizers, by the numbers that each keeps for a parameter.
STATES = (0, 1, 2, 2)
# In the order of the angle that stands for each in the features.
ACTIVATIONS = ("Identity", "ReLU", "LeakyReLU", "PReLU", "ELU", "SELU", "GELU", "Tanh", "SiLU", "Softplus", "Mish", "Sigmoid")
MOST_TRIES = 300
# Ranges of rough need, MiB, from which a row draws one.
RANGES = {
    "mlp": ((0, 300), (300, 1000), (1000, 2000), (2000, 3000), (3000, 4500)),
    "cnn": ((0, 4000), (4000, 8000), (8000, 16000), (16000, 24000), (24000, 32000), (32000, 40000), (40000, 70000), (70000, 700000)),
    "transformer": ((0, 4000), (4000, 8000), (8000, 16000), (16000, 24000), (24000, 32000), (32000, 40000), (40000, 70000)),
}


def draw(seed, kind, index):
    """The spec of one row."""
    rng = random.Random("%d/%s/%d" % (seed, kind, index))
    low, high = rng.choice(RANGES[kind])
    make, rough = {"mlp": (_mlp, _rough_mlp), "cnn": (_cnn, _rough_cnn), "transformer": (_transformer, _rough_transformer)}[kind]
    for _ in range(MOST_TRIES):
        spec = make(rng)
        spec["states"] = 2 if kind == "transformer" else rng.choice(STATES)
        if low <= rough(spec) / MIB < high:
            break
    return spec


def _share(s):
    """Of what Adam takes for each parameter, roughly: gradients, states and what a step makes."""
    return (0.55, 0.75, 1)[s["states"]]


# -- multi-layer perceptrons


def _mlp(rng):
    inputs = rng.randint(4, 4096)
    return {
        "kind": "mlp", "inputs": inputs, "outputs": rng.randint(1, max(1, inputs // 4)), "depth": rng.randint(1, 10),
        "shape": rng.choice(("pyramid", "uniform", "bottleneck", "gradual")), "batch": rng.randint(4, 1023), "activation": rng.choice(ACTIVATIONS),
        "batch_norm": rng.randint(0, 1), "dropout": rng.choice((0, 0.3)),
    }


def mlp_widths(s):
    """The widths of the hidden layers."""
    n, wide, narrow = s["depth"], s["inputs"], s["outputs"]
    if s["shape"] == "uniform":
        return [wide] * n
    if s["shape"] == "pyramid":
        return [max(narrow, wide >> (i + 1), 1) for i in range(n)]
    if s["shape"] == "gradual":
        return [max(1, round(wide + (narrow - wide) * (i + 1) / (n + 1))) for i in range(n)]
    return [max(1, wide >> min(i + 1, n - i)) for i in range(n)]  # bottleneck: narrow in the middle


def _rough_mlp(s):
    parameters = activations = 0
    last = s["inputs"]
    for width in mlp_widths(s) + [s["outputs"]]:
        parameters += last * width + width
        activations += width * (2 + s["batch_norm"] + (s["dropout"] > 0))
        last = width
    return 4 * (5.2 * _share(s) * parameters + 0.8 * activations * s["batch"])


# -- ConvNets


def _cnn(rng):
    if rng.randrange(3) == 0:
        return _stages(rng)
    return {
        "kind": "cnn", "channels": rng.choice((1, 3)), "classes": rng.randint(2, 1000), "depth": rng.randint(1, 29),
        "shape": rng.choice(("pyramid", "uniform", "bottleneck", "gradual", "hourglass", "residual", "dense")), "filters": rng.randint(16, 127),
        "batch": rng.randrange(2, 63, 2), "edge": rng.randrange(2, 225, 2), "activation": rng.choice(ACTIVATIONS[1:]),
        "batch_norm": rng.randint(0, 1), "dropout": rng.choice((0, 0.3)), "pool_every": rng.choice((0, 0, 3, 5, 8)), "growth": rng.choice((1.03, 1.1, 1.2, 1.35)),
    }


def _stages(rng):
    return {
        "kind": "cnn", "channels": 3, "classes": rng.randint(2, 1000), "shape": "stages", "block": rng.choice(("plain", "basic", "bottleneck", "inverted")),
        "blocks": ",".join(str(rng.randint(1, 8)) for _ in range(4)), "filters": rng.randrange(16, 97, 8), "squeeze": rng.choice((0, 0, 4)), "stem": rng.choice((1, 2, 4)),
        "batch": rng.randrange(2, 129, 2), "edge": rng.randrange(32, 257, 32), "activation": rng.choice(ACTIVATIONS[1:]), "batch_norm": rng.randint(0, 1),
        "dropout": rng.choice((0, 0, 0, 0.3)), "head": rng.choice((0, 0, 1024, 4096)),
    }


def stage_blocks(s):
    """(inputs, width inside, outputs, stride) of each block; its convolutions are those of block_convs."""
    last = s["filters"]
    for i, count in enumerate(int(n) for n in s["blocks"].split(",")):
        width = s["filters"] << i
        for k in range(count):
            stride = 2 if i and k == 0 else 1
            inside, out = {"bottleneck": (width, 4 * width), "inverted": (6 * last, width)}.get(s["block"], (width, width))
            yield last, inside, out, stride
            last = out


def block_convs(s, inputs, inside, outputs, stride):
    """(inputs, outputs, kernel, stride, groups) of each convolution of a block."""
    return {
        "plain": [(inputs, outputs, 3, stride, 1)],
        "basic": [(inputs, inside, 3, stride, 1), (inside, outputs, 3, 1, 1)],
        "bottleneck": [(inputs, inside, 1, 1, 1), (inside, inside, 3, stride, 1), (inside, outputs, 1, 1, 1)],
        "inverted": [(inputs, inside, 1, 1, 1), (inside, inside, 3, stride, inside), (inside, outputs, 1, 1, 1)],
    }[s["block"]]


def cnn_layers(s):
    """(filters, edge) of each convolution."""
    n, base, edge = s["depth"], s["filters"], s["edge"]
    layers = []
    for i in range(n):
        if s["shape"] in ("uniform", "dense", "residual"):
            filters = base if s["shape"] != "residual" else base << min(i // 6, 3)
        elif s["shape"] == "gradual":
            filters = base + i * max(1, base // 16)
        else:
            middle = {"pyramid": i, "hourglass": min(i, n - 1 - i), "bottleneck": -min(i, n - 1 - i)}[s["shape"]]
            filters = min(2048, max(4, int(base * s["growth"] ** middle)))
        if s["pool_every"] and i and i % s["pool_every"] == 0 and edge >= 4:
            edge //= 2
        layers.append((filters, edge))
    return layers


def _rough_stages(s):
    edge = s["edge"] // s["stem"]
    each = 2 + s["batch_norm"] + (s["dropout"] > 0)
    parameters, activations = 0, s["filters"] * edge * edge * each * (4 if s["stem"] == 4 else 1)
    for block in stage_blocks(s):
        for inputs, outputs, kernel, stride, groups in block_convs(s, *block):
            edge = max(1, edge // stride)
            parameters += inputs * outputs * kernel * kernel // groups
            activations += outputs * edge * edge * each
    if s["head"]:
        parameters += 49 * block[2] * s["head"] + s["head"] ** 2
    return 4 * (4.7 * _share(s) * parameters + 0.9 * activations * s["batch"])


def _rough_cnn(s):
    if s["shape"] == "stages":
        return _rough_stages(s)
    parameters = activations = 0
    last = s["channels"]
    for i, (filters, edge) in enumerate(cnn_layers(s)):
        parameters += 9 * last * filters
        activations += filters * edge * edge * (2 + s["batch_norm"] + (s["dropout"] > 0))
        if s["shape"] == "dense":
            activations += last * edge * edge
        last = last + filters if s["shape"] == "dense" else filters
    return 4 * (4.7 * _share(s) * parameters + 0.9 * activations * s["batch"])


# -- transformers


def _transformer(rng):
    width = rng.choice((128, 256, 384, 512, 768, 1024, 1280, 1600, 2048))
    own = rng.randint(0, 1)
    return {
        "kind": "transformer", "classes": rng.randint(2, 1000), "width": width, "depth": rng.randint(2, 48),
        "heads": rng.choice([h for h in (2, 4, 8, 12, 16) if width % h == 0]), "feed_forward": int(width * rng.uniform(2, 4)),
        "sequence": rng.choice((128, 256, 512, 1024)), "vocabulary": rng.randint(50000, 1000000) if rng.randint(0, 1) else int(math.exp(rng.uniform(math.log(8000), math.log(128000)))),
        "batch": rng.choice((1, 2, 4, 8, 16, 32, 64, 128)), "dropout": rng.choice((0, 0.1)),
        # own: attention in plain layers, as in Hugging Face's models; eager: with the matrix of probabilities; tokens: a word a place, not a class a text
        "own": own, "eager": rng.randint(0, 1) if own else 0, "tokens": rng.randint(0, 1) if own else 0,
    }


def _rough_transformer(s):
    places = s["batch"] * s["sequence"]
    parameters = s["depth"] * (4 * s["width"] ** 2 + 2 * s["width"] * s["feed_forward"]) + s["vocabulary"] * s["width"]
    activations = places * s["depth"] * (11 * s["width"] + 2 * s["feed_forward"])
    if s["eager"]:
        activations += 3 * s["batch"] * s["heads"] * s["sequence"] ** 2 * s["depth"]
    if s["tokens"]:
        activations += 3 * places * s["vocabulary"]
    return 4 * (4.6 * _share(s) * parameters + activations)


# -- models: torch is imported where it is needed, for the specs need none


def build(s):
    """The model of a spec, and the shape and type of its input."""
    from models import CNN, MLP, Stages, Transformer

    if s["kind"] == "mlp":
        return MLP(s), (s["batch"], s["inputs"]), "float32"
    if s["kind"] == "cnn":
        return (Stages if s["shape"] == "stages" else CNN)(s), (s["batch"], s["channels"], s["edge"], s["edge"]), "float32"
    return Transformer(s), (s["batch"], s["sequence"]), "int64"


def summary(s):
    """What a printed summary of the model of a spec says."""
    import torch

    with torch.device("meta"):
        model, shape, dtype = build(s)
        inputs = torch.empty(shape, dtype=getattr(torch, dtype))
    return layers_of(model, s["batch"], lambda: model(inputs))


def layers_of(model, batch, forward):
    """(kind of layer, outputs for one sample, parameters) of each layer, in the order of the forward pass."""
    import torch

    layers = []

    def seen(module, args, output):
        output = output[0] if isinstance(output, tuple) else output
        own = module.parameters(recurse=isinstance(module, torch.nn.MultiheadAttention))
        layers.append((type(module).__name__, output.numel() // batch, sum(p.numel() for p in own)))

    for module in model.modules():
        if isinstance(module, torch.nn.MultiheadAttention) or type(module).__name__ == "BatchNormAct2d" or not list(module.children()):
            module.register_forward_hook(seen)
    forward()
    return layers
