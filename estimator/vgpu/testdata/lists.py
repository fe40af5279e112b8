"""Batches that a program makes from lists of its own, and loaders and tasks that chance chooses: lists.py CASE. The first ones have larger ones to come; the others do not."""
import collections
import random
import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

BATCH, WIDTH, MANY = 16, 256, 10**6
device = torch.device("cuda")
draw = random.Random(0)


def tokens(length):
    return [draw.randrange(1000) for _ in range(length)]


def usual_lengths(count=20000):
    """Nearly all of one length, and few that are much longer."""
    return [4000 if i % 5000 == 4321 else 32 for i in range(count)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.body = nn.Embedding(1000, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1000))

    def forward(self, x):
        return self.body(self.embedding(x))


model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters())


def update(x):
    optimizer.zero_grad()
    logits = model(x)
    nn.functional.cross_entropy(logits.flatten(0, 1), x.flatten()).backward()
    optimizer.step()


def padded(sequences):
    return pad_sequence([torch.tensor(s) for s in sequences], batch_first=True)


# --- larger ones to come


def drawn_at_random():
    """Sequences of tokens, by a random permutation, padded to the longest of the batch."""
    data = [tokens(n) for n in usual_lengths()]
    for epoch in range(100):
        order = torch.randperm(len(data)).tolist()
        for i in range(0, len(order), BATCH):
            update(padded([data[j] for j in order[i : i + BATCH]]).to(device))


def drawn_once():
    """Of a million sequences one is long."""
    usual = tokens(32)
    data = [usual] * MANY
    data[MANY // 3] = tokens(4000)
    while True:
        update(padded(draw.sample(data, BATCH)).to(device))


def a_record_drawn_once():
    """Texts with marks before and behind them, in a corpus that an object has."""
    corpus = Corpus(BATCH, [32 if i != 123456 else 4000 for i in range(200000)])
    while True:
        rows = [torch.cat([corpus.mark, corpus.sequences[draw.randrange(200000)], corpus.mark]) for _ in range(BATCH)]
        update(pad_sequence(rows, batch_first=True).to(device))


def cut_once():
    """Many are longer than where they are cut."""
    data = [tokens(32 + i % 200) for i in range(2000)]
    while True:
        update(padded([row[:64] for row in draw.sample(data, BATCH)]).to(device))


def sorted_by_length():
    data = sorted([tokens(10 + i // 20) for i in range(20000)], key=len)
    for epoch in range(100):
        for i in range(0, len(data), BATCH):
            update(padded(data[i : i + BATCH]).to(device))


def in_buckets():
    buckets = collections.defaultdict(list)
    for i in range(4000):
        buckets[32 * (1 + i % 16)].append(torch.tensor(tokens(32 * (1 + i % 16))))
    for epoch in range(100):
        for length in buckets:
            for i in range(0, len(buckets[length]), BATCH):
                update(torch.stack(buckets[length][i : i + BATCH]).to(device))


def batches_are_made_before():
    lengths = sorted(20 + i // 4 for i in range(2000))
    batches = [torch.randint(1000, (BATCH, n)) for n in lengths]
    for epoch in range(100):
        for x in batches:
            update(x.to(device))


class Corpus:
    mark = torch.tensor([1])

    def __init__(self, size, lengths=None):
        self.size, self.sequences = size, [torch.randint(1000, (n,)) for n in lengths or usual_lengths()]
        self.order = sorted(range(len(self.sequences)), key=lambda i: len(self.sequences[i]))

    def batches(self):
        starts = list(range(0, len(self.order), self.size))
        for start in starts:
            chosen = self.order[start : start + self.size]
            yield pad_sequence([self.sequences[j] for j in chosen], batch_first=True).to(device)


def of_a_class():
    corpus = Corpus(BATCH)
    for epoch in range(100):
        for x in corpus.batches():
            update(x)


class Held(Dataset):
    def __init__(self):
        self.data = [tokens(n) for n in usual_lengths()]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return torch.tensor(self.data[i])


def of_a_data_set():
    """Of 20000 samples 4 are long: no few that are asked for show them."""
    data = Held()
    for epoch in range(100):
        for x in DataLoader(data, BATCH, shuffle=True, collate_fn=lambda items: pad_sequence(items, batch_first=True)):
            update(x.to(device))


def examples_of_a_table():
    """Records with a text and a label, as a file of JSON gives them."""
    data = [{"ids": tokens(n), "label": 1} for n in usual_lengths()]
    for epoch in range(100):
        random.Random(epoch).shuffle(data)
        for i in range(0, len(data), BATCH):
            chosen = data[i : i + BATCH]
            longest = max(len(d["ids"]) for d in chosen)
            x = torch.tensor([d["ids"] + [0] * (longest - len(d["ids"])) for d in chosen], device=device)
            update(x)


def samples(rows, count=200):
    return TensorDataset(torch.randint(1000, (count, rows)))


def tasks_by_chance():
    loaders = {"short": DataLoader(samples(32), BATCH, shuffle=True), "long": DataLoader(samples(4096), BATCH, shuffle=True)}
    iterators = {name: iter(l) for name, l in loaders.items()}
    for i in range(MANY):
        name = draw.choices(["short", "long"], weights=[1.0, 1e-9])[0]
        try:
            (x,) = next(iterators[name])
        except StopIteration:
            iterators[name] = iter(loaders[name])
            (x,) = next(iterators[name])
        update(x.to(device))


def a_mixture():
    """The place of a loader is drawn by PyTorch."""
    loaders = [DataLoader(samples(32), BATCH, shuffle=True), DataLoader(samples(4096), BATCH, shuffle=True)]
    shares = torch.tensor([1.0, 1e-9])
    endless = [iter(l) for l in loaders]
    while True:
        k = torch.multinomial(shares, 1).item()
        batch = next(endless[k], None)
        if batch is None:
            endless[k] = iter(loaders[k])
            continue
        update(batch[0].to(device))


def train_short():
    update(torch.randint(1000, (BATCH, 32), device=device))


def train_long():
    update(torch.randint(1000, (BATCH, 4096), device=device))


def functions_by_chance():
    tasks = [train_short, train_long]
    for i in range(MANY):
        task = draw.choices(tasks, weights=[1.0, 1e-9])[0]
        task()


def tensors_by_chance():
    tasks = {"short": torch.randint(1000, (500, 32)), "long": torch.randint(1000, (500, 4096))}
    for i in range(MANY):
        name = draw.choices(list(tasks), weights=[1.0, 1e-9])[0]
        data = tasks[name]
        update(data[torch.randint(len(data), (BATCH,))].to(device))


class Records(Dataset):
    """Rows one behind the other, of which only where each begins is known; one of 700 is long."""

    def __init__(self):
        self.starts = [0]
        for i in range(20000):
            self.starts.append(self.starts[-1] + (2000 if i % 700 == 333 else 32))
        self.rows = torch.randint(1000, (self.starts[-1],))

    def __len__(self):
        return len(self.starts) - 1

    def __getitem__(self, i):
        return self.rows[self.starts[i] : self.starts[i + 1]]


def rows_of_a_file():
    for epoch in range(100):
        for x in DataLoader(Records(), BATCH, shuffle=False, collate_fn=lambda items: pad_sequence(items, batch_first=True)):
            update(x.to(device))


def texts_of_a_list():
    """Texts that are cut into words on the way."""
    texts = [" ".join(str(draw.randrange(1000)) for _ in range(900 if i % 5000 == 4321 else 20 + i % 9)) for i in range(20000)]
    while True:
        update(padded([[int(w) for w in t.split()] for t in draw.sample(texts, BATCH)]).to(device))


# --- none


def padded_to_all():
    """Padded to a length that is written down."""
    data, most = [tokens(20 + i % 40) for i in range(2000)], 64
    for epoch in range(100):
        order = torch.randperm(len(data)).tolist()
        for i in range(0, len(order) - BATCH, BATCH):
            rows = [data[j] for j in order[i : i + BATCH]]
            update(torch.tensor([r + [0] * (most - len(r)) for r in rows], device=device))


def cut_to_a_length():
    data, most = [tokens(100 + i % 400) for i in range(2000)], 64
    for epoch in range(100):
        for i in range(0, len(data) - BATCH, BATCH):
            update(torch.tensor([r[:most] for r in data[i : i + BATCH]], device=device))


def parts_of_documents():
    """Crops of documents of several lengths, and words that are only printed."""
    documents = [torch.randint(1000, (500 + 7 * (i % 100),)) for i in range(300)]
    words, losses = ["word" * (1 + i % 9) for i in range(1000)], []
    for i in range(MANY):
        rows = []
        for _ in range(BATCH):
            d = documents[draw.randrange(len(documents))]
            begin = draw.randrange(len(d) - 128)
            rows.append(d[begin : begin + 128])
        x = torch.stack(rows).to(device)
        update(x)
        losses.append(words[i % len(words)])


def of_one_length():
    data = [torch.randint(1000, (48,)) for _ in range(2000)]
    notes = [[1] * (i % 5) for i in range(100)]
    for i in range(MANY):
        x = torch.stack([data[draw.randrange(len(data))] for _ in range(BATCH)]).to(device)
        update(x)
        if i % 1000 == 0:
            print(len(notes[i % 100]))


def a_mixture_of_one_size():
    loaders = [DataLoader(samples(32), BATCH, shuffle=True), DataLoader(samples(32), BATCH, shuffle=True)]
    iterators = [iter(l) for l in loaders]
    for i in range(MANY):
        k = draw.choices([0, 1], weights=[1.0, 1e-9])[0]
        batch = next(iterators[k], None)
        if batch is None:
            iterators[k] = iter(loaders[k])
            continue
        update(batch[0].to(device))


Step = collections.namedtuple("Step", "state action reward")


def replays():
    """A buffer of what was met, each of one size, but for how many there are."""
    buffer, episode = collections.deque(maxlen=10000), []
    for i in range(MANY):
        episode.append(Step(torch.randint(1000, (32,)), 1, 0.5))
        if len(episode) == 7:
            buffer.extend(episode)
            episode = []
        if len(buffer) >= BATCH:
            x = torch.stack([s.state for s in draw.sample(list(buffer), BATCH)]).to(device)
            update(x)


class Memory:
    """Of an agent that acts by chance or by its network, in one state after the other."""

    def __init__(self):
        self.states, self.steps = collections.deque(maxlen=BATCH), 0

    def acts(self, state):
        self.steps += 1
        if draw.random() > 0.9:
            with torch.no_grad():
                return model(state).max(2).indices.view(-1)[:1]
        return torch.tensor([[self.sample()]], device=device)

    def sample(self):
        return draw.randrange(1000)


def an_agent():
    memory = Memory()
    for i in range(MANY):
        action = memory.acts(torch.zeros(1, 1, dtype=torch.long, device=device))
        if draw.random() < 0.1:
            action = draw.randrange(6)
        memory.states.append([action.numel() if torch.is_tensor(action) else action] * 32)
        if len(memory.states) == BATCH:
            update(torch.tensor(list(memory.states), device=device))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
