"""One training program of the tables of plans: program.py NAME, one of PROGRAMS. Random weights and data, plain PyTorch and torchvision."""
import functools
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


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
    """124 M parameters, or more; the output layer is the embedding."""

    def __init__(self, width=768, heads=12, layers=12, checkpointed=False):
        super().__init__()
        self.words, self.places = nn.Embedding(50257, width), nn.Embedding(1024, width)
        self.blocks, self.last = nn.Sequential(*[Block(width, heads) for _ in range(layers)]), nn.LayerNorm(width)
        self.checkpointed = checkpointed

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.checkpointed else block(h)
        return self.last(h) @ self.words.weight.t()


class Bert(nn.Module):
    """110 M parameters, in the sizes of BERT-base: which words were masked is learnt."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 12), nn.Linear(768, 30522)

    def forward(self, x):
        return self.out(self.layers(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))))


class T5(nn.Module):
    """61 M parameters, in the sizes of T5-small: an encoder and a decoder."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32128, 512)
        self.both = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)

    def forward(self, x):
        h = self.words(x)
        return self.both(h, h, tgt_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)) @ self.words.weight.t()


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


def train(model, batch, loss, optimizer, accumulate=1, half=False):
    model.cuda()
    update = optimizer(model.parameters())
    for _ in range(4):
        update.zero_grad()
        for _ in range(accumulate):
            data = [t.cuda() for t in batch()]
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
                value = loss(model, *data) / accumulate
            value.backward()
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


def guess(model, x, y):
    """Inception has a second output while it trains."""
    out, beside = model(x)
    return F.cross_entropy(out, y) + 0.4 * F.cross_entropy(beside, y)


def images(n, edge=224):
    return lambda: [torch.randn(n, 3, edge, edge), torch.randint(0, 1000, (n,))]


def words(n, length, most=50257):
    return lambda: [torch.randint(0, most, (n, length))]


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def vision(name, **options):
    import torchvision

    return torchvision.models.get_model(name, **options)


AdamW = torch.optim.AdamW
VISION = "alexnet", "squeezenet1_0", "vgg11", "vgg13", "vgg16", "vgg19", "resnet18", "resnet34", "resnet50", "resnet101"
PROGRAMS = {
    **{name: functools.partial(lambda name: train(vision(name), images(64), classify, sgd), name) for name in VISION},
    "resnet152": lambda: train(vision("resnet152"), images(32), classify, sgd, half=True),
    "densenet121": lambda: train(vision("densenet121"), images(32), classify, sgd),
    "inception": lambda: train(vision("inception_v3", init_weights=False), images(32, 299), guess, sgd),
    "mobilenet": lambda: train(vision("mobilenet_v2"), images(64), classify, sgd, accumulate=2),
    "vit": lambda: train(vision("vit_b_16"), images(64), classify, AdamW),
    "vit-half": lambda: train(vision("vit_b_16"), images(64), classify, AdamW, half=True),
    "bert": lambda: train(Bert(), words(16, 512, 30522), predict, AdamW, accumulate=2),
    "gpt2": lambda: train(GPT2(), words(8, 1024), predict, AdamW),
    "gpt2-774m": lambda: train(GPT2(1280, 20, 36, checkpointed=True), words(8, 1024), predict, AdamW),
    "t5": lambda: train(T5(), words(16, 512, 32128), predict, AdamW),
    "unet": lambda: train(UNet(), lambda: [torch.randn(8, 3, 256, 256), torch.randint(0, 2, (8, 256, 256))], classify, torch.optim.Adam),
    "lstm": lambda: train(LSTM(), words(64, 128, 10000), predict, lambda p: torch.optim.SGD(p, 1.0)),
    "dcgan": dcgan,
}

if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
    sys.exit("%s\n%s" % (__doc__, " ".join(PROGRAMS)))
PROGRAMS[sys.argv[1]]()
