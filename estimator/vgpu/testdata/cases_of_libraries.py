"""Trainings whose later part needs much more, by what a library does: cases_of_libraries.py CASE [alone]. With "alone" that part comes at once, which shows its figure."""
import sys

import torch
from torch import nn

ALONE = sys.argv[2:] == ["alone"]


def search():
    """Candidates of scikit-learn's GridSearchCV, of which the last is large."""
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.model_selection import GridSearchCV

    class Mlp(ClassifierMixin, BaseEstimator):
        def __init__(self, width=64):
            self.width = width

        def fit(self, x, y):
            self.classes_ = np.unique(y)
            with torch.device("cuda"):
                self.net = nn.Sequential(nn.Linear(64, self.width), nn.ReLU(), nn.Linear(self.width, self.width), nn.ReLU(), nn.Linear(self.width, 2))
            optimizer = torch.optim.SGD(self.net.parameters(), 1e-3, momentum=0.9)
            for _ in range(50):
                for i in range(0, len(x), 64):
                    batch, labels = torch.from_numpy(x[i : i + 64]).cuda(), torch.from_numpy(y[i : i + 64]).cuda()
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(self.net(batch), labels).backward()
                    optimizer.step()
            return self

        def predict(self, x):
            with torch.no_grad():
                return self.net(torch.from_numpy(x).cuda()).argmax(1).cpu().numpy()

    x = np.random.default_rng(0).standard_normal((600, 64)).astype("float32")
    y = (x[:, 0] > 0).astype("int64")
    GridSearchCV(Mlp(), {"width": [16384] if ALONE else [256, 4096, 16384]}, cv=3, error_score="raise").fit(x, y)


def lightning():
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, norm_first=True, dropout=0.0)
            self.backbone, self.head = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(768, 10)

        def training_step(self, batch, i):
            return nn.functional.cross_entropy(self.head(self.backbone(batch[0]).mean(1)), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], 1e-3)

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 2560

        def __getitem__(self, i):
            return torch.randn(197, 768), i % 10

    def fit(net, epochs, callbacks=()):
        trainer = lightning.Trainer(max_epochs=epochs, accelerator="gpu", devices=1, callbacks=list(callbacks), logger=False, enable_checkpointing=False)
        trainer.fit(net, torch.utils.data.DataLoader(Data(), 64))

    return Net(), fit


def unfrozen():
    """A callback of Lightning's frees the backbone at epoch 30."""
    net, fit = lightning()
    from lightning.pytorch.callbacks import BackboneFinetuning

    fit(net, 40, [] if ALONE else [BackboneFinetuning(unfreeze_backbone_at_epoch=30)])


def second_fit():
    """A second call of a library's loop in the program's own main."""
    net, fit = lightning()
    if not ALONE:
        net.backbone.requires_grad_(False)
        fit(net, 5)
    net.backbone.requires_grad_(True)
    fit(net, 20)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
