"""A short training with a library that brings kernels of its own: bnb8 and bnb4 (bitsandbytes), xformers."""
import sys

import torch

case = sys.argv[1]
width, depth = 2048, 8
x = torch.randn(64, width, device="cuda")
if case == "bnb8":
    import bitsandbytes

    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(depth)]).cuda()
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-3)
elif case == "bnb4":
    import bitsandbytes

    frozen = [bitsandbytes.nn.Linear4bit(width, width, compute_dtype=torch.bfloat16) for _ in range(depth)]
    head = torch.nn.Linear(width, width)
    model = torch.nn.Sequential(*frozen, head).cuda()
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
elif case == "xformers":
    import xformers.ops

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(width, 3 * width)

        def forward(self, x):
            q, k, v = self.qkv(x).view(4, -1, 3, width // 64, 64).unbind(2)
            return xformers.ops.memory_efficient_attention(q, k, v, attn_bias=xformers.ops.LowerTriangularMask())

    model = Attention().cuda().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, 1024, width, device="cuda", dtype=torch.half)
else:
    sys.exit("unknown case: " + case)
for _ in range(6):
    optimizer.zero_grad(set_to_none=True)
    model(x).float().square().mean().backward()
    optimizer.step()
