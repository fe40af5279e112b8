"""Train a ResNet-50 on synthetic images: a plain PyTorch script that knows nothing of gresize."""
import argparse

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class SyntheticImages(Dataset):
    """Random pictures with random labels, made on the CPU as a real data set would be read."""

    def __init__(self, length, side=224, classes=1000):
        self.length, self.side, self.classes = length, side, classes

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.rand(3, self.side, self.side), index % self.classes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    device = torch.device("cuda")
    print(f"training on {torch.cuda.get_device_name()}", flush=True)
    model = torchvision.models.resnet50(weights=None).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    loader = DataLoader(SyntheticImages(args.steps * args.batch_size), batch_size=args.batch_size,
                        num_workers=args.workers, pin_memory=True)
    model.train()
    for step, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    print(f"done: {step + 1} steps, {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB reserved at the peak", flush=True)


if __name__ == "__main__":
    main()
