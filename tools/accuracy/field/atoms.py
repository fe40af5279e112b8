"""Potentials of atoms: atoms.py ani|mace|schnet: energies and forces."""
import sys

import torch
from torch import nn

name = sys.argv[1]
torch.manual_seed(0)
if name == "ani":
    import torchani

    aev = torchani.AEVComputer.like_2x() if hasattr(torchani, "AEVComputer") else None
    nets = [nn.Sequential(nn.Linear(aev.out_dim if hasattr(aev, "out_dim") else aev.aev_length, 160), nn.CELU(0.1), nn.Linear(160, 96), nn.CELU(0.1), nn.Linear(96, 1)) for _ in range(7)]
    aev, nets = aev.cuda(), nn.ModuleList(nets).cuda()
    optimizer = torch.optim.AdamW(nets.parameters(), 1e-3)
    for step in range(8):
        species = torch.randint(0, 4, (32, 12)).cuda()
        coordinates = (torch.rand(32, 12, 3) * 4).cuda().requires_grad_()
        features = aev(species, coordinates) if torch.is_tensor(aev(species, coordinates)) else aev((species, coordinates)).aevs
        energies = sum((nets[k](features[species == k])).sum() for k in range(4))
        forces = torch.autograd.grad(energies, coordinates, create_graph=True)[0]
        loss = energies.square() / 32 + forces.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
elif name == "mace":
    import os

    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # as its commands do
    import numpy as np
    from e3nn import o3
    from mace import data, modules, tools
    from mace.tools import torch_geometric

    tools.torch_tools.set_default_dtype("float32")
    table = tools.AtomicNumberTable([1, 6, 8])
    rng = np.random.default_rng(0)
    configs = [data.Configuration(atomic_numbers=rng.choice([1, 6, 8], 12), positions=rng.random((12, 3)) * 4, properties={"energy": -1.0, "forces": rng.random((12, 3))}, property_weights={"energy": 1.0, "forces": 1.0}) for _ in range(32)]
    loader = torch_geometric.dataloader.DataLoader([data.AtomicData.from_config(c, z_table=table, cutoff=4.0) for c in configs], 8, shuffle=True)
    model = modules.ScaleShiftMACE(
        r_max=4.0, num_bessel=8, num_polynomial_cutoff=5, max_ell=2, interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes["RealAgnosticResidualInteractionBlock"], num_interactions=2, num_elements=3, hidden_irreps=o3.Irreps("32x0e + 32x1o"),
        MLP_irreps=o3.Irreps("16x0e"), atomic_energies=np.array([[-1.0, -3.0, -5.0]]), avg_num_neighbors=8, atomic_numbers=table.zs, correlation=2, gate=torch.nn.functional.silu,
        atomic_inter_scale=1.0, atomic_inter_shift=0.0,
    ).cuda()
    loss_of, optimizer = modules.WeightedEnergyForcesLoss(1.0, 10.0), torch.optim.Adam(model.parameters(), 1e-3, amsgrad=True)
    for epoch in range(3):
        for batch in loader:
            batch = batch.to("cuda")
            out = model(batch.to_dict(), training=True)
            loss = loss_of(pred=out, ref=batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
else:
    import schnetpack as spk
    import schnetpack.representation as representation

    model = spk.model.NeuralNetworkPotential(
        representation=representation.SchNet(n_atom_basis=64, n_interactions=3, radial_basis=spk.nn.GaussianRBF(20, 5.0), cutoff_fn=spk.nn.CosineCutoff(5.0)),
        input_modules=[spk.atomistic.PairwiseDistances()], output_modules=[spk.atomistic.Atomwise(64, output_key="energy"), spk.atomistic.Forces()],
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    p = spk.properties
    for step in range(8):
        n, m = 12, 16
        pairs = torch.tensor([(a + 12 * k, b + 12 * k) for k in range(m) for a in range(n) for b in range(n) if a != b])
        inputs = {
            p.Z: torch.randint(1, 9, (n * m,)), p.R: torch.rand(n * m, 3) * 4, p.idx_i: pairs[:, 0], p.idx_j: pairs[:, 1], p.idx_m: torch.arange(m).repeat_interleave(n),
            p.n_atoms: torch.full((m,), n), p.offsets: torch.zeros(len(pairs), 3), p.cell: torch.zeros(m, 3, 3), p.pbc: torch.zeros(3 * m, dtype=torch.bool),
        }
        out = model({k: v.cuda() for k, v in inputs.items()})
        loss = out["energy"].square().mean() + out["forces"].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
