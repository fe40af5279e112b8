"""Learning of pictures: lightly's SimCLR, BYOL, a ViT of vit-pytorch and a VQ-VAE: ssl_pictures.py NAME."""
import copy
import sys

import torch
import torchvision
from torch import nn

name = sys.argv[1]
pictures = torch.rand(128, 3, 64, 64)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pictures), 32, shuffle=True, drop_last=True)
resnet = torchvision.models.resnet18()
after = None
if name == "simclr":
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead

    resnet.fc = nn.Identity()
    model, loss_of = nn.Sequential(resnet, SimCLRProjectionHead(512, 512, 128)).cuda(), NTXentLoss(memory_bank_size=(256, 128)).cuda()
    step = lambda x: loss_of(model(x), model(x.flip(-1)))
elif name == "byol":
    from byol_pytorch import BYOL

    model = BYOL(resnet, image_size=64, hidden_layer="avgpool").cuda()
    step, after = model, model.update_moving_average
elif name == "vit":
    from vit_pytorch import SimpleViT

    model = SimpleViT(image_size=64, patch_size=8, num_classes=10, dim=256, depth=4, heads=8, mlp_dim=512).cuda()
    step = lambda x: nn.functional.cross_entropy(model(x), torch.randint(10, (len(x),)).cuda())
else:
    from vector_quantize_pytorch import VectorQuantize

    model = nn.ModuleDict({
        "down": nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.GELU(), nn.Conv2d(64, 64, 4, 2, 1)),
        "quantize": VectorQuantize(dim=64, codebook_size=256, accept_image_fmap=True, kmeans_init=True, threshold_ema_dead_code=2),
        "up": nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)),
    }).cuda()

    def step(x):
        codes, _, commit = model["quantize"](model["down"](x))
        return (model["up"](codes) - x).abs().mean() + commit.sum()


optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(4):
    for (x,) in loader:
        loss = step(x.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after:
            after()
    print(epoch, loss.item())
