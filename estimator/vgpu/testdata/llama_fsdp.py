"""A Llama-like model of 70 B parameters under FSDP2, built on meta, sharded, and made on the device: run by torchrun on many GPUs."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=80)
parser.add_argument("--width", type=int, default=8192)
parser.add_argument("--hidden", type=int, default=28672)
parser.add_argument("--heads", type=int, default=64)
parser.add_argument("--key-heads", type=int, default=8)
parser.add_argument("--vocabulary", type=int, default=128256)
parser.add_argument("--length", type=int, default=4096)
parser.add_argument("--batch", type=int, default=1)
options = parser.parse_args()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = options.width // options.heads
        self.query = nn.Linear(options.width, options.width, bias=False)
        self.key = nn.Linear(options.width, options.key_heads * self.each, bias=False)
        self.value = nn.Linear(options.width, options.key_heads * self.each, bias=False)
        self.out = nn.Linear(options.width, options.width, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, options.heads, self.each).transpose(1, 2)
        key = self.key(x).view(batch, length, options.key_heads, self.each).transpose(1, 2)
        value = self.value(x).view(batch, length, options.key_heads, self.each).transpose(1, 2)
        times = options.heads // options.key_heads
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        x = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(x.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.RMSNorm(options.width), nn.RMSNorm(options.width)
        self.attention = Attention()
        self.gate = nn.Linear(options.width, options.hidden, bias=False)
        self.up = nn.Linear(options.width, options.hidden, bias=False)
        self.down = nn.Linear(options.hidden, options.width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(options.vocabulary, options.width)
        self.blocks = nn.ModuleList(Block() for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.width)
        self.out = nn.Linear(options.width, options.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
with torch.device("meta"):
    model = Llama()
count = sum(p.numel() for p in model.parameters())
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
for i, block in enumerate(model.blocks):
    model.blocks[i] = checkpoint_wrapper(block)
    fully_shard(model.blocks[i], mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
for parameter in model.parameters():
    nn.init.normal_(parameter, std=0.02)
print("%.2f B parameters, rank %d of %d" % (count / 1e9, dist.get_rank(), dist.get_world_size()), flush=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for _ in range(20):
    tokens = torch.randint(0, options.vocabulary, (options.batch, options.length + 1), device="cuda")
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
