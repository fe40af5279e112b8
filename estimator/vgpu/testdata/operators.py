"""Every kind of operator that asks a library of NVIDIA's for a size: operators.py CASE...

Prints one line a case: its name, the largest memory that PyTorch had allocated above what was there before, in bytes, and
"ok", or the error. Nothing in here knows that the GPU is virtual.
"""
import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda"
CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def step(module, *inputs, optimizer=torch.optim.SGD, autocast=None):
    """One training step, whatever the module gives back."""
    with torch.autocast("cuda", dtype=autocast or torch.float16, enabled=autocast is not None):
        out = module(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    out.float().mean().backward()
    optimizer(module.parameters(), 1e-3).step()


def random(*shape, **how):
    return torch.randn(*shape, device=DEVICE, **how)


# --- matrix products: cuBLAS, cuBLASLt


@case
def matmul():
    random(256, 256) @ random(256, 256)


@case
def matmul_on_two_streams():
    a = random(256, 256)
    for _ in range(2):
        with torch.cuda.stream(torch.cuda.Stream()):
            a @ a


@case
def linear_with_bias():
    step(nn.Linear(512, 512).to(DEVICE), random(64, 512))


@case
def linear_half():
    step(nn.Linear(512, 512).to(DEVICE), random(64, 512), autocast=torch.bfloat16)


@case
def int_mm():
    a = torch.ones(64, 64, dtype=torch.int8, device=DEVICE)
    torch._int_mm(a, a.t())


@case
def scaled_mm():
    a = torch.ones(64, 64, device=DEVICE).to(torch.float8_e4m3fn)
    one = torch.ones((), device=DEVICE)
    torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


@case
def baddbmm():
    torch.baddbmm(random(4, 64, 64), random(4, 64, 64), random(4, 64, 64))


# --- attention


def attention(backend, dtype, mask=None):
    q, k, v = (random(2, 8, 256, 64, dtype=dtype, requires_grad=True) for _ in range(3))
    with nn.attention.sdpa_kernel(backend):
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None).sum().backward()


@case
def attention_flash():
    attention(nn.attention.SDPBackend.FLASH_ATTENTION, torch.bfloat16)


@case
def attention_efficient():
    attention(nn.attention.SDPBackend.EFFICIENT_ATTENTION, torch.float32)


@case
def attention_efficient_mask():
    attention(nn.attention.SDPBackend.EFFICIENT_ATTENTION, torch.float32, random(2, 8, 256, 256))


@case
def attention_cudnn():
    attention(nn.attention.SDPBackend.CUDNN_ATTENTION, torch.bfloat16)


@case
def attention_math():
    attention(nn.attention.SDPBackend.MATH, torch.float32)


# --- convolutions


def convolution(module, *shape):
    step(module.to(DEVICE), random(*shape))


@case
def conv1d():
    convolution(nn.Conv1d(16, 32, 3, padding=1), 8, 16, 128)


@case
def conv2d_batchnorm():
    convolution(nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 1)), 8, 16, 32, 32)


@case
def conv3d():
    convolution(nn.Conv3d(8, 16, 3, padding=1), 2, 8, 16, 16, 16)


@case
def conv_transposed():
    convolution(nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), 4, 16, 16, 16)


@case
def conv_grouped():
    convolution(nn.Conv2d(32, 32, 3, padding=1, groups=8), 4, 32, 16, 16)


@case
def conv_depthwise():
    convolution(nn.Conv2d(32, 32, 3, padding=1, groups=32), 4, 32, 16, 16)


@case
def conv_double():
    step(nn.Conv2d(16, 16, 3, padding=1).to(DEVICE).double(), random(4, 16, 16, 16, dtype=torch.float64))


@case
def conv_channels_last_half():
    module = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()).to(DEVICE, memory_format=torch.channels_last)
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = module(random(8, 16, 32, 32).to(memory_format=torch.channels_last)).float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


@case
def conv_benchmark():
    torch.backends.cudnn.benchmark = True
    try:
        convolution(nn.Conv2d(64, 64, 3, padding=1), 8, 64, 64, 64)
    finally:
        torch.backends.cudnn.benchmark = False


@case
def conv_deterministic():
    torch.backends.cudnn.deterministic = True
    try:
        convolution(nn.Conv2d(64, 64, 3, padding=1), 8, 64, 64, 64)
    finally:
        torch.backends.cudnn.deterministic = False


@case
def conv_no_tf32():
    torch.backends.cudnn.allow_tf32 = False
    try:
        convolution(nn.Conv2d(64, 64, 3, padding=1), 8, 64, 64, 64)
    finally:
        torch.backends.cudnn.allow_tf32 = True


# --- recurrent networks and CTC


@case
def lstm():
    step(nn.LSTM(64, 128, 2, dropout=0.1).to(DEVICE), random(50, 16, 64))


@case
def lstm_bidirectional_projection():
    step(nn.LSTM(64, 128, 2, bidirectional=True, proj_size=32).to(DEVICE), random(50, 16, 64))


@case
def gru():
    step(nn.GRU(64, 128, 2).to(DEVICE), random(50, 16, 64))


@case
def rnn_half():
    step(nn.RNN(64, 128).to(DEVICE).half(), random(50, 16, 64, dtype=torch.float16))


@case
def lstm_packed():
    packed = nn.utils.rnn.pack_padded_sequence(random(50, 4, 64), torch.tensor([50, 40, 30, 20]))
    nn.LSTM(64, 128).to(DEVICE)(packed)[0].data.sum().backward()


@case
def ctc_cudnn():
    p = random(50, 8, 29, requires_grad=True).log_softmax(2)
    F.ctc_loss(p, torch.randint(1, 29, (80,), dtype=torch.int32), (50,) * 8, (10,) * 8).backward()


@case
def ctc_native():
    p = random(50, 8, 29, requires_grad=True).log_softmax(2)
    F.ctc_loss(p, torch.randint(1, 29, (8, 10), device=DEVICE), (50,) * 8, (10,) * 8).backward()


# --- Fourier transforms


@case
def fft_power_of_two():
    torch.fft.fft(random(64, 1024, dtype=torch.complex64))


@case
def fft_large_prime():
    torch.fft.fft(random(8, 10007, dtype=torch.complex64))


@case
def fft_real_and_back():
    torch.fft.irfft(torch.fft.rfft(random(64, 1000, requires_grad=True))).sum().backward()


@case
def fft_three_dimensions():
    torch.fft.fftn(random(32, 32, 32, dtype=torch.complex64))


@case
def stft():
    torch.stft(random(4, 16000), 400, 160, window=torch.hann_window(400, device=DEVICE), return_complex=True)


# --- linear algebra: cuSOLVER


@case
def linalg_cusolver():
    torch.backends.cuda.preferred_linalg_library("cusolver")
    a, b = random(64, 64), random(3, 32, 32)
    for f in (torch.linalg.inv, torch.linalg.qr, torch.linalg.svd, torch.linalg.eigh, torch.linalg.cholesky_ex, torch.linalg.lu_factor, torch.linalg.svdvals, torch.linalg.det):
        f(a)
        f(b)
    torch.linalg.solve(a, random(64, 2))
    torch.linalg.lstsq(random(64, 8), random(64, 2))
    torch.cholesky_inverse(a)
    torch.ormqr(a, random(64), random(64, 4))
    torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a), random(64, 2))


@case
def linalg_double_complex():
    a = random(48, 48, dtype=torch.complex128)
    for f in (torch.linalg.qr, torch.linalg.svd, torch.linalg.eigh, torch.linalg.inv):
        f(a)


# --- sparse: cuSPARSE


def sparse_csr(n=64):
    dense = torch.zeros(n, n)
    dense[torch.arange(n), torch.arange(n)] = 1.0
    return dense.to_sparse_csr().to(DEVICE)


@case
def sparse_matmul():
    a = sparse_csr()
    a @ random(64, 8)
    a @ random(64)
    torch.sparse.mm(a.to_sparse_coo(), random(64, 8))


@case
def sparse_coalesce():
    torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 0]]), torch.ones(3), (4, 4)).to(DEVICE).coalesce()


@case
def sparse_sampled():
    torch.sparse.sampled_addmm(sparse_csr(), random(64, 8), random(8, 64))


# --- what else runs on the device


@case
def embedding_and_dropout():
    step(nn.Sequential(nn.Embedding(100, 64), nn.Dropout(0.1), nn.LayerNorm(64)).to(DEVICE), torch.randint(0, 100, (8, 16)).to(DEVICE))


@case
def jiterator():
    torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x, T y) { return x + y; }")(random(16), random(16))


@case
def graph():
    a = random(64, 64)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        a @ a
    torch.cuda.current_stream().wait_stream(side)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        b = a @ a
    g.replay()
    assert b.shape == (64, 64)


@case
def graphed_callable():
    module = torch.cuda.make_graphed_callables(nn.Linear(32, 32).to(DEVICE), (random(8, 32, requires_grad=True),))
    module(random(8, 32, requires_grad=True)).sum().backward()


@case
def data_parallel():
    step(nn.DataParallel(nn.Linear(32, 32).to(DEVICE)), random(8, 32))


@case
def profiled():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]):
        random(64, 64) @ random(64, 64)


@case
def memory_history():
    torch.cuda.memory._record_memory_history()
    random(1024)
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.memory._dump_snapshot(os.path.join(folder, "s.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)


@case
def too_large():
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device=DEVICE)
    except torch.cuda.OutOfMemoryError as e:
        assert "Tried to allocate 1024.00 GiB" in str(e), e
    else:
        raise AssertionError("a terabyte was there")


def main(names):
    failed = 0
    torch.empty(1, device=DEVICE)
    for name in names or CASES:
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        try:
            CASES[name]()
            outcome = "ok"
        except Exception as e:
            outcome = "%s: %s" % (type(e).__name__, " ".join(str(e).split())[:300])
            failed = 1
        print("case", name, torch.cuda.max_memory_allocated() - before, outcome, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
