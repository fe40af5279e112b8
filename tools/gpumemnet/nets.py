"""The two nets of GPUMemNet: an ensemble of small perceptrons, and an ensemble of small encoders that have one such ensemble each as their head."""
import torch
from torch import nn

MEMBERS = {"mlp": (1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6), "cnn": (1, 2, 3, 4, 5, 6, 7, 8) * 2, "transformer": (1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6)}
ENCODERS = ((6, 3), (4, 2))  # width, layers
FEED_FORWARD = 4
WIDEST, NARROWEST = 8, 4


class Ensemble(nn.Module):
    """Perceptrons of several depths, Linear-BatchNorm-ReLU; the answer is the mean of their logits.

    All have the same widths, so that those still going at a level are computed together: levels[k] holds [members, inputs, outputs].
    """

    def __init__(self, inputs, depths, classes):
        super().__init__()
        self.depths = sorted(depths, reverse=True)
        self.levels, self.biases, self.norms, self.lasts = nn.ParameterList(), nn.ParameterList(), nn.ModuleList(), nn.ModuleList()
        last, width = inputs, WIDEST
        for level in range(self.depths[0]):
            members = sum(depth > level for depth in self.depths)
            bound = last ** -0.5
            self.levels.append(torch.empty(members, last, width).uniform_(-bound, bound))
            self.biases.append(torch.empty(members, 1, width).uniform_(-bound, bound))
            self.norms.append(nn.BatchNorm1d(members * width))
            last, width = width, max(NARROWEST, width // 2)
        self.lasts = nn.ModuleList(nn.Linear(WIDEST if depth == 1 else NARROWEST, classes) for depth in self.depths)

    def forward(self, x, tokens=None, counts=None):
        logits = 0
        hidden = x.expand(self.levels[0].shape[0], *x.shape)
        for level, (weight, bias, norm) in enumerate(zip(self.levels, self.biases, self.norms)):
            members, _, width = weight.shape
            hidden = torch.baddbmm(bias, hidden[:members], weight)
            hidden = norm(hidden.transpose(0, 1).reshape(len(x), members * width)).relu().view(len(x), members, width).transpose(0, 1)
            for i in range(members):
                if self.depths[i] == level + 1:
                    logits = logits + self.lasts[i](hidden[i])
        return logits / len(self.depths)


class Encoder(nn.Module):
    def __init__(self, scalars, token, width, layers, depths, classes):
        super().__init__()
        self.inputs = nn.Linear(token, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 1, FEED_FORWARD, 0.0, batch_first=True) for _ in range(layers))
        self.head = Ensemble(width + scalars, depths, classes)

    def forward(self, x, tokens, counts):
        """tokens holds equal ones once, counts how many there are of each, 0 for padding.

        No place is told apart, so equal tokens have equal answers: attention to n of them is that to one with log n added to its score,
        and their sum is n times one. A network of many equal layers costs no more than one of few.
        """
        t = self.inputs(tokens)
        scores = counts.log()
        for layer in self.layers:
            t = layer(t, src_key_padding_mask=scores)
        pooled = (t * counts.unsqueeze(2)).sum(1)
        return self.head(torch.cat((pooled, x), 1))


class Encoders(nn.Module):
    def __init__(self, scalars, token, depths, classes):
        super().__init__()
        self.encoders = nn.ModuleList(Encoder(scalars, token, width, layers, depths, classes) for width, layers in ENCODERS)

    def forward(self, x, tokens, counts):
        return torch.stack([encoder(x, tokens, counts) for encoder in self.encoders]).mean(0)


def make(which, kind, scalars, token, classes):
    if which == "mlp":
        return Ensemble(scalars, MEMBERS[kind], classes)
    return Encoders(scalars, token, MEMBERS[kind], classes)


# -- the weights file, docs/gpumemnet.md


def _linear(layer):
    return {"weight": layer.weight.tolist(), "bias": layer.bias.tolist()}


def _norm(layer):
    return {"weight": layer.weight.tolist(), "bias": layer.bias.tolist(), "eps": layer.eps}


def _members(ensemble):
    members = []
    for i, depth in enumerate(ensemble.depths):
        layers = []
        for level in range(depth):
            weight, norm = ensemble.levels[level], ensemble.norms[level]
            width = weight.shape[2]
            own = slice(i * width, (i + 1) * width)
            layers.append({
                "linear": {"weight": weight[i].t().tolist(), "bias": ensemble.biases[level][i, 0].tolist()},
                "batch_norm": {
                    "weight": norm.weight[own].tolist(), "bias": norm.bias[own].tolist(), "eps": norm.eps, "mean": norm.running_mean[own].tolist(),
                    "variance": norm.running_var[own].tolist(),
                },
            })
        members.append(layers + [{"linear": _linear(ensemble.lasts[i])}])
    return members


def _encoder(encoder):
    layers = []
    for layer in encoder.layers:
        attention = layer.self_attn
        layers.append({
            "in": {"weight": attention.in_proj_weight.tolist(), "bias": attention.in_proj_bias.tolist()}, "out": _linear(attention.out_proj),
            "wide": _linear(layer.linear1), "narrow": _linear(layer.linear2), "norm1": _norm(layer.norm1), "norm2": _norm(layer.norm2),
        })
    return {"inputs": _linear(encoder.inputs), "layers": layers, "head": _members(encoder.head)}


def dump(net):
    """The weights as plain values: a list of members, or of encoders."""
    return _members(net) if isinstance(net, Ensemble) else [_encoder(e) for e in net.encoders]
