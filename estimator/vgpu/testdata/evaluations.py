"""Evaluations and samplings that the first steps do not reach: evaluations.py CASE. The first ones make sizes that the training has not; the others do not."""
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, WIDTH, EVERY, MANY = 64, 512, 20000, 10**7
training = TensorDataset(torch.zeros(4096, WIDTH), torch.zeros(4096, dtype=torch.long))
testing = TensorDataset(torch.zeros(65536, WIDTH), torch.zeros(65536, dtype=torch.long))
data = torch.zeros(100000, WIDTH)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def batch(n=BATCH):
    picked = torch.randint(0, len(data), (n,))
    return data[picked].cuda()


def made(n):
    return torch.randn(n, WIDTH, device="cuda")


def update(x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def loop(evaluate, draw=batch):
    for i in range(MANY):
        update(draw())
        if i % EVERY == EVERY - 1:
            evaluate()


def loop_of_a_loader(evaluate):
    i = 0
    for epoch in range(MANY):
        for x, y in DataLoader(training, BATCH, shuffle=True):
            update(x.cuda())
            i += 1
            if i % EVERY == 0:
                evaluate()


# --- sizes of their own


@torch.no_grad()
def of_more_rows():
    model(batch(4 * BATCH)).mean().item()


def a_larger_batch():
    loop(of_more_rows)


@torch.no_grad()
def of_more_made():
    n = 4 * BATCH
    model(made(n)).mean().item()


def a_larger_batch_is_made():
    loop(of_more_made, lambda: made(BATCH))


def with_a_loader():
    total = 0.0
    with torch.no_grad():
        for x, y in DataLoader(testing, batch_size=32768):
            total += model(x.cuda()).mean().item()
    return total


def a_loader_is_made():
    loop_of_a_loader(with_a_loader)


def of_a_setting(size):
    with torch.inference_mode():
        for x, y in DataLoader(testing, size):
            model(x.cuda())


def a_loader_is_made_by_a_setting():
    loop_of_a_loader(lambda: of_a_setting(size=int(sys.argv[2]) if len(sys.argv) > 2 else 32768))


@torch.no_grad()
def sample(n):
    z = torch.randn(n, WIDTH)
    return model(z.cuda()).cpu()


def samples_more():
    i = 0
    while True:
        update(batch())
        i += 1
        if i % EVERY == 0:
            sample(32768)


def samples_more_from_a_loader():
    loop_of_a_loader(lambda: sample(32768))


def counts_beside_the_step():
    step = 0
    while True:
        update(batch()); step += 1  # noqa: E702
        if step % EVERY == 0: sample(32768)  # noqa: E701


rows = [([1.0] * WIDTH, i % 2) for i in range(2000)]


def gathered(part):
    return torch.tensor([r for r, _ in part]).cuda()


@torch.no_grad()
def of_parts_of_a_list(size):
    for i in range(0, len(rows), size):
        model(gathered(rows[i : i + size]))


def rows_of_a_list(size=32 * BATCH):
    step = 0
    for epoch in range(MANY):
        for i in range(0, len(rows), BATCH):
            update(gathered(rows[i : i + BATCH]))
            step += 1
            if step % EVERY == 0:
                of_parts_of_a_list(size)


@torch.no_grad()
def begins_empty():
    x = torch.zeros((BATCH * 16, WIDTH), device="cuda")
    for _ in range(10):
        x = model(x)


def starts_from_zeros():
    loop(begins_empty)


@torch.no_grad()
def of_all():
    model(data.cuda()).mean().item()


def the_whole_data_set():
    loop(of_all)


@torch.no_grad()
def by_parts():
    for i in range(0, len(data), 8192):
        model(data[i : i + 8192].cuda())


def larger_parts():
    loop(by_parts)


@torch.no_grad()
def same_rows():
    model(batch(BATCH)).mean().item()


def without_a_cast():
    cast_loop(same_rows)


def cast_loop(evaluate):
    for i in range(MANY):
        x = batch()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (i + 1) % EVERY == 0:
            evaluate()


class Trainer:
    def __init__(self):
        self.model, self.size, self.step = model, BATCH, 0

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        for x, _ in DataLoader(testing, self.size * 8):
            self.model(x.cuda())
        self.model.train()

    def fit(self):
        for _ in range(MANY):
            for x, _ in DataLoader(training, self.size):
                update(x.cuda())
                self.step += 1
                if self.step % EVERY == 0:
                    self.evaluate()


def a_method():
    Trainer().fit()


def by_callbacks():
    """The last of the callbacks is what the name stands for while a step is taken."""
    callbacks = {"evaluate": (EVERY, of_more_rows), "log": (100, lambda: print(torch.cuda.memory_allocated()))}
    for i in range(MANY):
        update(batch())
        for name, (every, function) in callbacks.items():
            if (i + 1) % every == 0:
                function()


def gathers_outputs():
    """After each epoch; a loader is ended after three batches."""
    batches = DataLoader(testing, BATCH)
    for epoch in range(MANY):
        for x, y in DataLoader(training, BATCH):
            update(x.cuda())
        with torch.no_grad():
            found = [model(x.cuda()) for x, y in batches]
            print(torch.cat(found).mean().item())


def by_a_library(metrics=None, **given):
    """A trainer of a library is told every how many steps to evaluate, and with what."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
    from transformers import Trainer, TrainingArguments

    Trainer(model, TrainingArguments(**given), lambda rows: update(batch(rows)), testing, metrics).train()


def a_trainer_with_a_larger_batch():
    by_a_library(per_device_eval_batch_size=4096)


def a_trainer_keeps_all():
    """What the network says of each sample is kept on the card until the evaluation ends, for the metrics."""
    by_a_library(lambda predictions: {"n": len(predictions)})


# --- none of their own


def a_trainer_with_the_same_batch():
    by_a_library()



def the_same_batch():
    loop(same_rows)


@torch.no_grad()
def estimate_loss(rounds=200):
    out = {}
    model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(rounds)
        for k in range(rounds):
            losses[k] = model(batch()).square().mean().item()
        out[split] = losses.mean()
    model.train()
    return out


def estimates_its_loss():
    for i in range(MANY):
        if i > 0 and i % EVERY == 0:
            print(estimate_loss())
        update(batch())


def with_the_same_loader():
    correct = torch.zeros(1, device="cuda")
    confusion = torch.zeros(512, 512, dtype=torch.long)
    with torch.no_grad():
        for x, y in DataLoader(testing, batch_size=BATCH, num_workers=0):
            found = model(x.cuda()).argmax(1)
            correct += (found == y.cuda()).sum()
            confusion[y, found.cpu()] += 1
    return correct


def the_same_loader():
    loop_of_a_loader(with_the_same_loader)


def as_many_rows_of_a_list():
    rows_of_a_list(BATCH)


@torch.no_grad()
def few():
    x = torch.randn(16, WIDTH, device="cuda")
    for t in range(1000):
        x = x + torch.full((x.shape[0], 1), float(t), device="cuda") * model(x) + torch.randn_like(x)


def samples_few():
    loop_of_a_loader(few)


fixed = torch.randn(BATCH, WIDTH, device="cuda")


@torch.no_grad()
def show():
    rows, width = fixed.shape
    noise = torch.randn(rows, width, device="cuda")
    model(fixed).mean().item(), model(noise).mean().item()


def the_same_noise():
    loop(show)


@torch.no_grad()
def cast_too():
    with torch.autocast("cuda", dtype=torch.bfloat16):
        model(batch(BATCH))


def with_a_cast():
    cast_loop(cast_too)


def gathers_numbers():
    """After each epoch; what is gathered is on the host, but for a number of each batch."""
    batches = DataLoader(testing, BATCH)
    for epoch in range(MANY):
        for x, y in DataLoader(training, BATCH):
            update(x.cuda())
        with torch.no_grad():
            losses, outputs = [], []
            for x, y in batches:
                out = model(x.cuda())
                losses.append(out.square().mean())
                outputs.append(out.cpu())
            print(torch.stack(losses).mean().item(), len(outputs))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
