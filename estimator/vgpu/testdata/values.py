"""Training jobs whose memory depends on values: values.py CASE. Nothing in here knows that the GPU is virtual.

DEVICE=cpu runs the same program with real values, from which truth.py makes what a real GPU would have needed.
"""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
STEPS = 6


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), 1e-3)


def packed():
    """Sentences of different lengths, which the host knows."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"words": nn.Embedding(1000, 128), "lstm": nn.LSTM(128, 256, batch_first=True), "out": nn.Linear(256, 1000)}).to(DEVICE)
    optimizer = optimizer_of(model)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        lengths = torch.randint(5, 120, (64,), generator=generator)
        words = nn.utils.rnn.pad_sequence([torch.randint(1, 1000, (int(n),), generator=generator) for n in lengths], batch_first=True).to(DEVICE)
        on_card = (words != 0).sum(1)
        x = nn.utils.rnn.pack_padded_sequence(model["words"](words), on_card.cpu(), batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(model["lstm"](x)[0], batch_first=True)
        mask = words != 0
        loss = F.cross_entropy(model["out"](y[mask]), words[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


class Moe(nn.Module):
    """Every word goes to its two best experts, and each expert takes as many as come."""

    def __init__(self, width=256, experts=8):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts)])

    def forward(self, x):
        flat = x.view(-1, x.shape[-1])
        weights, chosen = torch.topk(F.softmax(self.gate(flat), -1), 2, dim=-1)
        out = torch.zeros_like(flat)
        mask = F.one_hot(chosen, num_classes=len(self.experts)).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            rank, word = torch.where(mask[number])
            out.index_add_(0, word, expert(flat[word]) * weights[word, rank, None])
        return out.view_as(x)


def moe():
    torch.manual_seed(0)
    model = nn.Sequential(Moe(), Moe(), nn.Linear(256, 100)).to(DEVICE)
    optimizer = optimizer_of(model)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(16, 64, 256, generator=generator).to(DEVICE)
        y = torch.randint(0, 100, (16 * 64,), generator=generator).to(DEVICE)
        loss = F.cross_entropy(model(x).flatten(0, 1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


def yolo():
    """Anchors are assigned to boxes by their overlap; the loss of the boxes is that of the assigned ones alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 4, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 4, 1), nn.ReLU(), nn.Conv2d(64, 3 * 25, 1)).to(DEVICE)
    optimizer = optimizer_of(model)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        images = torch.rand(8, 3, 256, 256, generator=generator).to(DEVICE)
        boxes = torch.rand(8, 12, 4, generator=generator).to(DEVICE)
        labels = torch.randint(0, 20, (8, 12), generator=generator).to(DEVICE)
        out = model(images).view(8, 3, 25, -1).permute(0, 1, 3, 2).reshape(8, -1, 25)
        losses = []
        for n in range(8):
            predicted, goal = out[n, :, :4].sigmoid(), boxes[n]
            low = torch.max(predicted[:, None, :2] - predicted[:, None, 2:] / 2, goal[None, :, :2] - goal[None, :, 2:] / 2)
            high = torch.min(predicted[:, None, :2] + predicted[:, None, 2:] / 2, goal[None, :, :2] + goal[None, :, 2:] / 2)
            common = (high - low).clamp(min=0).prod(2)
            overlap = common / (predicted[:, None, 2:].prod(2) + goal[None, :, 2:].prod(2) - common + 1e-9)
            best, which = overlap.max(1)
            positive = best > 0.35
            count = int(positive.sum())
            assigned = which[positive]
            box_loss = (predicted[positive] - goal[assigned]).abs().sum() / max(count, 1)
            class_loss = F.cross_entropy(out[n][positive][:, 5:], labels[n][assigned], reduction="sum") / max(count, 1)
            objectness = F.binary_cross_entropy_with_logits(out[n, :, 4], positive.float())
            losses.append(box_loss + class_loss + objectness)
        loss = torch.stack(losses).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


def ppo():
    """Episodes end when the environment, on the host, says so; updates stop early when the policy has moved too far."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 5)).to(DEVICE)
    optimizer = optimizer_of(model)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        states, actions, logs, rewards = [], [], [], []
        state = torch.randn(16, generator=generator)
        while len(states) < 64:
            with torch.no_grad():
                spread = torch.distributions.Categorical(logits=model(state.to(DEVICE)))
                action = spread.sample()
                logs.append(spread.log_prob(action))
            states.append(state)
            actions.append(action)
            rewards.append(float(action.item() == len(states) % 5))
            if rewards[-1] and len(states) % 7 == 0:
                state = torch.randn(16, generator=generator)
            else:
                state = state * 0.9 + torch.randn(16, generator=generator)
        states, actions, logs = torch.stack(states).to(DEVICE), torch.stack(actions), torch.stack(logs)
        advantage = torch.tensor(rewards).to(DEVICE)
        advantage = advantage - advantage.mean()
        chosen = advantage > 0
        for _ in range(4):
            spread = torch.distributions.Categorical(logits=model(states))
            ratio = (spread.log_prob(actions) - logs).exp()
            loss = -(torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)).mean() - 0.01 * spread.entropy().mean()
            loss = loss + 0.1 * F.cross_entropy(model(states[chosen]), actions[chosen], reduction="sum") / 64
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (ratio - 1 - ratio.log()).mean().item() > 0.5:
                break


def generate():
    """Answers are made inside the training, each until its end mark, and the model then learns from them."""
    torch.manual_seed(0)
    words, width, end = 2000, 128, 7
    model = nn.ModuleDict({"words": nn.Embedding(words, width), "block": nn.TransformerEncoderLayer(width, 4, 512, batch_first=True), "out": nn.Linear(width, words)}).to(DEVICE)
    optimizer = optimizer_of(model)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        text = torch.randint(0, words, (16, 8), generator=generator).to(DEVICE)
        done = torch.zeros(16, dtype=torch.bool, device=DEVICE)
        with torch.no_grad():
            for _ in range(48):
                scores = model["out"](model["block"](model["words"](text))[:, -1])
                scores[:, end] += 5.0
                following = torch.multinomial(scores.softmax(-1), 1)[:, 0]
                following = torch.where(done, torch.full_like(following, end), following)
                text = torch.cat([text, following[:, None]], 1)
                done = done | (following == end)
                if done.all():
                    break
        scores = model["out"](model["block"](model["words"](text[:, :-1])))
        loss = F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(text.shape[1], loss.item())


def detection():
    """torchvision's Faster R-CNN: proposals, suppression, sampling and matching, all by values."""
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5, min_size=256, max_size=320).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3 if DEVICE == "cpu" else STEPS):
        images = [torch.rand(3, 256, 320, generator=generator).to(DEVICE) for _ in range(2)]
        targets = []
        for _ in images:
            corner = torch.rand(4, 2, generator=generator) * 150
            boxes = torch.cat([corner, corner + 20 + torch.rand(4, 2, generator=generator) * 80], 1)
            targets.append({"boxes": boxes.to(DEVICE), "labels": torch.randint(1, 5, (4,), generator=generator).to(DEVICE)})
        losses = model(images, targets)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print({k: v.item() for k, v in losses.items()})


def driven():
    """Early stopping, best checkpoint, plateau, guards and a gradient scaler: all of them look at losses."""
    model = nn.Linear(256, 256).to(DEVICE)
    optimizer = optimizer_of(model)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    scaler = torch.amp.GradScaler("cuda")
    best, waited = float("inf"), 0
    for step in range(60):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(32, 256).to(DEVICE)).pow(2).mean()
        assert not torch.isnan(loss) and torch.isfinite(loss), "diverged"
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        before = [state["step"].item() for state in optimizer.state.values()]
        scaler.step(optimizer)
        scaler.update()
        assert [state["step"].item() for state in optimizer.state.values()] != before, "the scaler skipped a step"
        assert scaler.get_scale() == 65536.0, scaler.get_scale()
        plateau.step(loss.item())
        if loss.item() < best:
            best, waited = loss.item(), 0
            torch.save(model.state_dict(), sys.argv[2])
            torch.load(sys.argv[2])
        else:
            waited += 1
            if waited >= 2:
                print("stopped early")
                return
        print(step, norm.item())


def ctc():
    """Lengths of CTC on the card, from the host and counted there: PyTorch reads them by itself, and takes as much as with those of the host."""
    model = nn.Linear(16, 32).to(DEVICE)
    optimizer = optimizer_of(model)
    peaks = {}
    for dtype in (torch.int64, torch.int32):
        for way in ("host", "host", "copied", "made", "counted", "padded", "unknown"):
            labels = torch.randint(1, 32, (9, 40))
            labels[1, 30:] = -100
            on_card, steps = labels.to(DEVICE), torch.full((9,), 200, dtype=dtype)
            mask = on_card >= 0
            flat, counts = on_card.masked_select(mask), mask.sum(-1).to(dtype)
            if way == "host":
                counts = (labels >= 0).sum(-1)
            elif way == "made":
                steps = torch.full((9,), 200, device=DEVICE, dtype=dtype)
            elif way == "copied":
                steps, counts = steps.to(DEVICE), (labels >= 0).sum(-1).to(dtype).to(DEVICE)
            elif way == "padded":
                flat, steps = on_card.clamp(min=0), steps.to(DEVICE)
            elif way == "unknown":
                steps = (model.weight.sum().abs() + 200).expand(9).to(dtype)
            torch.cuda.reset_peak_memory_stats()
            scores = model(torch.randn(200, 9, 16).to(DEVICE)).log_softmax(-1)
            loss = F.ctc_loss(scores, flat, steps, counts, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            peaks[dtype, way] = torch.cuda.max_memory_allocated()
            del scores, loss
    # Lengths on the card are blocks of 512 bytes themselves.
    least = peaks[torch.int64, "copied"]
    assert all(abs(peak - least) <= 8192 for (_, way), peak in peaks.items() if way != "padded"), peaks


def choices():
    """What is read of probabilities can be drawn from, and what is read of anything else can be divided by its sum."""
    import numpy as np

    def choose(p):
        np.random.choice(len(p), p=p)

    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 6)).to(DEVICE)
    optimizer = optimizer_of(net)
    for _ in range(2):
        x = torch.randn(8, 4).to(DEVICE)
        scores = net(x)
        p, raw = torch.softmax(scores, -1), F.softplus(scores)
        choose(p[0].detach().cpu().numpy())
        choose(p[0].tolist())
        choose(np.array([one.item() for one in p[0]]))
        choose(p.detach().to("cpu")[1].numpy())
        choose(nn.Softmax(-1)(scores).T[:, 0].detach().cpu().numpy())
        choose((raw / raw.sum(-1, keepdim=True))[0].detach().cpu().numpy())
        choose(torch.distributions.Categorical(p).probs[0].detach().cpu().numpy())
        choose(F.log_softmax(scores, 1).exp()[0].detach().cpu().numpy())
        choose(np.exp(F.log_softmax(scores, 1)[0].detach().cpu().numpy()))
        half = torch.sigmoid(scores[0, 0])
        choose(torch.stack([half, 1 - half]).detach().cpu().numpy())
        torch.multinomial(raw.detach().cpu(), 1)
        u = raw.detach().cpu().numpy()
        choose(u[0] / u[0].sum())
        assert np.isfinite(u / np.linalg.norm(u)).all()
        with torch.inference_mode():
            choose(torch.softmax(net(x), -1)[0].cpu().numpy())
            assert (x == x).sum().cpu() == 32
        optimizer.zero_grad()
        raw.log().sum().backward()
        optimizer.step()


def conversions():
    """Small integers of the card arrive on the host by whichever door."""
    import numpy as np

    optimizer = optimizer_of(nn.Linear(4, 4).to(DEVICE))
    counts = torch.tensor([3, 0, 7, 40]).to(DEVICE) + 1
    want = [4, 1, 8, 41]
    buffer, row, out = torch.zeros(4, dtype=torch.int64), torch.zeros(2, 4), torch.zeros(4, dtype=torch.int32)
    row[1] = counts
    buffer[:] = counts.to(torch.int16)
    out.copy_(counts.to(torch.uint8))
    found = {
        "to": counts.to(torch.int32).to("cpu", torch.float32),
        "long": counts.int().long().cpu(),
        "to like": counts.to(torch.zeros(1, dtype=torch.int32)),
        "type": counts.type(torch.LongTensor),
        "type name": counts.type("torch.IntTensor"),
        "type as": counts.type_as(torch.zeros(1)),
        "numpy": torch.from_numpy(counts.numpy(force=True)),
        "as_tensor": torch.as_tensor(counts, device="cpu"),
        "setitem": row[1],
        "setitem of all": buffer,
        "copy": out,
        "strided": torch.stack([counts, counts], 1)[:, 1].to(torch.int32).cpu(),
        "list": torch.tensor([counts[0], counts[1], counts[2], counts[3]]),
        "array": torch.from_numpy(np.array(counts.tolist())),
        "empty_like": torch.empty_like(counts, dtype=torch.int32).copy_(counts).cpu(),
    }
    longest = counts.max()
    assert (torch.arange(longest, device=DEVICE) < counts[:, None]).shape == (4, 41) and torch.arange(1, end=longest, step=counts[1], device=DEVICE).shape == (40,)
    assert torch.allclose(counts, torch.tensor(want).to(DEVICE)) and not torch.allclose(counts, counts + 1) and not counts.allclose(counts.flip(0))
    wrong = {name: value for name, value in found.items() if value.tolist() != want}
    assert not wrong, wrong
    optimizer.step()


def confusion():
    """A table of counts that has places for all classes is as large whatever is found: such as torchvision's and torchmetrics' of confusions."""
    classes, net = 7, nn.Linear(16, 7).to(DEVICE)
    optimizer = optimizer_of(net)
    table = torch.zeros(classes, classes, dtype=torch.int64, device=DEVICE)
    for _ in range(STEPS):
        y = torch.randint(0, classes, (64,)).to(DEVICE)
        scores = net(torch.randn(64, 16).to(DEVICE))
        found = scores.argmax(1).flatten()
        k = (y >= 0) & (y < classes)
        table += torch.bincount(classes * y[k].to(torch.int64) + found[k], minlength=classes**2).reshape(classes, classes)
        torch.bincount((y * classes + scores.max(1).indices).int(), None, classes**2)
        torch.bincount(scores.topk(2).indices.view(-1), weights=scores.detach().flatten()[:128], minlength=classes)
        F.one_hot(found, classes)
        found.repeat_interleave(3)
        optimizer.zero_grad()
        F.cross_entropy(scores, y).backward()
        optimizer.step()
    print((table.diag().sum() / table.sum()).item())


def confusion_by_values():
    """Of these the size does depend on what is found."""
    net = nn.Linear(16, 7).to(DEVICE)
    optimizer = optimizer_of(net)
    for _ in range(STEPS):
        scores = net(torch.randn(64, 16).to(DEVICE))
        found, known = scores.argmax(1), torch.arange(64, device=DEVICE)
        torch.bincount(found, minlength=6)
        more = found.clone()
        more += 5
        torch.bincount(more, minlength=7)
        shared = found.view(8, 8)
        shared.mul_(2)
        torch.bincount(found, minlength=7)
        torch.bincount(scores.argmax(1) * scores.argmax(1), minlength=7)
        torch.unique(found, True)
        known.repeat_interleave(found)
        optimizer.zero_grad()
        scores.mean().backward()
        optimizer.step()


def windows():
    """Windows of time series, drawn among those that a mask has all of."""
    series, mask = torch.randn(32, 700).cumsum(1), torch.ones(32, 700)
    model = nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 24)).to(DEVICE)
    optimizer = optimizer_of(model)
    for _ in range(STEPS):
        parts = torch.stack([series, mask], 1).to(DEVICE).unfold(-1, 120, 1).permute(0, 2, 3, 1).flatten(0, 1)
        whole = (parts[:, :96, 1].sum(1) >= 1) & (parts[:, 96:, 1].sum(1) >= 1)
        if whole.sum() == 0:
            raise Exception("no windows")
        whole = torch.nonzero(whole).squeeze(-1)
        drawn = parts[whole[torch.randint(0, len(whole), (1024,), device=DEVICE)]]
        loss = (model(drawn[:, :96, 0]) - drawn[:, 96:, 0]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


def reads():
    conversions()
    choices()
    ctc()


def fails():
    """An end that values may have caused which nobody computed."""
    scores = nn.Linear(4, 6).to(DEVICE)(torch.randn(8, 4).to(DEVICE)).detach()
    raise ValueError("no hit") if not (scores.cpu().numpy() > 100).any() else SystemExit(0)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
