"""The capture's section `convolutions`: the workspace of each convolution of well-known networks."""

import json
import time

import torch
import torch.nn as nn

from measure import DEV, events, record, requested


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
