"""A small model, and buffers of two sizes that never live at one time: what PyTorch keeps of the first is of no use for the second. With an argument, on another stream."""
import sys

import torch

MIB = 1 << 20
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
stream = torch.cuda.Stream() if len(sys.argv) > 1 else torch.cuda.current_stream()
for _ in range(6):
    model(torch.randn(1024, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.cuda.stream(stream):
        for size in 300 * MIB, 400 * MIB:
            buffer = torch.empty(size, dtype=torch.uint8, device="cuda")
            del buffer
