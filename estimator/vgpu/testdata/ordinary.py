"""Ordinary training programs whose later epochs, stages or ends need more than their first steps, as people write them: ordinary.py CASE. Each ends by itself."""
import copy
import math
import random
import sys
import tempfile
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset, get_worker_info

device = torch.device("cuda")
WIDTH, EPOCHS = 512, 12


def mlp(width=WIDTH, depth=2):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers).to(device)


def train_step(model, optimizer, x, loss_fn=lambda out: out.square().mean()):
    optimizer.zero_grad()
    loss = loss_fn(model(x))
    loss.backward()
    optimizer.step()
    return loss


# -- lengths and sizes by the epoch


class Texts(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        return torch.zeros(1024, dtype=torch.long)


class Truncate:
    max_length = 64

    def __call__(self, rows):
        return torch.stack([row[: self.max_length] for row in rows])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(1000, 256), nn.Linear(256, 1000)

    def forward(self, ids):
        return self.out(self.embed(ids))


def curriculum_of_lengths():
    """The collate function cuts to a length that grows with the epoch."""
    collate, model = Truncate(), Tagger().to(device)
    loader = DataLoader(Texts(), batch_size=32, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(12):
        collate.max_length = min(64 + 96 * epoch, 1024)
        for ids in loader:
            train_step(model, optimizer, ids.to(device))


class Pictures(Dataset):
    def __init__(self, size=64):
        self.size = size

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.zeros(3, self.size, self.size)


class Resize:
    """Progressive resizing, as a callback."""

    def __init__(self, dataset, plan):
        self.dataset, self.plan = dataset, plan

    def on_epoch_begin(self, epoch):
        if epoch in self.plan:
            self.dataset.size = self.plan[epoch]


def progressive_resizing():
    data = Pictures()
    callbacks = [Resize(data, {6: 128, 8: 224, 10: 288})]
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.AdaptiveAvgPool2d(1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data, batch_size=32, shuffle=True)
    for epoch in range(EPOCHS):
        for callback in callbacks:
            callback.on_epoch_begin(epoch)
        for x in loader:
            train_step(model, optimizer, x.to(device))


def table_of_stages():
    """A table has the epochs from which on another size and batch are used; the last stage is small again."""
    stages = {0: (32, 64), 53: (64, 64), 137: (256, 64), 141: (32, 64)}
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *[nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()) for _ in range(30)]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(300):
        if epoch in stages:
            size, batch = stages[epoch]
            loader = DataLoader(Pictures(size), batch_size=batch, shuffle=True)
        for _ in range(4):
            for x in loader:
                train_step(model, optimizer, x.to(device))


def sequence_warmup():
    """Lengths by a step counter, cut on the card."""
    model, step, total = Tagger().to(device), 0, 600
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.zeros(64, 1024, dtype=torch.long)
    while step < total:
        length = min(1024, 64 + step // 10 * 16)
        train_step(model, optimizer, ids[:, :length].to(device))
        step += 1


def batch_warmup():
    """The batch grows with the tokens that were seen."""
    model, seen, goal = mlp(), 0, 2_000_000
    optimizer = torch.optim.AdamW(model.parameters())
    while seen < goal:
        size = 256 + 4096 * int(4 * seen / goal)
        train_step(model, optimizer, torch.zeros(size, WIDTH, device=device))
        seen += size


class Growing(IterableDataset):
    """set_epoch, as Transformers and WebDataset ask for it."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for _ in range(256):
            yield torch.zeros(64 * (1 + self.epoch), WIDTH)


def stream_of_an_epoch():
    data, model = Growing(), mlp()
    loader, optimizer = DataLoader(data, batch_size=16), torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(16):
        data.set_epoch(epoch)
        for x in loader:
            train_step(model, optimizer, x.to(device))


# -- other networks later


def ema_late():
    model, ema = mlp(2048), None
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.zeros(512, 2048)), batch_size=32)
    for epoch in range(EPOCHS):
        for (x,) in loader:
            train_step(model, optimizer, x.to(device))
            if ema is not None:
                ema.update_parameters(model)
        if epoch == 8:
            ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))


def swa():
    """Averaged from three quarters of the training on, with a pass for its batch norms at the end."""
    model = nn.Sequential(nn.Linear(2048, 2048), nn.BatchNorm1d(2048), nn.Linear(2048, 2048)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loader = DataLoader(torch.zeros(512, 2048), batch_size=32)
    start, average = int(0.75 * EPOCHS), None
    for epoch in range(EPOCHS):
        for x in loader:
            train_step(model, optimizer, x.to(device))
        if epoch >= start:
            if average is None:
                average = torch.optim.swa_utils.AveragedModel(model)
            average.update_parameters(model)
    torch.optim.swa_utils.update_bn(loader, average, device=device)


def distillation():
    """The teacher is loaded once the student has warmed up."""
    student, teacher = mlp(), None
    optimizer = torch.optim.AdamW(student.parameters())
    loader = DataLoader(torch.zeros(1024, WIDTH), batch_size=32, shuffle=True)
    for epoch in range(EPOCHS):
        if epoch == 8:
            teacher = mlp(WIDTH, 60).eval().requires_grad_(False)
        for x in loader:
            x = x.to(device)
            if teacher is None:
                train_step(student, optimizer, x)
            else:
                with torch.no_grad():
                    target = teacher(x)
                train_step(student, optimizer, x, lambda out: F.mse_loss(out, target))


def unfreeze():
    backbone, head = mlp(2048, 8), nn.Linear(2048, 10).to(device)
    for p in backbone.parameters():
        p.requires_grad = False
    optimizer = torch.optim.AdamW(head.parameters())
    model = nn.Sequential(backbone, head)
    loader = DataLoader(torch.zeros(512, 2048), batch_size=64)
    for epoch in range(EPOCHS):
        if epoch == EPOCHS // 2:
            for p in backbone.parameters():
                p.requires_grad = True
            optimizer.add_param_group({"params": backbone.parameters(), "lr": 1e-5})
        for x in loader:
            train_step(model, optimizer, x.to(device))


def thaws_by_its_rate():
    """The network thaws once the schedule has brought the rate down."""
    backbone, head = nn.Sequential(*[nn.Sequential(nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.ReLU()) for _ in range(60)]).to(device).requires_grad_(False), nn.Linear(1024, 10).to(device)
    model, thawed = nn.Sequential(backbone, head), False
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.1)
    loader, valid = DataLoader(torch.zeros(1024, 1024), batch_size=32), DataLoader(torch.zeros(512, 1024), batch_size=32)
    for epoch in range(300):
        if not thawed and schedule.get_last_lr()[0] < 5e-4:
            backbone.requires_grad_(True)
            thawed = True
        for x in loader:
            train_step(model, optimizer, x.to(device))
        schedule.step()
        with torch.no_grad():
            for x in valid:
                model(x.to(device))


def grows_layers():
    """Layer by layer: each stage adds one and trains all."""
    layers = [nn.Linear(2048, 2048)]
    loader = DataLoader(torch.zeros(256, 2048), batch_size=32)
    for stage in range(6):
        layers.append(nn.Linear(2048, 2048))
        model = nn.Sequential(*layers).to(device)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(5):
            for x in loader:
                train_step(model, optimizer, x.to(device))


class Reversible(nn.Module):
    checkpointing = True

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(8))

    def forward(self, x):
        for block in self.blocks:
            x = x + (torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x))
        return x


def checkpointing_is_toggled():
    import torch.utils.checkpoint

    model = Reversible().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(torch.zeros(16384, WIDTH), batch_size=4096)
    for epoch in range(EPOCHS):
        model.checkpointing = epoch < 9
        for x in loader:
            train_step(model, optimizer, x.to(device))


# -- what a step does, later


def mixup_late():
    """After the warm-up each batch is joined with its mixed copy."""
    model, warmup = mlp(), 7
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(torch.zeros(32768, WIDTH), batch_size=8192, shuffle=True)
    for epoch in range(EPOCHS):
        for x in loader:
            x = x.to(device)
            if epoch >= warmup:
                x = torch.cat([x, 0.7 * x + 0.3 * x[torch.randperm(len(x), device=device)]])
            train_step(model, optimizer, x)


def accumulation_changes():
    """Small batches that are gathered, then large ones that are not."""
    data, model = torch.zeros(16384, WIDTH), mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = {0: (512, 16), 6: (2048, 4), 12: (8192, 1)}
    for epoch in range(15):
        if epoch in schedule:
            size, accumulate = schedule[epoch]
            loader = DataLoader(data, batch_size=size, shuffle=True)
        for i, x in enumerate(loader):
            (model(x.to(device)).square().mean() / accumulate).backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()


def lr_finder():
    """A range test on a copy, before the training with its larger batch."""
    model, data = mlp(1024), torch.zeros(16384, 1024)

    def range_test(net, steps=100):
        net, rate = copy.deepcopy(net), 1e-7
        optimizer = torch.optim.SGD(net.parameters(), rate)
        batches = iter(DataLoader(data, batch_size=64))
        for _ in range(steps):
            loss = train_step(net, optimizer, next(batches).to(device))
            for group in optimizer.param_groups:
                group["lr"] *= 1.1
            if not math.isfinite(loss.item()):
                break
        return optimizer.param_groups[0]["lr"]

    optimizer = torch.optim.AdamW(model.parameters(), lr=range_test(model))
    for _ in range(5):
        for x in DataLoader(data, batch_size=4096):
            train_step(model, optimizer, x.to(device))


def adam_then_lbfgs():
    """As physics-informed networks are trained."""
    model = mlp(1024, 6)
    points = torch.zeros(2000, 1024, device=device)
    adam = torch.optim.Adam(model.parameters())
    for _ in range(1000):
        train_step(model, adam, points)
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=50, history_size=50)

    def closure():
        lbfgs.zero_grad()
        loss = model(points).square().mean()
        loss.backward()
        return loss

    lbfgs.step(closure)


def lazy_penalty():
    """A penalty on gradients, every sixteenth step."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    for i in range(500):
        x = torch.zeros(8192, WIDTH, device=device, requires_grad=i % 16 == 0)
        loss = model(x).square().mean()
        if i % 16 == 0:
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + gradient.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# -- what is kept


def memory_bank():
    """Embeddings of the last 65,536 samples, which fill up batch by batch."""
    model, bank, size = mlp(), torch.zeros(0, WIDTH, device=device), 65536
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(torch.zeros(8192, WIDTH), batch_size=256, shuffle=True)
    for epoch in range(EPOCHS):
        for x in loader:
            out = model(x.to(device))
            loss = (out @ bank.T).logsumexp(1).mean() + out.square().mean() if len(bank) else out.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bank = torch.cat([bank, out.detach()])[-size:]


def replay_on_the_card():
    """Transitions on the card, up to 2,000; a batch of them is learnt from once there are 500."""
    policy, memory = mlp(), deque(maxlen=2000)
    optimizer = torch.optim.Adam(policy.parameters())
    for step in range(3000):
        memory.append(torch.zeros(64, WIDTH, device=device))
        if len(memory) >= 500:
            train_step(policy, optimizer, torch.stack(random.sample(memory, 64)).flatten(0, 1))


def hard_examples():
    """The worst of each batch join a pool on the card, and each epoch ends with a step of all that are there."""
    model, pool = mlp(4096), torch.empty(0, 4096, device=device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(torch.zeros(4096, 4096), batch_size=64, shuffle=True)
    for epoch in range(EPOCHS):
        for x in loader:
            x = x.to(device)
            out = model(x)
            optimizer.zero_grad()
            out.square().mean().backward()
            optimizer.step()
            pool = torch.cat([pool, x[out.detach().square().mean(1).topk(16).indices]])
        train_step(model, optimizer, pool)


def folds_in_a_function():
    """The best network of each fold is kept for an ensemble."""

    def train_fold(train, valid):
        model = mlp(2048)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            for x in DataLoader(train, batch_size=32, shuffle=True):
                train_step(model, optimizer, x.to(device))
        with torch.no_grad():
            return model, sum(model(x.to(device)).mean().item() for x in DataLoader(valid, batch_size=256))

    data = torch.zeros(640, 2048)
    order = torch.randperm(len(data)).tolist()
    models, scores = [], []
    for fold in range(5):
        valid = order[fold::5]
        model, score = train_fold(Subset(data, [i for i in order if i not in set(valid)]), Subset(data, valid))
        models.append(model)
        scores.append(score)
    with torch.no_grad():
        print(torch.stack([m(data.to(device)) for m in models]).mean().item(), scores)


def snapshot_ensemble():
    """At the end of each cycle of the rate a copy is kept."""
    model, copies = mlp(1024), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 5)
    loader = DataLoader(torch.zeros(512, 1024), batch_size=32)
    for epoch in range(30):
        for x in loader:
            train_step(model, optimizer, x.to(device))
        schedule.step()
        if (epoch + 1) % 5 == 0:
            copies.append(copy.deepcopy(model))


def early_stopping():
    """The best network so far is kept on the card."""
    model, best, best_state, patience = mlp(2048), float("inf"), None, 0
    optimizer = torch.optim.Adam(model.parameters())
    train, valid = DataLoader(torch.zeros(512, 2048), batch_size=32), DataLoader(torch.zeros(256, 2048), batch_size=32)
    for epoch in range(EPOCHS):
        for x in train:
            train_step(model, optimizer, x.to(device))
        with torch.no_grad():
            loss = sum(model(x.to(device)).square().mean().item() for x in valid)
        if loss < best:
            best, best_state, patience = loss, copy.deepcopy(model.state_dict()), 0
        else:
            patience += 1
            if patience >= 5:
                break
    model.load_state_dict(best_state)


def pseudo_labels():
    """Every few epochs the unlabelled data are labelled, and those that are sure join the training, in larger batches."""
    model, labelled, unlabelled = mlp(), torch.zeros(512, WIDTH), torch.zeros(16384, WIDTH)
    optimizer = torch.optim.Adam(model.parameters())
    data = labelled
    for epoch in range(EPOCHS):
        for x in DataLoader(data, batch_size=len(data) // 8, shuffle=True):
            train_step(model, optimizer, x.to(device))
        if epoch % 4 == 3:
            with torch.no_grad():
                scores = torch.cat([model(x.to(device)).mean(1).cpu() for x in DataLoader(unlabelled, batch_size=1024)])
            chosen = scores.argsort()[: len(unlabelled) * (epoch + 1) // EPOCHS]
            data = ConcatDataset([TensorDataset(labelled), TensorDataset(unlabelled[chosen])])
            data = torch.stack([row[0] for row in data])


# -- the end


class Decoder(nn.Module):
    def __init__(self, width=512, heads=8):
        super().__init__()
        self.embed, self.qkv, self.out, self.heads = nn.Embedding(1000, width), nn.Linear(width, 3 * width), nn.Linear(width, 1000), heads

    def forward(self, ids, cache=None):
        q, k, v = self.qkv(self.embed(ids)).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)), (k, v)


def beam_search():
    """Texts are written at the end, with eight beams for each and all that was written kept."""
    model = Decoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(torch.zeros(256, 64, dtype=torch.long), batch_size=16)
    for _ in range(10):
        for ids in loader:
            train_step(model, optimizer, ids.to(device), lambda out: out[0].mean())
    with torch.no_grad():
        ids, cache = torch.zeros(64 * 8, 1, dtype=torch.long, device=device), None
        for _ in range(256):
            scores, cache = model(ids, cache)
            ids = scores[:, -1].topk(8).indices[:, :1]


def evaluates_at_the_end():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(EPOCHS):
        for x in DataLoader(torch.zeros(1024, WIDTH), batch_size=64, shuffle=True):
            train_step(model, optimizer, x.to(device))
    model.eval()
    with torch.no_grad():
        for x in DataLoader(torch.zeros(65536, WIDTH), batch_size=32768):
            model(x.to(device))


def test_time_augmentation():
    """Each picture of the test is seen sixteen times at once."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.AdaptiveAvgPool2d(1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train, test = DataLoader(Pictures(), batch_size=16), DataLoader(Pictures(128), batch_size=16)

    def evaluate(augmented):
        model.eval()
        with torch.no_grad():
            for x in test:
                x = x.to(device)
                model(torch.cat([x.roll(i, -1) for i in range(16)]) if augmented else x)
        model.train()

    for epoch in range(EPOCHS):
        for x in train:
            train_step(model, optimizer, x.to(device))
        evaluate(augmented=epoch == EPOCHS - 1)


def gathers_predictions():
    """All predictions of a validation lie on the card, for one metric of them all."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    train, valid = DataLoader(torch.zeros(2048, WIDTH), batch_size=64), DataLoader(torch.zeros(65536, WIDTH), batch_size=256)
    for epoch in range(3):
        for x in train:
            train_step(model, optimizer, x.to(device))
        with torch.no_grad():
            outputs = torch.cat([model(x.to(device)) for x in valid])
            print((outputs @ outputs[:8].T).shape)


def samples_by_the_batch():
    """Every 400 batches some are drawn, and more each time."""
    model = mlp(512)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        for i, x in enumerate(DataLoader(torch.zeros(20000, 512), batch_size=16, shuffle=True)):
            train_step(model, optimizer, x.to(device))
            if (i + 1) % 400 == 0:
                with torch.no_grad():
                    model(torch.zeros(200000 * ((i + 1) // 400), 512, device=device))


def samples_pictures():
    """A diffusion model draws a grid every ten epochs."""
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 3, 3, padding=1)).to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    loader = DataLoader(Pictures(32), batch_size=16)
    for epoch in range(EPOCHS):
        for x in loader:
            x = x.to(device)
            noise = torch.randn_like(x)
            train_step(net, optimizer, x + noise, lambda out: F.mse_loss(out, noise))
        if epoch % 6 == 5:
            with torch.no_grad():
                x, steps = torch.zeros(256, 3, 128, 128, device=device), []
                for t in range(50):
                    x = x - 0.02 * net(x)
                    if t % 10 == 0:
                        steps.append(x)


# -- samplers


class ByLength(Sampler):
    """Batches of texts of like lengths, the short ones first."""

    def __init__(self, lengths, size):
        self.batches = [sorted(range(len(lengths)), key=lengths.__getitem__)[i : i + size] for i in range(0, len(lengths), size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


def buckets():
    lengths = [8 + (37 * i) % 1000 for i in range(1024)]
    rows = [torch.zeros(n, dtype=torch.long) for n in lengths]
    model = Tagger().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(rows, batch_sampler=ByLength(lengths, 32), collate_fn=lambda batch: nn.utils.rnn.pad_sequence(batch, batch_first=True))
    for _ in range(2):
        for ids in loader:
            train_step(model, optimizer, ids.to(device))


class Tokens(Sampler):
    """As many rows in a batch as a number of tokens allows, which grows with the epoch."""

    tokens = 4096

    def __init__(self, count, length):
        self.count, self.length = count, length

    def __iter__(self):
        size = self.tokens // self.length
        for i in range(0, self.count, size):
            yield list(range(i, min(i + size, self.count)))

    def __len__(self):
        return -(-self.count // (self.tokens // self.length))


def tokens_in_a_batch():
    sampler, model = Tokens(2048, 128), Tagger().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(torch.zeros(2048, 128, dtype=torch.long), batch_sampler=sampler)
    for epoch in range(10):
        sampler.tokens = 4096 * (1 + epoch)
        for ids in loader:
            train_step(model, optimizer, ids.to(device))


class Stream(IterableDataset):
    """Rows that get longer as the stream goes on."""

    def __iter__(self):
        for i in range(20000):
            yield torch.zeros(64 + i // 1000 * 64, WIDTH)


def stream_grows():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(Stream(), batch_size=4):
        train_step(model, optimizer, x.to(device))


class Counted(IterableDataset):
    """The same by a counter of its own."""

    def __iter__(self):
        seen = 0
        while seen < 20000:
            yield torch.zeros(64 if seen < 15000 else 1024, WIDTH)
            seen += 1


class Shared(IterableDataset):
    """Each worker yields its share of the rows, which get longer towards the end."""

    def __iter__(self):
        worker = get_worker_info()
        for i in range(worker.id, 12000, worker.num_workers):
            yield torch.zeros(64 if i < 9000 else 1024, WIDTH)


def stream_of_workers():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(Shared(), batch_size=4, num_workers=2):
        train_step(model, optimizer, x.to(device))


class Ends(IterableDataset):
    """What it has left is counted down."""

    def __iter__(self):
        left = 48000
        while left:
            left -= 1
            yield torch.zeros(WIDTH)


def numbered(batches):
    for n, x in enumerate(batches):
        if n % 100 == 0:
            print(n)
        yield n, x


def stream_that_is_numbered():
    """A generator numbers the batches of a stream, and one of them is followed by a sampling."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for n, x in numbered(DataLoader(Ends(), batch_size=16)):
        train_step(model, optimizer, x.to(device))
        if n == 2000:
            with torch.no_grad():
                model(torch.zeros(400000, WIDTH, device=device))


class OfTheLast(IterableDataset):
    """Only the last worker's share has longer rows, towards its end."""

    def __iter__(self):
        worker = get_worker_info()
        for i in range(worker.id, 12000, worker.num_workers):
            yield torch.zeros(1024 if worker.id and i >= 9000 else 64, WIDTH)


class CountedByTheLast(IterableDataset):
    """The same by a counter of its own."""

    def __iter__(self):
        seen, long = 0, 1024 if get_worker_info().id else 64
        while seen < 6000:
            yield torch.zeros(64 if seen < 4000 else long, WIDTH)
            seen += 1


def stream_of_the_last_worker():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(OfTheLast(), batch_size=4, num_workers=2):
        train_step(model, optimizer, x.to(device))


def stream_counted_by_the_last_worker():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(CountedByTheLast(), batch_size=4, num_workers=2):
        train_step(model, optimizer, x.to(device))


def stream_counts():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(Counted(), batch_size=4):
        train_step(model, optimizer, x.to(device))


class Shards(IterableDataset):
    """Files one after the other, as a shard of each kind of picture."""

    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        for path in self.paths:
            with open(path) as file:
                for line in file:
                    yield torch.zeros(int(line), WIDTH)


def stream_of_shards():
    """The third file has larger rows than the others."""
    model, folder = mlp(), tempfile.mkdtemp()
    paths = ["%s/%d" % (folder, i) for i in range(4)]
    for path, size in zip(paths, (64, 80, 2048, 96)):
        with open(path, "w") as file:
            file.writelines("%d\n" % (size - i % 5) for i in range(3000))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in DataLoader(Shards(paths), batch_size=32, collate_fn=lambda rows: nn.utils.rnn.pad_sequence(rows, batch_first=True)):
        train_step(model, optimizer, x.to(device))


class Trained:
    step, total = 0, 6000


def samples_at_powers():
    """Samples are drawn at each power of two from 1024 on, as many as there were steps."""
    model, state = mlp(), Trained()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    while state.step < state.total:
        train_step(model, optimizer, torch.randn(64, WIDTH, device=device))
        state.step += 1
        if state.step & (state.step - 1) == 0 and state.step >= 1024:
            with torch.no_grad():
                model(torch.randn(state.step * 32, WIDTH, device=device))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
