"""Loaders whose batches have several sizes: largest.py CASE. Of the samples one in a thousand is long, and comes late."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LONG, SHORT, WORDS, BATCH = 512, 40, 4096, 16


class Texts(Dataset):
    def __init__(self, samples=1000, longest=LONG, length=None):
        self.samples, self.longest, self.length = samples, longest, length

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        length = self.length(i) if self.length else self.longest if i == self.samples - 7 else 8 + i % (SHORT - 8)
        return torch.ones(length, dtype=torch.int64)


def padded(batch):
    return nn.utils.rnn.pad_sequence(batch, batch_first=True)


def train(data, collate=padded, epochs=2):
    net = nn.Sequential(nn.Embedding(WORDS, 64), nn.Linear(64, WORDS)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(epochs):
        for words in DataLoader(data, BATCH, collate_fn=collate):
            words = words.cuda()
            loss = nn.functional.cross_entropy(net(words).flatten(0, 1), words.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def a_long_one():
    train(Texts())


def cut_to_a_length():
    """More than there is time to ask for, many of which are cut to one length."""
    train(Texts(10**7, length=lambda i: min(8 + i * 7 % 900, LONG)), epochs=1)


def too_many():
    """More than there is time to ask for, each a little longer."""
    train(Texts(10**7, length=lambda i: 8 + i * 500 // 10**7), epochs=1)


def by_chance():
    """Each time another length: the data set does not say how long one may be."""
    train(Texts(length=lambda i: int(torch.randint(8, SHORT, ()))))


globals()[sys.argv[1]]()
