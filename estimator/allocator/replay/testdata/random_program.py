"""Drives the real allocator of the installed PyTorch with a random program and dumps its memory snapshot.

Arguments: seed, number of requests, memory fraction (0: none), number of streams, output file. It runs on the virtual GPU.
"""
import os
import pickle
import random
import sys

import torch

seed, requests, fraction, stream_count, path = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
rng = random.Random(seed)
MIB = 1 << 20
SIZES = [1, 511, 512, 513, 4000, 100_000, MIB - 1, MIB, MIB + 1, 2 * MIB, 3_000_000, 10 * MIB - 512, 10 * MIB, 20 * MIB, 33 * MIB, 64 * MIB, 130 * MIB]


def size():
    kind = rng.random()
    if kind < 0.35:
        return rng.randint(1, 8192)
    if kind < 0.6:
        return int(2 ** rng.uniform(10, 24))
    if kind < 0.85:
        return rng.choice(SIZES)
    return int(2 ** rng.uniform(20, 28.5))


torch.cuda.init()
if fraction:
    torch.cuda.set_per_process_memory_fraction(fraction)
streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(stream_count - 1)]
torch.cuda.synchronize()
torch.cuda.empty_cache()
torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=20_000_000)
live = []
ooms = 0
OutOfMemory = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError  # before 2.5 it has only the longer name
for _ in range(requests):
    what = rng.random()
    if live and what < 0.47:
        i = rng.randrange(len(live)) if rng.random() < 0.6 else len(live) - 1
        live[i], live[-1] = live[-1], live[i]
        tensor = live.pop()
        if stream_count > 1 and rng.random() < 0.1:
            tensor.record_stream(rng.choice(streams))
        del tensor
    elif what > 0.9995:
        torch.cuda.empty_cache()
    elif what > 0.9985:
        # A step ends: most of what lives goes.
        rng.shuffle(live)
        del live[rng.randint(0, 40):]
    else:
        with torch.cuda.stream(rng.choice(streams)):
            try:
                live.append(torch.empty(size(), dtype=torch.uint8, device="cuda"))
            except OutOfMemory:
                ooms += 1
                del live[::3]
snapshot = torch.cuda.memory._snapshot()
# PyTorch 2.1 does not write down its settings.
snapshot.setdefault("allocator_settings", {
    "PYTORCH_CUDA_ALLOC_CONF": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
    "expandable_segments": "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
})
version = torch.__version__.split("+")[0]
snapshot["gresize"] = {"torch_version": version, "total_bytes": torch.cuda.mem_get_info()[1], "memory_fraction": fraction}
with open(path, "wb") as out:
    pickle.dump(snapshot, out, 4)
print(len(snapshot["device_traces"][0]), ooms)
