"""Train only on the samples that the model gets wrong: how much memory that takes depends on values, not on shapes.

gresize answers `unknown` for such a script and leaves the job alone. A plain PyTorch script all the same.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def main():
    print(f"training on {torch.cuda.get_device_name()}", flush=True)
    model = nn.Sequential(nn.Linear(1024, 8192), nn.ReLU(), nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 100)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(12):
        samples, labels = torch.randn(4096, 1024).cuda(), torch.randint(0, 100, (4096,)).cuda()
        with torch.no_grad():
            wrong = model(samples).argmax(dim=1) != labels
        hard, target = samples[wrong], labels[wrong]
        if hard.shape[0] == 0:
            continue
        loss = F.cross_entropy(model(hard), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("done: 12 steps", flush=True)


if __name__ == "__main__":
    main()
