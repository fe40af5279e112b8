"""bitsandbytes: its AdamW with states of 8 bits."""
import bitsandbytes as bnb
import torch
from torch import nn

model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.GELU())], nn.Linear(1024, 10)).cuda()
optimizer = bnb.optim.AdamW8bit(model.parameters(), 1e-3)
for step in range(12):
    loss = nn.functional.cross_entropy(model(torch.randn(64, 1024).cuda()), torch.randint(10, (64,)).cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
