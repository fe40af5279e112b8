"""flex_attention with a mask of documents, compiled."""
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

flex = torch.compile(flex_attention)
document = (torch.arange(512) // 100).cuda()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(512, 1536), nn.Linear(512, 512)

    def forward(self, x, mask):
        q, k, v = (part.view(*x.shape[:2], 8, 64).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return x + self.out(flex(q, k, v, block_mask=mask).transpose(1, 2).reshape(x.shape))


blocks = nn.ModuleList(Block() for _ in range(3)).cuda()
optimizer = torch.optim.AdamW(blocks.parameters())
mask = create_block_mask(lambda b, h, q, k: (document[q] == document[k]) & (q >= k), None, None, 512, 512, device="cuda")
for step in range(8):
    x = torch.randn(4, 512, 512, device="cuda")
    for block in blocks:
        x = block(x, mask)
    loss = x.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
