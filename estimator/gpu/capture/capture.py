"""Record, on a real GPU, the answers that a virtual GPU must give.

    python3 capture.py OUT.json [--seconds 60] [--only SECTION,...] [--resume] [--nccl]

Run it once per GPU model, driver and PyTorch version, on an otherwise idle GPU, with the PyTorch that the jobs use. It needs
torch only; torchvision, where present, supplies the convolution shapes. Nothing is downloaded or written besides OUT.json, which
is saved after every section, so a run cut short keeps what it has. The same script runs on the virtual GPU: compare the files.

Sections
  device        properties by name and as raw bytes, attributes by number, NVML memory figures, library and driver versions
  granularity   how much device memory one cudaMalloc of N bytes really takes
  context       device memory that a process takes before its first allocation, by module loading mode
  cudnn         cuDNN's own description of the device (JSON), which lets cuDNN >= 9.8 plan convolutions without a GPU
  first_use     device memory outside PyTorch's allocator after the first use of each library or family of kernels, in order,
                in one process; with the allocations that PyTorch's allocator saw
  ops           allocations of operators whose temporary memory comes from a library or from a device property
  convolutions  workspace of each convolution, forward and backward, over the shapes of well-known networks

Units are bytes. `allocs` lists the requests to PyTorch's caching allocator in order: a positive number is a request of that many
bytes, a negative one the end of a block. `peak` is the highest sum of live requests during the call beyond what was live before it,
`kept` what is still live after it (its outputs included), `outside` what is used on the card beyond PyTorch's reserved memory.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MiB = 1 << 20
DEV = "cuda"


class Capture:
    """The result so far, the clock, and the two ways to measure: the card's use and the allocator's trace."""

    def __init__(self, path, seconds):
        self.path, self.out = path, {}
        self.end = self.stop = time.time() + seconds

    def left(self):
        """Seconds left to the section that runs."""
        return self.stop - time.time()

    def save(self):
        with open(self.path + ".tmp", "w") as f:
            json.dump(self.out, f, separators=(",", ":"), default=str)
        os.replace(self.path + ".tmp", self.path)

    def run(self, name, fn, last):
        """Run a section; one that is not the last may take three fifths of the time that is left."""
        t = time.time()
        self.stop = self.end if last else t + (self.end - t) * 0.6
        try:
            fn(self)
        except Exception as e:  # a section that fails must not cost the others
            self.out.setdefault("errors", {})[name] = repr(e)[:500]
        self.out.setdefault("section_seconds", {})[name] = round(time.time() - t, 2)
        self.save()


def outside():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def requested(which):
    return torch.cuda.memory_stats().get(f"requested_bytes.all.{which}", 0)


def record(on=True):
    if on:
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=20000, clear_history=True)
    else:
        torch.cuda.memory._record_memory_history(enabled=None)


def events():
    return torch._C._cuda_memorySnapshot(None)["device_traces"][torch.cuda.current_device()]


def traced(fn, limit=60):
    """Run fn and return its value and what the allocator saw."""
    torch.cuda.synchronize()
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    record()
    t = time.time()
    try:
        value = fn()
        torch.cuda.synchronize()
    finally:
        trace = events()
        record(False)
    allocs = [e["size"] if e["action"] == "alloc" else -e["size"] for e in trace if e["action"] in ("alloc", "free_completed")]
    row = dict(peak=requested("peak") - before, kept=requested("current") - before, ms=round((time.time() - t) * 1e3, 2))
    row["allocs"] = allocs[:limit]
    if len(allocs) > limit:
        row["allocs_cut"] = len(allocs)
    segments = [e["size"] for e in trace if e["action"] == "segment_alloc"]
    if segments:
        row["segments"] = segments[:20]
    return value, row


def loaded(part):
    """The path of the first loaded library whose file name begins with part."""
    with open("/proc/self/maps") as f:
        paths = {line.split()[-1] for line in f if ".so" in line}
    return next((p for p in sorted(paths) if os.path.basename(p).startswith(part)), None)


def library(part, *fallback):
    for path in [loaded(part), *fallback]:
        if path:
            with contextlib.suppress(OSError):
                return ctypes.CDLL(path)
    raise OSError(f"{part}: not loaded")


class Nvml:
    """NVML's memory figures, read through the library itself: the ones that nvidia-smi and schedulers show."""

    class Memory(ctypes.Structure):
        _fields_ = [(k, ctypes.c_ulonglong) for k in ("total", "free", "used")]

    class MemoryV2(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint), ("pad", ctypes.c_uint)] + [
            (k, ctypes.c_ulonglong) for k in ("total", "reserved", "free", "used")
        ]

    def __init__(self):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.lib.nvmlInit_v2()
        self.dev = ctypes.c_void_p()
        self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.dev))

    def memory(self):
        a, b = self.Memory(), self.MemoryV2()
        b.version = ctypes.sizeof(b) | 2 << 24
        rc = self.lib.nvmlDeviceGetMemoryInfo(self.dev, ctypes.byref(a)), self.lib.nvmlDeviceGetMemoryInfo_v2(self.dev, ctypes.byref(b))
        return dict(rc=rc, total=a.total, used=a.used, free=a.free, reserved_v2=b.reserved, used_v2=b.used)


def device(cap):
    out = cap.out["device"] = dict(
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        nccl=list(torch.cuda.nccl.version()),
        python=sys.version.split()[0],
    )
    with contextlib.suppress(Exception):
        import torchvision

        out["torchvision"] = torchvision.__version__
    p = torch.cuda.get_device_properties(0)
    out["properties"] = {
        k: v if isinstance(v, (int, float, str, bool)) else str(v)
        for k in dir(p)
        if not k.startswith("_") and k not in ("uuid",)
        for v in [getattr(p, k)]
    }
    rt = library("libcudart", "libcudart.so.13", "libcudart.so.12")
    buf = ctypes.create_string_buffer(8192)
    name = "cudaGetDeviceProperties_v2" if hasattr(rt, "cudaGetDeviceProperties_v2") else "cudaGetDeviceProperties"
    rc = getattr(rt, name)(buf, 0)
    raw = bytearray(buf.raw.rstrip(b"\0"))
    raw[256:272] = bytes(16)  # the UUID of this one card
    out["cuda_device_prop"] = dict(function=name, rc=rc, bytes=len(raw), hex=raw.hex(), note="UUID at offset 256 zeroed")
    v = ctypes.c_int()
    out["cuda_attributes"] = {i: v.value for i in range(1, 200) if rt.cudaDeviceGetAttribute(ctypes.byref(v), i, 0) == 0}
    for k, f in dict(runtime_version="cudaRuntimeGetVersion", driver_version="cudaDriverGetVersion").items():
        getattr(rt, f)(ctypes.byref(v))
        out[k] = v.value
    size = ctypes.c_size_t()
    with contextlib.suppress(AttributeError):
        out["limits"] = {i: size.value for i in range(8) if rt.cudaDeviceGetLimit(ctypes.byref(size), i) == 0}
    cu = ctypes.CDLL("libcuda.so.1")
    out["driver_attributes"] = {i: v.value for i in range(1, 200) if cu.cuDeviceGetAttribute(ctypes.byref(v), i, 0) == 0}

    class Prop(ctypes.Structure):  # CUmemAllocationProp: pinned memory on device 0
        _fields_ = [
            ("type", ctypes.c_int),
            ("handle", ctypes.c_int),
            ("where", ctypes.c_int),
            ("id", ctypes.c_int),
            ("win32", ctypes.c_void_p),
            ("flags", ctypes.c_ubyte * 8),
        ]

    prop = Prop(1, 0, 1, 0)
    out["vmm_granularity"] = {
        k: size.value
        for i, k in enumerate(("minimum", "recommended"))
        if cu.cuMemGetAllocationGranularity(ctypes.byref(size), ctypes.byref(prop), i) == 0
    }
    free, total = torch.cuda.mem_get_info()
    out["mem_get_info"] = dict(free=free, total=total)
    with contextlib.suppress(OSError, AttributeError):
        out["nvml"] = Nvml().memory()
    libs = ("libcu", "libnv", "libnccl")
    with open("/proc/self/maps") as f:
        out["libraries"] = sorted(
            {os.path.basename(line.split()[-1]) for line in f if ".so" in line and os.path.basename(line.split()[-1]).startswith(libs)}
        )
    out["environment"] = {
        k: v for k, v in os.environ.items() if k.startswith(("CUDA_", "PYTORCH_", "CUBLAS", "TORCH_", "NVIDIA_TF32", "NCCL_"))
    }


def granularity(cap):
    rt = library("libcudart", "libcudart.so.13", "libcudart.so.12")
    rt.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    rt.cudaFree.argtypes = [ctypes.c_void_p]
    rows = cap.out["granularity"] = []

    def used():
        f, t = ctypes.c_size_t(), ctypes.c_size_t()
        rt.cudaMemGetInfo(ctypes.byref(f), ctypes.byref(t))
        return t.value - f.value

    torch.cuda.synchronize()
    for size, count in [
        (1, 1),
        (1, 64),
        (512 << 10, 1),
        (512 << 10, 8),
        (MiB, 1),
        (MiB, 8),
        (MiB + 1, 4),
        (2 * MiB, 1),
        (2 * MiB, 4),
        (2 * MiB + 1, 1),
        (2 * MiB + 1, 8),
        (3 * MiB, 1),
        (3 * MiB, 8),
        (4 * MiB, 4),
        (20 * MiB, 1),
        (20 * MiB, 8),
        (21 * MiB, 4),
        (1 << 30, 1),
    ]:
        before, ptrs = used(), []
        for _ in range(count):
            p = ctypes.c_void_p()
            if rt.cudaMalloc(ctypes.byref(p), size) == 0:
                ptrs.append(p)
        after = used()
        same = len({p.value // (2 * MiB) for p in ptrs})
        for p in ptrs:
            rt.cudaFree(p)
        rows.append(
            dict(
                bytes=size,
                count=len(ptrs),
                used=after - before,
                left_after_free=used() - before,
                distinct_2mib=same,
                align=min((p.value & -p.value) for p in ptrs) if ptrs else 0,
            )
        )


BARE = """
import ctypes, json, sys
rt = ctypes.CDLL(sys.argv[1]); f, t = ctypes.c_size_t(), ctypes.c_size_t()
out = {}
try:
    n = ctypes.CDLL('libnvidia-ml.so.1'); n.nvmlInit_v2(); d = ctypes.c_void_p(); n.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d)); m = (ctypes.c_ulonglong * 3)()
    n.nvmlDeviceGetMemoryInfo(d, m); out['nvml_used_before'] = m[2]
except OSError: n = None
rt.cudaFree(None); rt.cudaMemGetInfo(ctypes.byref(f), ctypes.byref(t)); out['used'] = t.value - f.value
if n: n.nvmlDeviceGetMemoryInfo(d, m); out['nvml_used'] = m[2]
print(json.dumps(out))
"""


def context(cap):
    """What other processes add on the card while this one holds its own context: a bare context, lazily and eagerly loaded."""
    out = cap.out["context"] = dict(here=outside())
    path = loaded("libcudart")
    for mode in ("LAZY", "EAGER"):
        before = outside()
        p = subprocess.run(
            [sys.executable, "-c", BARE, path], capture_output=True, text=True, env={**os.environ, "CUDA_MODULE_LOADING": mode}
        )
        out["bare_" + mode.lower()] = dict(before=before, **json.loads(p.stdout)) if p.returncode == 0 else p.stderr[-300:]


def cudnn(cap):
    """cuDNN's description of the device. The numbers are those of cudnn_backend.h: device property descriptor 38, its
    attributes device ordinal 2700, handle 2701 and JSON 2702; attribute types handle 0, int64 3, int32 23, char 24."""
    out = cap.out["cudnn"] = dict(attempts=[])
    torch.backends.cudnn.version()
    F.conv2d(torch.ones(1, 1, 8, 8, device=DEV), torch.ones(1, 1, 3, 3, device=DEV))
    lib = library("libcudnn.so", "libcudnn.so.9")
    lib.cudnnGetVersion.restype = ctypes.c_size_t
    out["version"] = lib.cudnnGetVersion()
    lib.cudnnBackendSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p]
    lib.cudnnBackendGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    lib.cudnnBackendFinalize.argtypes = lib.cudnnBackendDestroyDescriptor.argtypes = [ctypes.c_void_p]
    handle = ctypes.c_void_p()
    out["create_rc"] = lib.cudnnCreate(ctypes.byref(handle))
    ways = [("handle", 2701, 0, handle), ("device_id_int32", 2700, 23, ctypes.c_int32(0)), ("device_id_int64", 2700, 3, ctypes.c_int64(0))]
    for name, attr, kind, value in ways:
        desc, count, row = ctypes.c_void_p(), ctypes.c_int64(0), dict(way=name)
        out["attempts"].append(row)
        row["create"] = lib.cudnnBackendCreateDescriptor(38, ctypes.byref(desc))
        if row["create"]:
            continue
        row["set"] = lib.cudnnBackendSetAttribute(desc, attr, kind, 1, ctypes.byref(value))
        row["finalize"] = lib.cudnnBackendFinalize(desc) if row["set"] == 0 else None
        if row["finalize"] == 0:
            row["count_rc"] = lib.cudnnBackendGetAttribute(desc, 2702, 24, 0, ctypes.byref(count), None)
            row["count"] = count.value
            size = count.value if 0 < count.value < 1 << 22 else 1 << 18
            buf = ctypes.create_string_buffer(size + 1)
            row["get"] = lib.cudnnBackendGetAttribute(desc, 2702, 24, size, ctypes.byref(count), buf)
            if row["get"] == 0 and buf.value:
                out.setdefault("device_json", buf.value.decode("utf-8", "replace"))
                row["same"] = buf.value.decode("utf-8", "replace") == out["device_json"]
        lib.cudnnBackendDestroyDescriptor(desc)


def rand(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape, device=DEV, dtype=dtype).requires_grad_(grad)


def sdpa(backend, dtype, b=2, h=8, s=512, d=64, causal=True):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (rand(b, h, s, d, dtype=dtype, grad=True) for _ in range(3))
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def optimize(kind, dtype=torch.float32, **kw):
    p = [rand(1000, 100, dtype=dtype, grad=True) for _ in range(4)]
    for q in p:
        q.grad = torch.ones_like(q)
    getattr(torch.optim, kind)(p, lr=0.1, **kw).step()


def scaled():
    p = [rand(100, 10, grad=True)]
    o, s = torch.optim.SGD(p, lr=0.1), torch.amp.GradScaler(DEV)
    s.scale(p[0].sum()).backward()
    s.step(o)
    s.update()


def nccl():
    import torch.distributed as dist

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    dist.init_process_group("nccl", rank=0, world_size=1)
    dist.all_reduce(torch.ones(1024, device=DEV))


def graph():
    g, x = torch.cuda.CUDAGraph(), torch.ones(1024, device=DEV)
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        y = x * 2
    torch.cuda.synchronize()
    with torch.cuda.graph(g):
        y = x * 2 + 1
    g.replay()
    return y


def fp8():
    a = torch.ones(64, 64, device=DEV).to(torch.float8_e4m3fn)
    one = torch.ones((), device=DEV)
    return torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def first_use(cap):
    rows = cap.out["first_use"] = [dict(name="context", outside=outside())]
    x = y = None

    def step(name, fn, hold=False):
        nonlocal y
        try:
            y, row = traced(fn)
        except Exception as e:
            row = dict(error=repr(e)[:300])
        if not hold:
            y = None
        rows.append(dict(name=name, **row, outside=outside()))

    step("fill_kernel", lambda: torch.ones(256, 256, device=DEV))
    x = torch.ones(256, 256, device=DEV, requires_grad=True)
    c = nn.Conv2d(8, 8, 3).to(DEV)
    img = torch.ones(4, 8, 32, 32, device=DEV)
    side = torch.cuda.Stream()

    def on_side():
        with torch.cuda.stream(side):
            return x @ x

    step("philox_randn", lambda: rand(64))
    step("elementwise", lambda: (x + 1).relu().exp())
    step("reduction", lambda: x.sum(1))
    step("matmul_fp32", lambda: x @ x)
    step("matmul_fp32_again", lambda: x @ x)
    step("linear_bias_fp32", lambda: F.linear(x, x, x[0]))
    step("matmul_bf16", lambda: x.bfloat16() @ x.bfloat16())
    step("linear_bias_bf16", lambda: F.linear(x.bfloat16(), x.bfloat16(), x[0].bfloat16()))
    step("matmul_fp16", lambda: x.half() @ x.half())
    step("bmm_fp32", lambda: torch.bmm(rand(4, 64, 64), rand(4, 64, 64)))
    step("matmul_side_stream", on_side)
    step("matmul_forward", lambda: x @ x, hold=True)
    loss = y
    step("matmul_backward_thread", lambda: loss.sum().backward())
    step("fp8_scaled_mm", fp8)
    step("conv_forward", lambda: c(img), hold=True)
    conv_out = y
    step("conv_backward", lambda: conv_out.sum().backward())
    step("conv_bf16", lambda: F.conv2d(img.bfloat16(), c.weight.bfloat16(), None))
    step("conv_fp16_channels_last", lambda: F.conv2d(img.half().to(memory_format=torch.channels_last), c.weight.half(), None))
    step("conv_depthwise", lambda: F.conv2d(img, rand(8, 1, 3, 3), groups=8))
    step("conv_transpose", lambda: F.conv_transpose2d(img, c.weight))
    step("conv3d", lambda: F.conv3d(rand(1, 4, 8, 16, 16), rand(4, 4, 3, 3, 3)))
    step(
        "batch_norm",
        lambda: F.batch_norm(
            img, torch.zeros(8, device=DEV), torch.ones(8, device=DEV), torch.ones(8, device=DEV), torch.zeros(8, device=DEV), True
        ),
    )
    step("layer_norm", lambda: F.layer_norm(x, (256,)))
    step("group_norm", lambda: F.group_norm(img, 2))
    step("max_pool", lambda: F.max_pool2d(img, 2))
    step("dropout", lambda: F.dropout(x, 0.1))
    step("softmax", lambda: F.softmax(x, -1))
    step("cross_entropy", lambda: F.cross_entropy(x, torch.zeros(256, dtype=torch.long, device=DEV)).backward())
    step("lstm", lambda: nn.LSTM(64, 64).to(DEV)(rand(16, 8, 64))[0].sum().backward())
    step("gru", lambda: nn.GRU(64, 64).to(DEV)(rand(16, 8, 64))[0].sum().backward())
    for backend, dtype in [
        ("FLASH_ATTENTION", torch.bfloat16),
        ("EFFICIENT_ATTENTION", torch.bfloat16),
        ("EFFICIENT_ATTENTION", torch.float32),
        ("CUDNN_ATTENTION", torch.bfloat16),
        ("MATH", torch.bfloat16),
    ]:
        step(f"sdpa_{backend.lower()}_{str(dtype)[6:]}", lambda: sdpa(backend, dtype, s=128).sum().backward())
    step("sgd_foreach", lambda: optimize("SGD", momentum=0.9))
    step("adam_foreach", lambda: optimize("Adam"))
    step("adam_loop", lambda: optimize("Adam", foreach=False))
    step("adamw_fused", lambda: optimize("AdamW", fused=True))
    step("grad_scaler", scaled)
    step("clip_grad_norm", lambda: F.linear(x, x).norm())
    step("topk", lambda: x.topk(5))
    step("sort", lambda: x.sort())
    step("sort_large", lambda: rand(MiB).sort())
    step("cumsum", lambda: x.cumsum(0))
    step("nonzero", lambda: x.nonzero())
    step("unique", lambda: x.long().unique())
    step(
        "index_put", lambda: x.detach().clone().index_put_((torch.arange(9, device=DEV),), torch.ones(9, 256, device=DEV), accumulate=True)
    )
    step("embedding_backward", lambda: F.embedding(torch.arange(99, device=DEV), rand(1000, 64, grad=True)).sum().backward())
    step(
        "embedding_bag",
        lambda: nn.EmbeddingBag(1000, 64, mode="sum").to(DEV)(torch.zeros(8, 4, dtype=torch.long, device=DEV)).sum().backward(),
    )
    step("interpolate", lambda: F.interpolate(img, scale_factor=2, mode="bilinear"))
    step("multinomial", lambda: torch.multinomial(torch.ones(100, device=DEV), 10))
    step("randperm", lambda: torch.randperm(100000, device=DEV))
    step("jiterator", lambda: torch.special.bessel_j0(rand(64)))
    step("fft", lambda: torch.fft.fft(x.detach()))
    step("linalg_cholesky", lambda: torch.linalg.cholesky(torch.eye(64, device=DEV)))
    step("linalg_solve", lambda: torch.linalg.solve(torch.eye(64, device=DEV), torch.eye(64, device=DEV)))
    step("linalg_svd", lambda: torch.linalg.svd(rand(64, 64)))
    step("linalg_eigh", lambda: torch.linalg.eigh(torch.eye(64, device=DEV)))
    step("sparse_mm", lambda: torch.sparse.mm(torch.eye(64, device=DEV).to_sparse_csr(), torch.ones(64, 64, device=DEV)))
    step(
        "ctc",
        lambda: F.ctc_loss(
            rand(50, 4, 20, grad=True).log_softmax(-1), torch.ones(4, 10, dtype=torch.int32), torch.full((4,), 50), torch.full((4,), 10)
        ),
    )
    step("cuda_graph", graph)
    if cap.nccl:
        step("nccl_all_reduce", nccl)
    for name in ("cublas", "cublasLt"):
        rows.append(
            dict(
                name=f"{name}_environment",
                value=os.environ.get("CUBLAS_WORKSPACE_CONFIG" if name == "cublas" else "CUBLASLT_WORKSPACE_SIZE"),
            )
        )


def ops(cap):
    rows = cap.out["ops"] = []
    saved = time.time()

    def case(name, fn, backward=False, again=False, **info):
        nonlocal saved
        if cap.left() < 1:
            return
        if time.time() - saved > 3:
            cap.save()
            saved = time.time()
        row = dict(name=name, **info)
        rows.append(row)
        try:
            y, row["forward"] = traced(fn)
            if again:
                del y
                y, row["second"] = traced(fn)
            if backward:
                y = y[0] if isinstance(y, tuple) else y
                g = torch.ones_like(y)
                _, row["backward"] = traced(lambda: y.backward(g))
        except Exception as e:
            row["error"] = repr(e)[:300]
        y = None
        gc.collect()

    # cuDNN recurrent networks: weights, workspace and reserve space
    base = dict(kind="LSTM", inp=650, hidden=650, layers=2, batch=64, steps=128, bidirectional=False, dropout=0.5, dtype="float32", proj=0)
    for change in [
        {},
        dict(kind="GRU"),
        dict(kind="RNN"),
        dict(layers=1),
        dict(dropout=0.0),
        dict(bidirectional=True),
        dict(batch=32),
        dict(steps=64),
        dict(hidden=512, inp=512),
        dict(hidden=512, inp=256, layers=3, kind="GRU", bidirectional=True),
        dict(kind="GRU", inp=256, hidden=256, layers=3, batch=32, steps=800, bidirectional=True, dropout=0.0),
        dict(dtype="float16"),
        dict(dtype="bfloat16"),
        dict(proj=128),
        dict(hidden=64, inp=64, layers=1, batch=8, steps=16, dropout=0.0),
        dict(layers=4),
        dict(inp=40),
        dict(batch=1),
    ]:
        k = {**base, **change}
        dtype = getattr(torch, k["dtype"])
        extra = dict(proj_size=k["proj"]) if k["proj"] else {}
        mod, build = traced(
            lambda: getattr(nn, k["kind"])(
                k["inp"],
                k["hidden"],
                k["layers"],
                bidirectional=k["bidirectional"],
                dropout=k["dropout"] if k["layers"] > 1 else 0.0,
                device=DEV,
                dtype=dtype,
                **extra,
            )
        )
        data = rand(k["steps"], k["batch"], k["inp"], dtype=dtype, grad=True)
        case(
            "rnn",
            lambda: mod(data),
            backward=True,
            again=True,
            config=k,
            build=build,
            weights=sum(p.numel() * p.element_size() for p in mod.parameters()),
            weight_storage=mod._flat_weights[0].untyped_storage().nbytes(),
        )
        with torch.no_grad():
            case("rnn_inference", lambda: mod.eval()(data), config=k)
        del mod, data
    for t, n, c, s in [(50, 4, 20, 10), (800, 32, 64, 60), (400, 16, 64, 60), (200, 64, 128, 100), (250, 8, 32, 30)]:
        for lib, where, kind in (
            ("cudnn", "cpu", torch.int32),
            ("cudnn_device", DEV, torch.int32),
            ("native", "cpu", torch.long),
            ("native_device", DEV, torch.long),
        ):
            lens = [torch.full((n,), v, dtype=kind, device=where) for v in (t, s)]
            target = torch.ones((n * s,) if lib.startswith("cudnn") else (n, s), dtype=kind, device=where)
            logp = rand(t, n, c).log_softmax(-1).detach().requires_grad_()
            case("ctc", lambda: F.ctc_loss(logp, target, *lens), backward=True, config=[t, n, c, s], path=lib)
    for shape, fn in [
        ((256, 256), "fft"),
        ((1024, 1024), "fft"),
        ((16, 64, 64, 64), "rfft2"),
        ((8, 3, 224, 224), "fft2"),
        ((64, 1000), "fft"),
        ((32, 16000), "rfft"),
        ((4, 37, 41), "fft2"),
        ((2, 32, 32, 32), "fftn"),
        ((8, 4099), "fft"),
        ((16, 1 << 16), "rfft"),
        ((2, 1 << 20), "fft"),
        ((16, 64, 64, 64), "fft2"),
    ]:
        a = rand(*shape)
        before = outside()
        case("fft", lambda: getattr(torch.fft, fn)(a), again=True, config=[list(shape), fn])
        case("fft_complex", lambda: getattr(torch.fft, fn.replace("rfft", "ifft"))(torch.complex(a, a)), config=[list(shape), fn])
        rows.append(dict(name="fft_outside", config=[list(shape), fn], outside=outside() - before))
        del a
    for n in (64, 256, 1024):
        for batch in (1, 4):
            a = rand(batch, n, n).squeeze(0) if batch == 1 else rand(batch, n, n)
            spd = a @ a.mT + n * torch.eye(n, device=DEV)
            if batch > 1 and n > 256:
                continue
            for name, fn in dict(
                lu_factor=lambda: torch.linalg.lu_factor(a),
                cholesky=lambda: torch.linalg.cholesky(spd),
                qr=lambda: torch.linalg.qr(a),
                svd=lambda: torch.linalg.svd(a, full_matrices=False),
                eigh=lambda: torch.linalg.eigh(spd),
                inv=lambda: torch.linalg.inv(spd),
                solve=lambda: torch.linalg.solve(spd, a),
                slogdet=lambda: torch.linalg.slogdet(spd),
                lstsq=lambda: torch.linalg.lstsq(a, a),
                pinv=lambda: torch.linalg.pinv(a),
                eig=lambda: torch.linalg.eigvals(a),
                matrix_exp=lambda: torch.linalg.matrix_exp(a / n),
                cholesky_inverse=lambda: torch.cholesky_inverse(spd),
            ).items():
                if n * batch > 1000 and name in ("eig", "pinv"):
                    continue
                case("linalg_" + name, fn, config=[batch, n, n])
            if n <= 256:
                case("linalg_svd_f64", lambda: torch.linalg.svd(a.double()), config=[batch, n, n])
    for n in (1000, 100_000, MiB, 10_000_000):
        a = rand(n)
        i = torch.randint(0, n, (n,), device=DEV)
        for name, fn in dict(
            sort=lambda: a.sort(),
            argsort_int64=lambda: i.argsort(),
            topk=lambda: a.topk(10),
            unique=lambda: i.unique(),
            unique_counts=lambda: i.unique(return_counts=True),
            nonzero=lambda: (a > 0).nonzero(),
            nonzero_all=lambda: (a < 1e9).nonzero(),
            masked_select=lambda: a[a > 0],
            cumsum=lambda: a.cumsum(0),
            randperm=lambda: torch.randperm(n, device=DEV),
            multinomial=lambda: torch.multinomial(torch.ones(min(n, 1 << 20), device=DEV), 64),
            median=lambda: a.median(),
            kthvalue=lambda: a.kthvalue(3),
            mode=lambda: a[:4000].mode(),
            histc=lambda: a.histc(64),
            bincount=lambda: i.bincount(minlength=16),
            sum=lambda: a.sum(),
            argmax=lambda: a.argmax(),
            norm=lambda: a.norm(),
            var=lambda: a.var(),
            logcumsumexp=lambda: a.logcumsumexp(0),
            scatter_add=lambda: torch.zeros(n, device=DEV).scatter_add_(0, i, a),
            index_put=lambda: torch.zeros(n, device=DEV).index_put_((i,), a, accumulate=True),
            index_add=lambda: torch.zeros(n, device=DEV).index_add_(0, i, a),
            searchsorted=lambda: torch.searchsorted(a, a),
            isin=lambda: torch.isin(i, i[:100]),
            std_mean=lambda: torch.std_mean(a),
            quantile=lambda: a[:1000].quantile(0.5),
        ).items():
            case(name, fn, config=[n])
        del a, i
    for rows_, cols in [(32, 50257), (4096, 128), (1000, 1000)]:
        a = rand(rows_, cols)
        for name, fn in dict(
            sort=lambda: a.sort(-1),
            topk=lambda: a.topk(40),
            sum0=lambda: a.sum(0),
            sum1=lambda: a.sum(1),
            multinomial=lambda: torch.multinomial(a.softmax(-1), 1),
            cumsum=lambda: a.cumsum(-1),
            argmax=lambda: a.argmax(-1),
        ).items():
            case(name + "_2d", fn, config=[rows_, cols])
    for vocab, dim, count in [(50257, 768, 8192), (10000, 650, 8192), (1000000, 64, 8192), (1000, 64, 99)]:
        i = torch.randint(0, vocab, (count,), device=DEV)
        w = rand(vocab, dim, grad=True)
        case("embedding", lambda: F.embedding(i, w), backward=True, config=[vocab, dim, count])
        case("embedding_padding", lambda: F.embedding(i, w, padding_idx=0), backward=True, config=[vocab, dim, count])
        case("embedding_sparse", lambda: F.embedding(i, w, sparse=True), backward=True, config=[vocab, dim, count])
        if count % 4 == 0:
            for mode in ("sum", "mean", "max"):
                case(
                    "embedding_bag_" + mode, lambda: F.embedding_bag(i.view(-1, 4), w, mode=mode), backward=True, config=[vocab, dim, count]
                )
        del w
    for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH", None):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for b, h, s, d in [(8, 12, 1024, 64), (2, 32, 2048, 64), (2, 16, 1024, 128), (4, 12, 197, 64), (2, 8, 777, 96)]:
                if dtype == torch.float32 and backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION") or backend == "MATH" and s > 1024:
                    continue
                fn = (
                    (lambda: sdpa(backend, dtype, b, h, s, d))
                    if backend
                    else (
                        lambda: F.scaled_dot_product_attention(
                            *[rand(b, h, s, d, dtype=dtype, grad=True) for _ in range(3)], is_causal=True
                        )
                    )
                )
                case("sdpa", fn, backward=True, backend=backend, dtype=str(dtype)[6:], config=[b, h, s, d])
    mask = torch.zeros(4, 1, 512, 512, device=DEV, dtype=torch.bfloat16)
    case(
        "sdpa_mask",
        lambda: F.scaled_dot_product_attention(*[rand(4, 12, 512, 64, dtype=torch.bfloat16, grad=True) for _ in range(3)], attn_mask=mask),
        backward=True,
    )
    case(
        "sdpa_gqa",
        lambda: F.scaled_dot_product_attention(
            rand(2, 32, 512, 64, dtype=torch.bfloat16, grad=True),
            *[rand(2, 4, 512, 64, dtype=torch.bfloat16, grad=True) for _ in range(2)],
            is_causal=True,
            enable_gqa=True,
        ),
        backward=True,
    )
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for cl in (False, True):
            for shape in [(64, 64, 112, 112), (300, 64, 86, 86), (32, 256, 14, 14), (4, 8, 32, 32), (32, 512, 7, 7)]:
                a = rand(*shape, dtype=dtype, grad=False)
                a = (a.to(memory_format=torch.channels_last) if cl else a).requires_grad_()
                n = nn.BatchNorm2d(shape[1]).to(DEV)
                case("batch_norm", lambda: n(a), backward=True, config=list(shape), dtype=str(dtype)[6:], channels_last=cl)
                g = nn.GroupNorm(8, shape[1], device=DEV, dtype=dtype)
                if dtype == torch.float32:
                    case("group_norm", lambda: g(a), backward=True, config=list(shape), channels_last=cl)
                case(
                    "max_pool", lambda: F.max_pool2d(a, 3, 2, 1), backward=True, config=list(shape), dtype=str(dtype)[6:], channels_last=cl
                )
                case(
                    "interpolate",
                    lambda: F.interpolate(a, scale_factor=2, mode="bilinear"),
                    backward=True,
                    config=list(shape),
                    dtype=str(dtype)[6:],
                    channels_last=cl,
                )
                del a
    for dtype in (torch.float32, torch.bfloat16):
        for shape in [(8192, 768), (65536, 1024), (4, 100)]:
            a = rand(*shape, dtype=dtype, grad=True)
            w = rand(shape[1], dtype=dtype, grad=True)
            case("layer_norm", lambda: F.layer_norm(a, shape[1:], w, w), backward=True, config=list(shape), dtype=str(dtype)[6:])
            case("rms_norm", lambda: F.rms_norm(a, shape[1:], w), backward=True, config=list(shape), dtype=str(dtype)[6:])
            case(
                "linear",
                lambda: F.linear(a, rand(64, shape[1], dtype=dtype, grad=True), rand(64, dtype=dtype, grad=True)),
                backward=True,
                config=list(shape),
                dtype=str(dtype)[6:],
            )
            case(
                "linear_gelu",
                lambda: F.gelu(F.linear(a, rand(64, shape[1], dtype=dtype, grad=True))),
                backward=True,
                config=list(shape),
                dtype=str(dtype)[6:],
            )
    s = torch.eye(1024, device=DEV)
    for layout in ("coo", "csr"):
        m = s.to_sparse() if layout == "coo" else s.to_sparse_csr()
        case("sparse_mm_" + layout, lambda: torch.sparse.mm(m, s[:, :256].contiguous()))
        case("sparse_sparse_mm_" + layout, lambda: torch.sparse.mm(m, m))
        case("sparse_to_dense_" + layout, lambda: m.to_dense())
    case("dense_to_csr", lambda: s.to_sparse_csr())
    case("coo_coalesce", lambda: torch.sparse_coo_tensor(torch.randint(0, 99, (2, 5000), device=DEV), rand(5000), (99, 99)).coalesce())
    for kind, kw in [
        ("SGD", dict(momentum=0.9)),
        ("Adam", {}),
        ("Adam", dict(foreach=False)),
        ("AdamW", dict(fused=True)),
        ("Adam", dict(amsgrad=True)),
        ("Adagrad", {}),
        ("RMSprop", {}),
        ("Adafactor", {}),
        ("Adadelta", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("Muon", {}),
    ]:
        if hasattr(torch.optim, kind):
            case("optimizer_" + kind, lambda: optimize(kind, **kw), config=kw)
    ps = [rand(n, grad=True) for n in (1000, 10_000_000, 64)]
    for q in ps:
        q.grad = torch.ones_like(q)
    case("clip_grad_norm", lambda: nn.utils.clip_grad_norm_(ps, 1.0))
    case("clip_grad_value", lambda: nn.utils.clip_grad_value_(ps, 1.0))


def shapes(model, side):
    """The distinct convolutions of a torchvision model: input channels and size, weight shape, stride, padding, dilation, groups."""
    import torchvision

    seen = {}

    def note(m, args):
        seen.setdefault((tuple(args[0].shape[1:]), tuple(m.weight.shape), m.stride, m.padding, m.dilation, m.groups), model)

    net = getattr(torchvision.models, model)(weights=None).to("meta")
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            m.register_forward_pre_hook(note)
    net(torch.empty(2, 3, side, side, device="meta"))
    return seen


NETS = ("resnet50", "vgg19", "mobilenet_v2", "mnasnet1_0", "efficientnet_b0", "regnet_y_400mf")
#         dtype      tf32  channels_last  batch side
PASSES = [
    ("float32", True, False, 64, 224),
    ("float32", True, False, 300, 86),
    ("bfloat16", True, False, 64, 224),
    ("float16", True, True, 64, 224),
    ("float32", True, False, 32, 224),
    ("float32", False, False, 64, 224),
    ("float32", True, True, 64, 224),
    ("bfloat16", True, True, 64, 224),
    ("float16", True, False, 64, 224),
    ("float32", False, False, 300, 86),
    ("bfloat16", True, False, 300, 86),
    ("float16", True, True, 300, 86),
    ("float32", True, False, 128, 86),
    ("float32", True, False, 600, 86),
    ("float32", True, False, 8, 224),
    ("float32", True, False, 200, 224),
]


def convolutions(cap):
    rows = cap.out.setdefault("convolutions", [])
    done = {tuple(json.dumps(r[k]) for k in ("in", "w", "stride", "pad", "dil", "groups", "dtype", "tf32", "cl")) for r in rows}
    sets = {}
    for side in (224, 86):
        sets[side] = {}
        for m in NETS:
            for k, v in shapes(m, side).items():
                sets[side].setdefault(k, v)
    last = time.time()
    for dtype, tf32, cl, batch, side in PASSES:
        torch.backends.cudnn.allow_tf32 = tf32
        for (inp, w, stride, pad, dil, groups), model in sets[side].items():
            if cap.left() < 1:
                return
            key = dict(
                zip(
                    ("in", "w", "stride", "pad", "dil", "groups", "dtype", "tf32", "cl"),
                    ([batch, *inp], list(w), list(stride), list(pad), list(dil), groups, dtype, tf32, cl),
                )
            )
            if tuple(json.dumps(v) for v in key.values()) in done:
                continue
            row = dict(**key, net=model, side=side)
            try:
                convolution(row, (batch, *inp), w, stride, pad, dil, groups, getattr(torch, dtype), cl)
            except Exception as e:
                row["error"] = repr(e)[:200]
            rows.append(row)
            if torch.cuda.memory_reserved() > torch.cuda.get_device_properties(0).total_memory // 2:
                torch.cuda.empty_cache()
            if time.time() - last > 15:
                cap.save()
                last = time.time()


def convolution(row, shape, w, stride, pad, dil, groups, dtype, cl):
    fmt = torch.channels_last if cl else torch.contiguous_format
    x = torch.empty(shape, device=DEV, dtype=dtype, memory_format=fmt)
    k = torch.empty(w, device=DEV, dtype=dtype, memory_format=fmt)
    forward = lambda: torch.ops.aten.convolution(x, k, None, stride, pad, dil, False, [0, 0], groups)
    y = None

    def measure(name, fn):
        base = requested("current")
        torch.cuda.reset_peak_memory_stats()
        record()
        t = time.time()
        got = fn()
        torch.cuda.synchronize()
        ms = (time.time() - t) * 1e3
        out = sum(g.untyped_storage().nbytes() for g in (got if isinstance(got, tuple) else (got,)) if g is not None)
        sizes = [e["size"] for e in events() if e["action"] == "alloc"]
        record(False)
        row[name] = dict(ws=requested("peak") - base - out, out=out, allocs=sizes, ms=round(ms, 2))
        return got

    y = measure("fwd", forward)
    back = lambda mask: torch.ops.aten.convolution_backward(g, x, k, None, stride, pad, dil, False, [0, 0], groups, mask)
    g = torch.empty_like(y)
    if shape[1] > 3:
        measure("bwd_data", lambda: back([True, False, False]))
    measure("bwd_weight", lambda: back([False, True, False]))


SECTIONS = dict(
    device=device, granularity=granularity, context=context, first_use=first_use, cudnn=cudnn, ops=ops, convolutions=convolutions
)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=60, help="time for the whole run; ops and convolutions stop when it is spent")
    ap.add_argument("--only", help="sections to run, separated by commas: " + ", ".join(SECTIONS))
    ap.add_argument("--resume", action="store_true", help="keep what OUT holds; convolutions already in it are skipped")
    ap.add_argument("--nccl", action="store_true", help="also measure the first use of NCCL (opens a local port)")
    a = ap.parse_args()
    cap = Capture(a.out, a.seconds)
    cap.nccl = a.nccl
    if a.resume and os.path.exists(a.out):
        with open(a.out) as f:
            cap.out = json.load(f)
    torch.cuda.init()
    torch.cuda.mem_get_info()  # creates the context
    names = a.only.split(",") if a.only else list(SECTIONS)
    for name in names:
        cap.run(name, SECTIONS[name], last=name == names[-1])
        print(f"{name}: {cap.out['section_seconds'][name]} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
