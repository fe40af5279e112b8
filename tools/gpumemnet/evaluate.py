"""Asks the nets that gresize ships about the programs that GPUMemNet's authors measured on an A100, which no net of ours has seen.

    go run ./tools/gpumemnet/onvgpu PYTHON tools/gpumemnet/evaluate.py --data FOLDER [--mlp N] [--cnn N]

FOLDER holds MLP.csv, CNN_partial2061.csv, Transformers_sample23.csv and realworld18.csv, as the authors published them. The real-world models are built
where timm and transformers can be imported. --mlp and --cnn take the first rows only.

A measured figure is that of the whole card. What PyTorch reserved of it is the figure less a constant of the machine: BASE_MIB. A class is that of the reserve.
"""
import argparse
import ast
import csv
import json
import os
import subprocess
import sys

import programs

HERE = os.path.dirname(os.path.abspath(__file__))
# MLP: the smallest figure of its file, of a network of next to no size. The others: docs/accuracy/gpumemnet.md, fitted on ten ConvNets.
BASE_MIB = {"MLP": 1443, "CNN": 1610, "Transformer": 1610, "unseen": 1610}
EDGES = {"MLP": 1000, "CNN": 8000, "Transformer": 8000, "unseen": 8000}
LAST = {"MLP": 5, "CNN": 5, "Transformer": 5, "unseen": 5}
CLASSES = {
    "linear": "Linear", "batch_normalization": "BatchNorm1d", "dropout": "Dropout", "conv2d": "Conv2d", "batchnorm2d": "BatchNorm2d",
    "adaptive_avg_pool2d": "AdaptiveAvgPool2d", "softmax": "Softmax",
}
ADAM_STATES = 2  # they trained with Adam
LOWEST_MIB = 1400  # below, the monitor saw nothing of the run


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def listed(row):
    return [[CLASSES.get(name, name), a, p] for name, a, p in ast.literal_eval(row["Activations-Params"])]


def perceptrons(folder, count):
    for row in rows(os.path.join(folder, "MLP.csv"))[:count]:
        yield {"batch": int(row["Batch Size"]), "layers": listed(row)}, int(row["Max GPU Memory (MiB)"]), False


def convnets(folder, count):
    for row in rows(os.path.join(folder, "CNN_partial2061.csv"))[:count]:
        layers, measured = listed(row), int(row["Max GPU Memory (MiB)"])
        if layers and measured >= LOWEST_MIB:
            yield {"batch": int(row["Batch Size"]), "layers": layers}, measured, row["Status"] != "SUCCESSFUL"


def transformers(folder):
    for row in rows(os.path.join(folder, "Transformers_sample23.csv")):
        spec = {
            "kind": "transformer", "classes": int(row["num_classes"]), "width": int(row["embedding_size"]), "depth": int(row["num_layers"]),
            "heads": int(row["num_heads"] or 8), "feed_forward": int(row["ff_hidden_size"]), "sequence": int(row["seq_length"]),
            "vocabulary": int(row["vocab_size"]), "batch": int(row["batch_size"]), "dropout": 0.1, "own": 0, "eager": 0, "tokens": 0, "states": ADAM_STATES,
        }
        yield {"batch": spec["batch"], "layers": programs.summary(spec)}, int(row["max_gpu_memory_mib"]), row["status"] != "SUCCESSFUL"


def unseen(folder):
    sys.path.insert(0, os.path.join(HERE, "..", "..", "testdata", "workloads"))
    import gpumemnet_unseen as models

    import timm
    import torch

    name = ""
    for row in rows(os.path.join(folder, "realworld18.csv")):
        name = row[""] or name
        batch = int(row["batch_size"])
        with torch.device("meta"):
            if name in models.IMAGE_MODELS:
                model = timm.create_model(models.IMAGE_MODELS[name])
                inputs = torch.empty((batch,) + tuple(timm.data.resolve_data_config({}, model=model)["input_size"]))
            else:
                make = models.language_models().get(name)
                if make is None:
                    continue
                model, inputs = make(), torch.zeros(batch, models.TOKENS, dtype=torch.int64)
            try:
                layers = programs.layers_of(model.train(), batch, lambda: model(inputs))
            except RuntimeError as e:
                print("%s: no forward without memory: %s" % (name, str(e).splitlines()[0]), file=sys.stderr)
                continue
        yield {"batch": batch, "layers": layers, "name": name}, int(row["Actual GPU memory"]), False


def ask(cases):
    lines = "".join(json.dumps({"batch": c["batch"], "optimizer_states": ADAM_STATES, "layers": c["layers"]}) + "\n" for c, _, _ in cases)
    answered = subprocess.run(["go", "run", "./tools/gpumemnet/classify"], input=lines, stdout=subprocess.PIPE, universal_newlines=True, check=True, cwd=os.path.join(HERE, "..", ".."))
    return [json.loads(line) for line in answered.stdout.splitlines()]


def evaluate(what, cases):
    cases = list(cases)
    answers = ask(cases)
    known = right = under = 0
    reasons, true = {}, []
    errors = []
    for (case, measured, full), a in zip(cases, answers):
        reserved = measured - BASE_MIB[what]
        is_ = LAST[what] if full else min(LAST[what], max(0, -(-reserved // EDGES[what]) - 1))
        if what == "unseen":
            print("%s batch %d: measured %d MiB, answer %s" % (case["name"], case["batch"], measured, a.get("upper_mib", a)))
        if a.get("unknown") == "beyond_bins":
            a = {"class": LAST[what], "upper_mib": 0}
        if "unknown" in a:
            text = a["unknown"] + ": " + (a["detail"].split(" ")[0] if a["unknown"] == "unknown_layer" else a["detail"].split(": ")[-1].split(" ")[0])
            reasons[text] = reasons.get(text, 0) + 1
            continue
        known += 1
        true.append(is_)
        right += a["class"] == is_
        under += a["class"] < is_
        if a["upper_mib"] and not full:
            errors.append(abs(a["upper_mib"] + BASE_MIB[what] - measured) / measured)
    errors.sort()
    print("%s: %d rows, answered %d; of these right %.3f, too small %.3f, constant answer %.3f; median error of the upper edge %.0f %%; no answer: %s" % (
        what, len(cases), known, right / max(known, 1), under / max(known, 1), max((true.count(c) for c in set(true)), default=0) / max(known, 1),
        100 * errors[len(errors) // 2] if errors else float("nan"), reasons), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--mlp", type=int)
    parser.add_argument("--cnn", type=int)
    args = parser.parse_args()
    evaluate("MLP", perceptrons(args.data, args.mlp))
    evaluate("CNN", convnets(args.data, args.cnn))
    evaluate("Transformer", transformers(args.data))
    try:
        import timm, transformers as _  # noqa: F401, E401
    except ImportError as e:
        print("unseen: %s" % e)
        return 0
    evaluate("unseen", unseen(args.data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
