"""Programs that check, and loops that wait for values: checks.py CASE. Each runs well on a real GPU."""
import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 6


def trained(model, loss_of):
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(STEPS):
        loss_of(step).backward()
        optimizer.step()
        optimizer.zero_grad()


def drawn():
    """What draws from distributions of the card: PyTorch looks first at whether they are some."""
    d = torch.distributions
    net = nn.Linear(64, 16).cuda()

    def loss_of(step):
        h = net(torch.randn(256, 64, device="cuda"))
        mean, std = h[:, :8], F.softplus(h[:, 8:])
        policy = d.Independent(d.Normal(mean, std), 1)
        mixture = d.MixtureSameFamily(d.Categorical(logits=mean), d.LogNormal(mean, std))
        choice = torch.multinomial(mean[0].softmax(-1).detach(), 2) if step % 2 else torch.multinomial(mean.softmax(-1).detach(), 1)
        assert choice.numel()
        torch.normal(0.0, std.detach())
        return policy.log_prob(policy.sample()).mean() + mixture.log_prob(mixture.sample()).mean()

    trained(net, loss_of)


def rollout(n_steps=256):
    """Actions for many steps of an environment before the first of the optimizer, each from a distribution that PyTorch checks."""
    layer = sys.modules.get("gresize_vgpu.values.shadow_tensors")
    if layer is not None:
        layer.MOST_SECONDS = 0.01  # as in a rollout that takes long
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).cuda()
    lengths = torch.tensor([2, 6] * 4, device="cuda")

    def loss_of(step):
        actions = []
        with torch.no_grad():
            for _ in range(n_steps):
                chosen = torch.distributions.Categorical(logits=net(torch.randn(4, 8).cuda()))
                chosen.log_prob(chosen.sample())
                actions.append(chosen.sample())
        if torch.isnan(net[0].weight).any() or not torch.isfinite(net[0].weight).all():
            raise ValueError("the network has come apart")
        assert len(torch.cat(actions)) == 4 * n_steps
        assert lengths.add_(1)[0] != 0
        return net(torch.randn(1024, 8).cuda()).square().mean()

    trained(net, loss_of)


def operators():
    """Operators that look at values before they work."""
    net = nn.Linear(64, 64).cuda()
    lengths = torch.tensor([2, 6] * 4, device="cuda")

    def loss_of(step):
        x = net(torch.randn(32, 64, device="cuda"))
        torch.allclose(x, x + 1)
        mean, var = x.chunk(2, -1)
        square = net.weight @ net.weight.T + torch.eye(64, device="cuda")
        for matrix in (square, square.expand(3, 64, 64)):
            torch.linalg.cholesky(matrix), torch.linalg.inv(matrix), torch.linalg.solve(matrix, matrix), torch.linalg.eigh(matrix)
        values, _ = torch.linalg.eig(net.weight)
        radius = values.abs().max() + torch.linalg.eigvals(net.weight).abs().max()
        return radius + torch.segment_reduce(x, "mean", lengths=lengths).mean() + F.gaussian_nll_loss(mean, torch.randn(32, 32, device="cuda"), F.softplus(var))

    trained(net, loss_of)


def asserted():
    """Checks of the program's own, of values that nobody computed."""
    net = nn.Linear(64, 10).cuda()
    twin = copy.deepcopy(net)
    for a, b in zip(net.parameters(), twin.parameters()):
        assert torch.equal(a, b)
    torch.testing.assert_close(net.weight, twin.weight)
    known = torch.tensor([1, 2, 3]).cuda()
    if torch.equal(known, torch.tensor([1, 2, 4]).cuda()) or not torch.equal(known, known.clone()):
        raise SystemExit("known numbers are not compared")

    def loss_of(step):
        out = net(torch.randn(256, 64, device="cuda"))
        p = out.softmax(-1)
        if (p < 0).any() or (p > 1.001).any():
            raise ValueError("no probabilities in step %d" % step)
        assert p.min() >= 0 and p.max() <= 1
        assert out.std() > 0, "all the same"
        assert not torch.equal(p, out), f"step {step}"
        if not bool((p >= 0).all()):
            raise RuntimeError("negative: {}".format(step))
        loss = p.log().mean()
        if loss.item() > 1e9 or loss.item() < -1e9:
            raise FloatingPointError("far off")
        assert any(t.any() for t in (p, out)) and all((t > 0).all() for t in (p, out))
        return loss

    trained(net, loss_of)


def checks():
    drawn()
    operators()
    asserted()
    inverted()


def inverted():
    """A covariance that is inverted on the host."""
    import numpy

    net = nn.Linear(64, 16).cuda()

    def loss_of(step):
        z = net(torch.randn(256, 64, device="cuda"))
        covariance = torch.cov(z.detach().T) + 1e-3 * torch.eye(16, device="cuda")
        numpy.linalg.cholesky(covariance.cpu().numpy())
        inverse = torch.from_numpy(numpy.linalg.inv(covariance.cpu().numpy())).cuda()
        return ((z @ inverse) * z).sum(1).mean()

    trained(net, loss_of)


def loops():
    """Loops that end by values: until all are done, until it converges, until a draw is accepted."""
    net = nn.Linear(64, 2).cuda()

    def loss_of(step):
        h = net(torch.randn(32, 64, device="cuda"))
        angles = torch.distributions.VonMises(h[:, 0], F.softplus(h[:, 1]) + 0.1)
        done = torch.zeros(32, dtype=torch.bool, device="cuda")
        while not done.all():
            done |= torch.randn(32, device="cuda") > 1
        u = torch.ones(32, device="cuda")
        while True:
            error = (u - h[:, 0].detach()).abs().max().item()
            if error < 1e-4:
                break
        return angles.log_prob(angles.sample()).mean()

    trained(net, loss_of)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
