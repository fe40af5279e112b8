"""Trains random programs on the virtual GPU, many in one process, and writes what PyTorch's allocator reserved for each.

    go run ./tools/gpumemnet/onvgpu PYTHON tools/gpumemnet/label.py --kind mlp --rows 3000 --seed 1 --out FILE.csv.gz

Each row: training steps in fp32 with cross entropy, and the peak of all. The second step has the optimizer's states; a third makes one in five transformers larger, by up
to 2.6 %, as the cache of the allocator is cut up. A row that meets the end of the card is marked so.
The file is gone on with when it exists.
"""
import argparse
import csv
import gc
import gzip
import io
import os
import sys
import time

import torch

import programs

STEPS = {"mlp": 2, "cnn": 2, "transformer": 3}
TOO_LARGE = "canUse32BitIndexMath"
FIELDS = ("index", "spec", "layers", "reserved_bytes", "allocated_bytes", "out_of_memory")


def pack(layers):
    return " ".join("%s:%d:%d" % layer for layer in layers)


def forget():
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def train(spec):
    with torch.device("meta"):
        model, shape, dtype = programs.build(spec)
    model.to_empty(device="cuda")
    if spec["states"] == 2:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9 * spec["states"])
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(STEPS[spec["kind"]]):
        inputs = torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda")
        labels = torch.zeros(shape if spec.get("tokens") else shape[0], dtype=torch.int64, device="cuda")
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()


def measure(spec):
    forget()
    full = 0
    try:
        train(spec)
    except torch.OutOfMemoryError:
        full = 1
    return torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated(), full


def read(path):
    if not os.path.exists(path):
        return []
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    """Replaces the file as a whole; equal rows give equal bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with open(path + ".part", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.getvalue().encode())
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=programs.KINDS, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = read(args.out)
    done = {int(r["index"]) for r in rows}
    began = time.monotonic()
    gc.freeze()
    for index in range(args.rows):
        if index in done:
            continue
        spec = programs.draw(args.seed, args.kind, index)
        try:
            reserved, allocated, full = measure(spec)
        except RuntimeError as e:
            if TOO_LARGE not in str(e):
                raise
            continue  # a tensor of over 2^31 elements: no such program runs, on no card
        rows.append({
            "index": index, "spec": " ".join("%s=%s" % item for item in spec.items()), "layers": pack(programs.summary(spec)),
            "reserved_bytes": reserved, "allocated_bytes": allocated, "out_of_memory": full,
        })
        if len(rows) % 100 == 0:
            write(args.out, rows)
            print("%s: %d rows, %.0f s" % (args.kind, len(rows), time.monotonic() - began), flush=True)
    write(args.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
