"""kornia: augmentations on the card and a differentiable warp in front of a small network."""
import kornia.augmentation as K
import torch
from kornia.geometry.transform import get_rotation_matrix2d, warp_affine
from torch import nn

augment = K.AugmentationSequential(K.RandomHorizontalFlip(), K.RandomAffine(15.0, p=0.8), K.ColorJitter(0.2, 0.2, 0.2, 0.1, p=0.8), K.RandomErasing(p=0.5), K.RandomGaussianBlur((3, 3), (0.1, 2.0)), data_keys=["input"])
model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(128, 3, 96, 96), torch.randint(10, (128,))), 32, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        x = augment(x.cuda())
        turn = get_rotation_matrix2d(torch.full((len(x), 2), 48.0), torch.rand(len(x)) * 10, torch.ones(len(x), 2)).cuda()
        loss = nn.functional.cross_entropy(model(warp_affine(x, turn, (96, 96))), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
