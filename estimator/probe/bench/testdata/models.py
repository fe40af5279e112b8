"""Training loops to be timed: models.py NAME DEVICE STEPS."""
import sys

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Gated(nn.Module):
    """The feed-forward of Llama."""

    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.between, self.feed = nn.LayerNorm(width), Gated(width, inner)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))


class Transformer(nn.Module):
    def __init__(self, layers, width, heads, inner, words):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*[Block(width, heads, inner) for _ in range(layers)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(10000, 512), nn.LSTM(512, 1024, 2, batch_first=True), nn.Linear(1024, 10000)

    def forward(self, x):
        return self.head(self.lstm(self.tokens(x))[0])


def images(name, batch):
    import torchvision

    model = getattr(torchvision.models, name)()
    return model, lambda device: (torch.randn(batch, 3, 224, 224, device=device), torch.randint(0, 1000, (batch,), device=device))


def words(model, batch, length, most):
    def data(device):
        x = torch.randint(0, most, (batch, length), device=device)
        return x, x

    return model, data


MODELS = {
    "resnet50": lambda: images("resnet50", 32),
    "mobilenet_v2": lambda: images("mobilenet_v2", 32),
    "vit_b_16": lambda: images("vit_b_16", 8),
    "gpt_124m": lambda: words(Transformer(12, 768, 12, 2048, 50257), 2, 512, 50257),
    "lstm": lambda: words(Recurrent(), 32, 64, 10000),
    # 1.1 thousand million parameters, built on the CPU in 32 bits: 4.4 GB of host memory before anything is trained.
    "llama_1b": lambda: words(Transformer(22, 2048, 32, 5632, 32000), 1, 2048, 32000),
}

name, device, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
model, data = MODELS[name]()
model.to(device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(steps):
    x, y = data(device)
    optimizer.zero_grad()
    logits = model(x)
    nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten()).backward()
    optimizer.step()
