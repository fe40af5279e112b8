"""Sparse tensors of the card whose sizes their indices say: sparse.py CASE. It fails where the size is not the true one."""
import sys

import torch
from torch import nn

N = 1000
generator = torch.Generator().manual_seed(0)


def trained(model, loss_of):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(6):
        loss_of(step).backward()
        optimizer.step()
        optimizer.zero_grad()


def graph(entries=20000):
    rows = torch.randint(0, N, (2, entries), generator=generator)
    rows[:, 0] = N - 1
    return rows, torch.unique(rows[0] * N + rows[1]).numel()


def known():
    """Indices of the host."""
    indices, count = graph()
    values = torch.ones(indices.shape[1], device="cuda")
    made = torch.sparse_coo_tensor(indices.cuda(), values)
    assert made.shape == (N, N), made.shape
    assert torch.sparse_coo_tensor([[0, 1, 7], [2, 0, 9]], [1.0, 2.0, 3.0], device="cuda").shape == (8, 10)
    assert torch.sparse_coo_tensor(indices, torch.ones(indices.shape[1])).cuda().coalesce()._nnz() == count
    for joined in (made.coalesce(), made.to_sparse_csr(), torch.sparse_coo_tensor(torch.stack([indices[0].cuda(), indices[1].cuda()]), values, (N, N)).coalesce()):
        assert joined._nnz() == count, (joined._nnz(), count)
        assert joined.values().shape == (count,)
    net = nn.Linear(64, 64).cuda()
    trained(net, lambda step: net(torch.randn(8, 64, device="cuda")).mean())


def unknown():
    """Indices that only the card knows, and such as are too many to be followed, and rows of a table of words that are changed alone."""
    words = nn.Embedding(N, 64, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(words.parameters())
    seen = torch.randint(0, N, (500,), generator=generator).cuda()
    words(seen).sum().backward()
    optimizer.step()
    assert words.weight.grad.coalesce()._nnz() > 0
    net = nn.Linear(64, 64).cuda()
    indices = torch.randn(2, 20000, device="cuda").mul(100).long().abs()
    large = torch.zeros(2, 1 << 20, dtype=torch.int64).cuda()
    graphs = []

    def loss_of(step):
        one = torch.sparse_coo_tensor(indices, torch.ones(20000, device="cuda"), (N, N)).coalesce()
        two = torch.sparse_coo_tensor(large, torch.ones(1 << 20, device="cuda"), (N, N)).to_sparse_csr()
        assert one._nnz() > 0 and two._nnz() > 0
        graphs.append((one, two))
        return net(torch.randn(N, 64, device="cuda")).mean()

    trained(net, loss_of)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
