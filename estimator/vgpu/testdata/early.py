"""A compiler that is imported before the program compiles anything, and functions of PyTorch that the program holds itself: early.py MODULE."""
import importlib
import pickle
import sys

import torch
from torch import cat, unsqueeze

assert pickle.loads(pickle.dumps(cat)) is cat and pickle.loads(pickle.dumps(torch.Tensor.add)) is torch.Tensor.add

if sys.argv[1] != "nothing":
    importlib.import_module(sys.argv[1])


class Net(torch.nn.Module):
    join = staticmethod(torch.stack)

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = self.layer(x)
        y = cat([unsqueeze(y, 1), torch.unsqueeze(y, 1)], 1)
        y = self.join([y, torch.where(y > 0, y, 0.0)])
        y = torch.reshape(torch.chunk(torch.split(y, 8, -1)[0], 2)[0], (-1, 8)) + torch.arange(8, device=y.device)
        return torch.view_as_real(torch.view_as_complex(y.reshape(-1, 4, 2)))


model = Net().cuda()
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    compiled(torch.randn(16, 64, device="cuda")).float().sum().backward()
    optimizer.step()
    torch.distributions.Categorical(logits=model.layer.weight.detach()).log_prob(torch.zeros(64, device="cuda"))
