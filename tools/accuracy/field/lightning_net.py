"""The network, data and trainer that the programs of Lightning here share."""
import lightning as L
import torch
from torch import nn


class Data(torch.utils.data.Dataset):
    def __init__(self, rows=640):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        return torch.randn(64, 256), i % 10


class Net(L.LightningModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.save_hyperparameters()
        self.lr = 1e-3
        self.backbone = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, norm_first=True), 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.backbone(x).mean(1))

    def training_step(self, batch, i):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, i):
        x, y = batch
        out = self(x)
        self.log("val_loss", nn.functional.cross_entropy(out, y))
        self.log("val_acc", (out.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], self.lr)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]

    def train_dataloader(self):
        return torch.utils.data.DataLoader(Data(), self.hparams.batch_size, shuffle=True)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(Data(128), self.hparams.batch_size)
