"""One training program of the planning table: program.py resnet50|gpt2|vit|unet|lstm|dcgan. Random weights and data, plain PyTorch and torchvision."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """A transformer block as in GPT-2."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.mlp(self.after(x))


class GPT2(nn.Module):
    """124 M parameters; the output layer is the embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.blocks, self.last = nn.Sequential(*[Block(768, 12) for _ in range(12)]), nn.LayerNorm(768)

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.last(self.blocks(h)) @ self.words.weight.t()


def double(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [64, 128, 256, 512]
        self.down = nn.ModuleList(double(i, o) for i, o in zip([3] + sizes[:-1], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in sizes[-2::-1])
        self.join = nn.ModuleList(double(2 * o, o) for o in sizes[-2::-1])
        self.out = nn.Conv2d(64, 2, 1)

    def forward(self, x):
        kept = []
        for i, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat([up(x), skip], 1))
        return self.out(x)


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(10000, 650), nn.LSTM(650, 650, 2, batch_first=True), nn.Linear(650, 10000)

    def forward(self, x):
        return self.out(self.lstm(self.words(x))[0])


def train(model, batch, loss, optimizer):
    model.cuda()
    update = optimizer(model.parameters())
    for _ in range(4):
        data = [t.cuda() for t in batch()]
        update.zero_grad()
        loss(model, *data).backward()
        update.step()


def dcgan():
    def layer(i, o, stride, pad):
        return [nn.ConvTranspose2d(i, o, 4, stride, pad, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

    def critic(i, o):
        return [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2)]

    make = nn.Sequential(*layer(100, 512, 1, 0), *layer(512, 256, 2, 1), *layer(256, 128, 2, 1), *layer(128, 64, 2, 1), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).cuda()
    judge = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), *critic(64, 128), *critic(128, 256), *critic(256, 512), nn.Conv2d(512, 1, 4)).cuda()
    makes, judges = torch.optim.Adam(make.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)
    one, zero = torch.ones(128, device="cuda"), torch.zeros(128, device="cuda")
    for _ in range(4):
        real, fake = torch.randn(128, 3, 64, 64).cuda(), make(torch.randn(128, 100, 1, 1, device="cuda"))
        judges.zero_grad()
        loss = F.binary_cross_entropy_with_logits(judge(real).flatten(), one) + F.binary_cross_entropy_with_logits(judge(fake.detach()).flatten(), zero)
        loss.backward()
        judges.step()
        makes.zero_grad()
        F.binary_cross_entropy_with_logits(judge(fake).flatten(), one).backward()
        makes.step()


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def predict(model, x):
    return F.cross_entropy(model(x).flatten(0, 1), x.flatten())


def images(n):
    return lambda: [torch.randn(n, 3, 224, 224), torch.randint(0, 1000, (n,))]


def main(name):
    if name in ("resnet50", "vit"):
        import torchvision

        model = torchvision.models.resnet50() if name == "resnet50" else torchvision.models.vit_b_16()
        sgd = lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)
        train(model, images(64), classify, sgd if name == "resnet50" else torch.optim.AdamW)
    elif name == "gpt2":
        train(GPT2(), lambda: [torch.randint(0, 50257, (8, 1024))], predict, torch.optim.AdamW)
    elif name == "unet":
        train(UNet(), lambda: [torch.randn(8, 3, 256, 256), torch.randint(0, 2, (8, 256, 256))], classify, torch.optim.Adam)
    elif name == "lstm":
        train(LSTM(), lambda: [torch.randint(0, 10000, (64, 128))], predict, lambda p: torch.optim.SGD(p, 1.0))
    elif name == "dcgan":
        dcgan()
    else:
        sys.exit(__doc__)


main(sys.argv[1] if len(sys.argv) == 2 else "")
