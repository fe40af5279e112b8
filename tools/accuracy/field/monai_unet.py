"""MONAI: a segmentation network on volumes, with sliding windows in its validation: monai_unet.py unet|swin."""
import sys

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import SwinUNETR, UNet
from monai.transforms import AsDiscrete, Compose, EnsureChannelFirstd, RandCropByPosNegLabeld, RandFlipd, ScaleIntensityd
from monai.data import CacheDataset, DataLoader, decollate_batch

generator = torch.Generator().manual_seed(0)
items = [{"image": torch.rand(80, 80, 80, generator=generator), "label": (torch.rand(80, 80, 80, generator=generator) > 0.7).float()} for _ in range(4)]
common = [EnsureChannelFirstd(["image", "label"], channel_dim="no_channel"), ScaleIntensityd("image")]
crop = RandCropByPosNegLabeld(["image", "label"], label_key="label", spatial_size=(64, 64, 64), pos=1, neg=1, num_samples=2)
train = DataLoader(CacheDataset(items, Compose(common + [crop, RandFlipd(["image", "label"], prob=0.5, spatial_axis=0)]), progress=False), 2, shuffle=True)
valid = DataLoader(CacheDataset(items[:2], Compose(common), progress=False), 1)
if sys.argv[1] == "unet":
    model = UNet(3, 1, 2, channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2).cuda()
else:
    model = SwinUNETR(in_channels=1, out_channels=2, feature_size=12, use_checkpoint=False).cuda()
loss_of, metric = DiceCELoss(to_onehot_y=True, softmax=True), DiceMetric(include_background=False, reduction="mean")
optimizer, scaler = torch.optim.AdamW(model.parameters(), 1e-4), torch.amp.GradScaler("cuda")
best = -1
for epoch in range(3):
    model.train()
    for batch in train:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = loss_of(model(batch["image"].cuda()), batch["label"].cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    model.eval()
    with torch.no_grad():
        for batch in valid:
            out = sliding_window_inference(batch["image"].cuda(), (64, 64, 64), 4, model)
            metric([AsDiscrete(argmax=True, to_onehot=2)(o) for o in decollate_batch(out)], [AsDiscrete(to_onehot=2)(y) for y in decollate_batch(batch["label"].cuda())])
    value = metric.aggregate().item()
    metric.reset()
    if value > best:
        best = value
    print(epoch, loss.item(), value)
