"""Sets computed SM activity beside that which GPUMemNet's authors measured for perceptrons on an A100 (DCGM's SMACT, mean of the samples above zero).

    go run ./tools/gpumemnet/onvgpu PYTHON tools/utilization/compare.py --mlp MLP.csv [--count N] [--seed N]

Each network is rebuilt from its list of layers and trained for some steps on the virtual GPU, as tools/gpumemnet/label.py does; its operators are recorded as a
probe records them. The measured loop is not published: how long its host took for a step is not known.
"""
import argparse
import ast
import csv
import gc
import json
import os
import random
import subprocess
import sys
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "estimator", "vgpu", "python"))
from gresize_vgpu.record import operators  # noqa: E402

STEPS = 8


def model_of(row):
    layers = []
    inputs = last = int(row["Filename"].split("input:")[1].split("_")[0])
    for name, outputs, parameters in ast.literal_eval(row["Activations-Params"]):
        if name == "linear":
            layers.append(torch.nn.Linear(last, outputs))
            last = outputs
        elif name == "batch_normalization":
            layers.append(torch.nn.BatchNorm1d(outputs))
        elif name == "dropout":
            layers.append(torch.nn.Dropout(0.3))
        else:
            layers.append(getattr(torch.nn, name)(*((1,) if name == "Softmax" else ())))
    return torch.nn.Sequential(*layers), inputs


def record(row):
    with torch.device("meta"):
        model, inputs = model_of(row)
    model.to_empty(device="cuda")
    batch = int(row["Batch Size"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen = operators.Operators(torch)
    seen.go_on()
    for number in range(1, STEPS + 1):
        x, labels = torch.zeros(batch, inputs).cuda(), torch.zeros(batch, dtype=torch.int64).cuda()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
        seen.arrived()
        seen.on_step(number)
        seen.go_on()
    return list(seen.lines())


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    for place, i in enumerate(order):
        out[i] = place
    return out


def correlation(a, b):
    a, b = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    return sum((x - mean) * (y - mean) for x, y in zip(a, b)) / sum((x - mean) ** 2 for x in a)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlp", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with open(args.mlp, newline="") as file:
        rows = [r for r in csv.DictReader(file) if float(r["Avg SMACT"]) > 0]
    rows = random.Random(args.seed).sample(rows, min(args.count, len(rows)))
    with tempfile.TemporaryDirectory() as folder:
        for i, row in enumerate(rows):
            with open(os.path.join(folder, "%04d.jsonl" % i), "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in record(row))
            gc.collect()
        files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        told = subprocess.run(["go", "run", "./tools/utilization/activity"] + files, stdout=subprocess.PIPE, universal_newlines=True, check=True, cwd=ROOT).stdout
    lines = [line.split("\t") for line in told.splitlines()]
    measured = [float(r["Avg SMACT"]) for r in rows]
    value, low, high = ([float(line[k]) for line in lines] for k in (2, 3, 4))
    for m, v, l, h, line, row in zip(measured, value, low, high, lines, rows):
        print("%.2f measured, %.2f computed (%.2f to %.2f), %.2f ms a step, %s: %s" % (m, v, l, h, 1000 * float(line[1]), line[5], row["Filename"][:90]))
    n = len(rows)
    errors = sorted(abs(m - v) for m, v in zip(measured, value))
    print("%d networks: rank correlation %.2f; median difference %.2f, mean %.2f; within the interval %d; computed higher in %d" % (
        n, correlation(measured, value), errors[n // 2], sum(errors) / n, sum(l <= m <= h for m, l, h in zip(measured, low, high)),
        sum(v > m for m, v in zip(measured, value))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
