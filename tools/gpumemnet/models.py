"""The networks of programs.py."""
import torch
from torch import nn
from torch.nn import functional

from programs import block_convs, cnn_layers, mlp_widths, stage_blocks


def _after(s, normalised):
    """What follows a layer of weights."""
    layers = [normalised] if s["batch_norm"] else []
    layers.append(getattr(nn, s["activation"])())
    if s["dropout"]:
        layers.append(nn.Dropout(s["dropout"]))
    return layers


class MLP(nn.Module):
    def __init__(self, s):
        super().__init__()
        layers, last = [], s["inputs"]
        for width in mlp_widths(s):
            layers += [nn.Linear(last, width)] + _after(s, nn.BatchNorm1d(width))
            last = width
        self.layers = nn.Sequential(*layers, nn.Linear(last, s["outputs"]), nn.Softmax(1))

    def forward(self, x):
        return self.layers(x)


class CNN(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.shape = s["shape"]
        self.blocks = nn.ModuleList()
        last, edge = s["channels"], s["edge"]
        for filters, next_edge in cnn_layers(s):
            layers = [nn.MaxPool2d(2)] if next_edge < edge else []
            self.blocks.append(nn.Sequential(*layers, nn.Conv2d(last, filters, 3, 1, 1), *_after(s, nn.BatchNorm2d(filters))))
            if self.shape == "residual":
                self.blocks[-1].shortcut = nn.Sequential(*layers, nn.Conv2d(last, filters, 1)) if layers or last != filters else nn.Identity()
            last = last + filters if self.shape == "dense" else filters
            edge = next_edge
        self.average = nn.AdaptiveAvgPool2d((1, 1))
        self.classes = nn.Linear(last, s["classes"])
        self.softmax = nn.Softmax(1)

    def _block(self, block, x):
        out = x
        for name, layer in block.named_children():
            if name != "shortcut":
                out = layer(out)
        if self.shape == "residual":
            return out + block.shortcut(x)
        if self.shape == "dense":
            if out.shape[-1] < x.shape[-1]:
                x = functional.max_pool2d(x, 2)
            return torch.cat((x, out), 1)
        return out

    def forward(self, x):
        for block in self.blocks:
            x = self._block(block, x)
        return self.softmax(self.classes(torch.flatten(self.average(x), 1)))


class Squeeze(nn.Module):
    """Squeeze and excitation: the planes are weighed by what their averages say."""

    def __init__(self, planes, share):
        super().__init__()
        narrow = max(1, planes // share)
        self.average, self.narrow, self.relu, self.wide, self.gate = nn.AdaptiveAvgPool2d(1), nn.Conv2d(planes, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, planes, 1), nn.Sigmoid()

    def forward(self, x):
        return x * self.gate(self.wide(self.relu(self.narrow(self.average(x)))))


class Block(nn.Module):
    """One block of a stage, with a way past it unless the network is plain."""

    def __init__(self, s, inputs, inside, outputs, stride):
        super().__init__()
        layers = []
        for a, b, kernel, step, groups in block_convs(s, inputs, inside, outputs, stride):
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, groups=groups, bias=not s["batch_norm"])] + _after(s, nn.BatchNorm2d(b))
        if s["squeeze"]:
            layers.append(Squeeze(outputs, s["squeeze"]))
        self.layers = nn.Sequential(*layers)
        self.past = None
        if s["block"] == "inverted":
            self.past = nn.Identity() if stride == 1 and inputs == outputs else None
        elif s["block"] != "plain":
            self.past = nn.Identity() if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        return self.layers(x) if self.past is None else self.layers(x) + self.past(x)


class Stages(nn.Module):
    def __init__(self, s):
        super().__init__()
        stem = [nn.Conv2d(s["channels"], s["filters"], 7 if s["stem"] > 1 else 3, min(s["stem"], 2), 3 if s["stem"] > 1 else 1)] + _after(s, nn.BatchNorm2d(s["filters"]))
        if s["stem"] == 4:
            stem.append(nn.MaxPool2d(3, 2, 1))
        blocks = list(stage_blocks(s))
        self.layers = nn.Sequential(*stem, *(Block(s, *block) for block in blocks))
        last, pooled = blocks[-1][2], 7 if s["head"] else 1
        self.average = nn.AdaptiveAvgPool2d((pooled, pooled))
        head = []
        if s["head"]:
            head = [nn.Linear(49 * last, s["head"]), nn.ReLU(), nn.Dropout(0.5), nn.Linear(s["head"], s["head"]), nn.ReLU(), nn.Dropout(0.5)]
            last = s["head"]
        self.classes = nn.Sequential(*head, nn.Linear(last, s["classes"]))

    def forward(self, x):
        return self.classes(torch.flatten(self.average(self.layers(x)), 1))


class OwnAttention(nn.Module):
    """Attention whose layers stand alone in the module tree."""

    def __init__(self, s):
        super().__init__()
        self.heads, self.eager = s["heads"], s["eager"]
        self.query, self.key, self.value, self.output = (nn.Linear(s["width"], s["width"]) for _ in range(4))
        self.softmax = nn.Softmax(-1) if self.eager else None
        self.dropout = nn.Dropout(s["dropout"])

    def forward(self, x):
        batch, places, width = x.shape
        q, k, v = (f(x).view(batch, places, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        if self.eager:
            scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
            x = self.dropout(self.softmax(scores)) @ v
        else:
            x = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout.p)
        return self.output(x.transpose(1, 2).reshape(batch, places, width))


class OwnLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.attention = OwnAttention(s)
        self.norm1, self.norm2 = nn.LayerNorm(s["width"]), nn.LayerNorm(s["width"])
        self.wide, self.gelu, self.narrow = nn.Linear(s["width"], s["feed_forward"]), nn.GELU(), nn.Linear(s["feed_forward"], s["width"])
        self.dropout1, self.dropout2 = nn.Dropout(s["dropout"]), nn.Dropout(s["dropout"])

    def forward(self, x):
        x = self.norm1(x + self.dropout1(self.attention(x)))
        return self.norm2(x + self.dropout2(self.narrow(self.gelu(self.wide(x)))))


class Transformer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.tokens = s["tokens"]
        self.words = nn.Embedding(s["vocabulary"], s["width"])
        self.places = nn.Embedding(s["sequence"], s["width"])
        if s["own"]:
            self.layers = nn.ModuleList(OwnLayer(s) for _ in range(s["depth"]))
        else:
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(s["width"], s["heads"], s["feed_forward"], s["dropout"], batch_first=True) for _ in range(s["depth"])
            )
        self.classes = nn.Linear(s["width"], s["vocabulary"] if s["tokens"] else s["classes"])

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        x = self.words(ids) + self.places(places)
        for layer in self.layers:
            x = layer(x)
        x = self.classes(x if self.tokens else x.mean(1))
        return x.transpose(1, 2) if self.tokens else x
