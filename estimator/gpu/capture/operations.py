"""The capture's section `ops`: allocations of operators whose temporary memory comes from a library or a device property."""

import gc
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from measure import DEV, MiB, outside, traced


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
