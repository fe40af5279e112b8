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
import json
import os
import subprocess
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from convolutions import convolutions
from measure import DEV, Capture, library, loaded, MiB, outside, traced
from operations import ops, optimize, rand, scaled, sdpa


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

    def driver(self):
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self.lib.nvmlSystemGetDriverVersion(text, 96) == 0 else ""

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
        virtual=bool(os.environ.get("GRESIZE_VGPU_DIR")),
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
        nvml = Nvml()
        out["nvml"], out["driver"] = nvml.memory(), nvml.driver()
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


def nccl():
    import torch.distributed as dist

    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
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
    eye = (torch.arange(65, device=DEV), torch.arange(64, device=DEV), torch.ones(64, device=DEV), (64, 64))  # sparse without a look at values
    step("sparse_mm", lambda: torch.sparse.mm(torch.sparse_csr_tensor(*eye), torch.ones(64, 64, device=DEV)))
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
