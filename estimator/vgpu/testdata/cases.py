"""Programs on which an answer was once wrong, refused or needlessly unsure: cases.py CASE [ARGUMENT]."""
import importlib
import sys

import torch
from torch import nn


def accumulates():
    """Gradient accumulation, with the loss of each micro-batch printed before the first step."""
    count = 32
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(count * 12):
        loss = model(torch.randn(16, 256, device="cuda")).square().mean() / count
        loss.backward()
        print("micro-batch %d: loss %.4f" % (i, loss.item()))
        if (i + 1) % count == 0:
            optimizer.step()
            optimizer.zero_grad()


class Unsqueezed(nn.Module):
    """Calls functions of the module torch, not methods."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(64, 64)

    def forward(self, x):
        y = torch.unsqueeze(self.line(x), 1)
        y = torch.cat([torch.reshape(y, (-1, 64)), torch.where(y > 0, y, 0.0).squeeze(1)])
        return torch.chunk(torch.stack([y, y]), 2)[0] + torch.arange(64, device=y.device)


def trains_compiled(model):
    compiled, optimizer = torch.compile(model, fullgraph=True, backend="aot_eager"), torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(6):
        optimizer.zero_grad()
        compiled(torch.randn(16, 64, device="cuda")).float().sum().backward()
        optimizer.step()
    print("done")


def whole_graph():
    trains_compiled(Unsqueezed().cuda())


def compiler_imported_early(how="dynamo"):
    """A library imports the compiler before anything is compiled."""
    model = Unsqueezed().cuda()
    if how == "dynamo":
        importlib.import_module("torch._dynamo")
    if how == "disabled":
        torch._dynamo.disable(lambda x: x)(1)
    if how == "wrapper":
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        model = checkpoint_wrapper(model)
    if how == "checkpoint":
        from torch.utils.checkpoint import checkpoint

        checkpoint(model, torch.randn(16, 64, device="cuda", requires_grad=True), use_reentrant=False).sum().backward()
    trains_compiled(model)


def permutes():
    """torch.randperm on the card, for sizes that take different ways there."""
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for n in (5, 14, 1000, 100000):
        print(torch.randperm(n, device="cuda").shape)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(4, 8, device="cuda")).sum().backward()
        optimizer.step()


def rollout(n_steps="2048"):
    """Actions that are drawn from distributions, each of which checks its argument, long before the first step."""
    policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).cuda()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-4)
    for update in range(20):
        observations, actions = [], []
        with torch.no_grad():
            for _ in range(int(n_steps)):
                seen = torch.randn(4, 8)
                drawn = torch.distributions.Categorical(logits=policy(seen.cuda()))
                action = drawn.sample()
                drawn.log_prob(action)
                observations.append(seen)
                actions.append(action.cpu())
        seen, action = torch.cat(observations), torch.cat(actions)
        for i in range(0, len(seen), 1024):
            loss = -torch.distributions.Categorical(logits=policy(seen[i : i + 1024].cuda())).log_prob(action[i : i + 1024].cuda()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(update, loss.item())


def windows():
    """Windows of time series, chosen by a mask that came from the host."""
    batch, size = 1024, 120
    series, mask = torch.randn(32, 700).cumsum(1), torch.ones(32, 700)
    net = nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 24)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(200):
        found = torch.stack([series, mask], 1).cuda().unfold(-1, size, 1).permute(0, 2, 3, 1).flatten(0, 1)
        valid = (found[:, :96, 1].sum(1) >= 1) & (found[:, 96:, 1].sum(1) >= 1)
        if valid.sum() == 0:
            raise Exception("no windows")
        valid = torch.nonzero(valid).squeeze(-1)
        chosen = found[valid[torch.randint(0, len(valid), (batch,), device="cuda")]]
        loss = (net(chosen[:, :96, 0]) - chosen[:, 96:, 0]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
