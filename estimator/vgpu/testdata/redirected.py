"""A program that asks for a GPU in every way that the mode "profile" leads to the CPU."""
import sys
import threading

import torch
import torch.nn.functional as F

device = torch.device("cuda")
if not torch.cuda.is_available() or torch.cuda.device_count() != 1:
    sys.exit("no card")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(256, 512)
        self.down = torch.nn.Linear(512, 256)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x)))


model = torch.nn.Sequential(Block(), Block(), torch.nn.BatchNorm1d(256), torch.nn.Linear(256, 10)).cuda()
model.to("cuda:0")
with device:
    assert torch.ones(3).device.type == "cpu"
assert torch.zeros(3, device="cuda").device.type == "cpu"
assert torch.arange(3).to(torch.zeros(1, device=device)).sum().item() == 3
in_thread = []
other = threading.Thread(target=lambda: in_thread.append(torch.ones(2).cuda().sum().item()))
other.start()
other.join()
assert in_thread == [2.0]
half = sys.argv[1:] == ["half"]
if sys.argv[1:] == ["left"]:
    torch.cuda.FloatTensor(1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.cuda.amp.GradScaler()
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
stream = torch.cuda.Stream()
compiled = torch.compile(model)
for step in range(10):
    x = torch.randn(1024, 256).pin_memory()
    with torch.cuda.stream(stream):
        x = x.to(device, non_blocking=True)
        assert x.to(device) is x  # it is there
        x.record_stream(stream)
    y = torch.randint(0, 10, (1024,)).cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16, enabled=half):
        loss = F.cross_entropy(compiled(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    torch.cuda.synchronize()
    print("step", step, 1 < loss.item() < 4)
