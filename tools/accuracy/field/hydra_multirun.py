"""A sweep of hydra: hydra_multirun.py --multirun width=256,1024,4096."""
import hydra
import torch
from omegaconf import OmegaConf
from hydra.core.config_store import ConfigStore
from torch import nn

ConfigStore.instance().store("config", OmegaConf.create({"width": 256, "epochs": 3, "hydra": {"sweep": {"dir": "/tmp/field-hydra"}, "run": {"dir": "/tmp/field-hydra"}}}))


@hydra.main(version_base=None, config_name="config")
def main(cfg):
    model = nn.Sequential(nn.Linear(128, cfg.width), nn.ReLU(), nn.Linear(cfg.width, cfg.width), nn.ReLU(), nn.Linear(cfg.width, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(512, 128), torch.randint(10, (512,))), 64, shuffle=True)
    for epoch in range(cfg.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(cfg.width, epoch, total)


main()
