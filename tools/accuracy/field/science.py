"""Science: science.py fno|gp|vae|ode|pinn, as the libraries' own examples are."""
import sys

import numpy as np
import torch
from torch import nn

name = sys.argv[1]


def loop(model, loader, loss_of, epochs=3):
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(epochs):
        for batch in loader:
            loss = loss_of(*[b.cuda() for b in batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


def data(*tensors, batch=16):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), batch, shuffle=True)


if name == "fno":
    from neuralop.losses import H1Loss
    from neuralop.models import FNO

    model = FNO(n_modes=(16, 16), hidden_channels=32, in_channels=1, out_channels=1).cuda()
    h1 = H1Loss(d=2)
    loop(model, data(torch.randn(64, 1, 64, 64), torch.randn(64, 1, 64, 64)), lambda x, y: h1(model(x), y))
elif name == "gp":
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 600).cuda()
    y = torch.sin(6 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(x, y, likelihood).cuda()
    optimizer, mll = torch.optim.Adam(model.parameters(), 0.1), gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train(), likelihood.train()
    for i in range(20):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        print(i, loss.item(), model.kernel.base_kernel.lengthscale.item())
        optimizer.step()
    model.eval(), likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        print(likelihood(model(torch.linspace(0, 1, 200).cuda())).mean[:2])
elif name == "vae":
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO

    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Sequential(nn.Linear(784, 400), nn.Softplus(), nn.Linear(400, 100)), nn.Sequential(nn.Linear(50, 400), nn.Softplus(), nn.Linear(400, 784))

        def model(self, x):
            pyro.module("decoder", self.decoder)
            with pyro.plate("data", x.shape[0]):
                z = pyro.sample("z", dist.Normal(x.new_zeros(x.shape[0], 50), x.new_ones(x.shape[0], 50)).to_event(1))
                pyro.sample("x", dist.Bernoulli(self.decoder(z).sigmoid(), validate_args=False).to_event(1), obs=x)

        def guide(self, x):
            pyro.module("encoder", self.encoder)
            with pyro.plate("data", x.shape[0]):
                mean, scale = self.encoder(x).chunk(2, -1)
                pyro.sample("z", dist.Normal(mean, scale.exp()).to_event(1))

    vae = Vae().cuda()
    svi = SVI(vae.model, vae.guide, pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO())
    for epoch in range(3):
        print(epoch, sum(svi.step(x.cuda()) for (x,) in data(torch.rand(1024, 784), batch=128)))
elif name == "ode":
    from torchdiffeq import odeint_adjoint as odeint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 2))

        def forward(self, t, y):
            return self.net(y**3)

    field, t = Field().cuda(), torch.linspace(0, 1, 10).cuda()
    optimizer = torch.optim.RMSprop(field.parameters(), 1e-3)
    for step in range(8):
        optimizer.zero_grad()
        loss = (odeint(field, torch.randn(64, 2).cuda(), t) - torch.randn(10, 64, 2).cuda()).abs().mean()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
else:
    import os

    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde as dde

    def equation(x, y):
        return dde.grad.hessian(y, x) + np.pi**2 * torch.sin(np.pi * x)

    geometry = dde.geometry.Interval(-1, 1)
    problem = dde.data.PDE(geometry, equation, dde.icbc.DirichletBC(geometry, lambda x: 0 * x[:, :1], lambda _, on: on), 256, 2, num_test=100)
    model = dde.Model(problem, dde.nn.FNN([1] + [128] * 3 + [1], "tanh", "Glorot uniform"))
    model.compile("adam", lr=1e-3)
    model.train(iterations=60, display_every=20)
