"""Programs that bring kernels of their own, or arrange memory their own way, for compiled_test.go: compiled.py CASE.

Nothing in here knows that the GPU is virtual.
"""
import sys

import torch
from torch import nn

try:  # the decorated functions look their names up here
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

DEVICE = "cuda"
STEPS = 50


def mlp(width=1024):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.LayerNorm(4 * width), nn.Linear(4 * width, width)).to(DEVICE)


def train(model, forward, batch=lambda: torch.randn(4096, 1024, device=DEVICE), optimizer=None, set_to_none=True):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(STEPS):
        x = batch()
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = forward(x).square().mean()
        loss.backward()
        optimizer.step()


def eager():
    model = mlp()
    train(model, model)


def default():
    model = mlp()
    train(model, torch.compile(model))


def reduce_overhead():
    model = mlp()
    train(model, torch.compile(model, mode="reduce-overhead"))


def max_autotune():
    model = mlp().to(torch.bfloat16)
    train(model, torch.compile(model, mode="max-autotune"), lambda: torch.randn(4096, 1024, device=DEVICE, dtype=torch.bfloat16))


def max_autotune_no_cudagraphs():
    model = mlp().to(torch.bfloat16)
    train(model, torch.compile(model, mode="max-autotune-no-cudagraphs"), lambda: torch.randn(4096, 1024, device=DEVICE, dtype=torch.bfloat16))


def fullgraph():
    model = mlp()
    train(model, torch.compile(model, fullgraph=True))


def dynamic():
    model, sizes = mlp(), iter([512, 2048, 3072, 4096] * STEPS)
    train(model, torch.compile(model, dynamic=True), lambda: torch.randn(next(sizes), 1024, device=DEVICE))


def aot_eager():
    model = mlp()
    train(model, torch.compile(model, backend="aot_eager"))


def compiled_optimizer():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    step = torch.compile(optimizer.step)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4096, 1024, device=DEVICE)).square().mean().backward()
        step()


def graph_break():
    model = mlp()

    @torch.compile
    def forward(x):
        y = model(x)
        print("a break")
        return y * 2

    train(model, forward)


def flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    attend = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 1024, 1024, device=DEVICE)
    inputs = nn.Linear(512, 3 * 512, device=DEVICE, dtype=torch.bfloat16)

    def forward(x):
        q, k, v = (t.unflatten(-1, (8, 64)).transpose(1, 2) for t in inputs(x).chunk(3, -1))
        return attend(q, k, v, block_mask=mask)

    train(inputs, forward, lambda: torch.randn(4, 1024, 512, device=DEVICE, dtype=torch.bfloat16))


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    model = mlp()
    train(model, torch.compile(lambda x: checkpoint(model, x, use_reentrant=False)))


def triton_kernel():
    @triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 512, 1024) for w in (2, 4, 8)], key=["n"])
    @triton.jit
    def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)

    def run(x):
        x = x.contiguous()
        y = torch.empty_like(x)
        double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return run(x)

        @staticmethod
        def backward(ctx, grad):
            return run(grad)

    model = mlp()
    train(model, lambda x: Double.apply(model(x)))
    print("the best:", double.best_config)


def triton_matmul():
    """A kernel with shared memory beyond the default, and heuristics that ask the device."""
    @triton.jit
    def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
        k = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for at in range(0, K, BK):
            total += tl.dot(tl.load(a + m[:, None] * K + at + k[None, :]), tl.load(b + (at + k)[:, None] * N + n[None, :]))
        tl.store(c + m[:, None] * N + n[None, :], total)

    properties = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
    assert properties["multiprocessor_count"] > 1 and properties["max_shared_mem"] > 48 * 1024, properties
    a = torch.randn(1024, 1024, device=DEVICE, dtype=torch.bfloat16)
    c = torch.empty(1024, 1024, device=DEVICE)
    compiled = matmul[(8, 8)](a, a, c, 1024, 1024, 1024, BM=128, BN=128, BK=64, num_stages=4, num_warps=8)
    print("shared", compiled.metadata.shared, "registers", compiled.n_regs, "spills", compiled.n_spills)
    print("milliseconds", triton.testing.do_bench(lambda: matmul[(8, 8)](a, a, c, 1024, 1024, 1024, BM=128, BN=128, BK=64)))
    model = mlp()
    train(model, model)


def graphed_callables():
    model = mlp()
    sample = torch.randn(4096, 1024, device=DEVICE, requires_grad=True)
    model = torch.cuda.make_graphed_callables(model, (sample,))
    train(model, model, lambda: torch.randn(4096, 1024, device=DEVICE, requires_grad=True))


def whole_graph():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=True)
    x = torch.randn(4096, 1024, device=DEVICE)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step()
    for _ in range(STEPS):
        x.copy_(torch.randn(4096, 1024, device=DEVICE))
        graph.replay()


def private_pools():
    pool = torch.cuda.graph_pool_handle()
    graphs, outputs = [], []
    x = torch.randn(1 << 20, device=DEVICE)
    for _ in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outputs.append((x * 2 + 1).relu())
        graphs.append(graph)
    for graph in graphs:
        graph.replay()
    model = mlp()
    train(model, model)


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
