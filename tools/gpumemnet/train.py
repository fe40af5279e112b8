"""Trains GPUMemNet's nets on the rows of label.py and fits a sum to them (sums.py), scores all by three folds, and writes the weights for gresize: the best answers.

    PYTHON tools/gpumemnet/train.py --kind mlp [--nets mlp,encoder,sums] [--raw] [--epochs N] [--data DIR] [--out FILE.json] [--scores FILE.json]

What the published training does wrong is not repeated:
- each fold trains a net of its own, made anew; the published code passes one net through all folds, so that two of three are tested on what it has seen;
- rows with equal features are in the same fold, and a fold's features are scaled by what its training rows say;
- rows are drawn so that no class holds nearly all of them, and beside the accuracy stands that of the constant answer.
The features are the published ones. What counts without bound (all but sine and cosine) goes into the net as log(1 + x), standardised; the published nets
take the raw counts, up to 1e11; --raw does so, too.
"""
import argparse
import hashlib
import json
import os
import sys
import time

import torch
from torch.nn import functional

import features
import label
import nets
import programs
import sums

SCHEMA = "gresize.gpumemnet.weights/1"
SEED = 42
FOLDS = 3
BATCH = 128
PATIENCE = 30
RATES = {"mlp": 5e-3, "encoder": 1e-2}
MIB = 1 << 20
# Upper edges of the classes, MiB that PyTorch reserves; beyond the last lies what did not fit.
EDGES = {"mlp": [1000, 2000, 3000, 4000, 5000], "cnn": [8000, 16000, 24000, 32000, 40000], "transformer": [8000, 16000, 24000, 32000, 40000]}
FULL_CLASS = {"mlp": False, "cnn": True, "transformer": True}
HERE = os.path.dirname(os.path.abspath(__file__))


class Data:
    """Rows as tensors. Tokens are padded for each batch, not here."""

    def __init__(self, kind, rows, raw=False):
        self.kind = kind
        self.layers = [features.unpack(r["layers"]) for r in rows]
        specs = [dict(item.split("=", 1) for item in r["spec"].split()) for r in rows]
        self.states = [int(s["states"]) for s in specs]
        self.scalars = [features.scalars(kind, l, int(s["batch"]), states) for l, s, states in zip(self.layers, specs, self.states)]
        self.tokens = [features.tokens(kind, l) for l in self.layers]
        self.raw = raw
        self.classes = torch.tensor([class_of(kind, r) for r in rows])
        self.terms = torch.tensor([sums.terms(kind, l, int(s["batch"]), states) for l, s, states in zip(self.layers, specs, self.states)], dtype=torch.float64)
        self.reserved = torch.tensor([int(r["reserved_bytes"] or 0) / MIB for r in rows], dtype=torch.float64)
        self.ended = torch.tensor([r["out_of_memory"] != "1" for r in rows])
        # Equal layers once each, with their number (nets.Encoder).
        self.kept = [list(dict.fromkeys(t)) for t in self.tokens]
        self.counts = [torch.tensor([float(t.count(token)) for token in kept]) for t, kept in zip(self.tokens, self.kept)]
        self.rescale(range(len(rows)))

    def rescale(self, rows):
        """Scales all rows by what the given ones say: those that a net is trained on, for no test may tell anything to its training."""
        self.scale = self.measure(rows)
        self.x = self.scaled(torch.tensor(self.scalars, dtype=torch.float64))
        self.t = [self.scaled_tokens(t) for t in self.kept]

    def measure(self, rows):
        """Means and deviations of what is scaled; they go with the weights."""
        x = self.logs(torch.tensor([self.scalars[i] for i in rows], dtype=torch.float64)[:, :-2])
        t = torch.log1p(torch.tensor([token[1:] for i in rows for token in self.tokens[i]], dtype=torch.float64))
        if self.raw:
            return {"mean": [0.0] * x.shape[1], "deviation": [1.0] * x.shape[1], "token_mean": t.mean(0).tolist(), "token_deviation": t.std(0).tolist()}
        return {
            "mean": x.mean(0).tolist(), "deviation": x.std(0).clamp_min(1e-6).tolist(),
            "token_mean": t.mean(0).tolist(), "token_deviation": t.std(0).tolist(),
        }

    def logs(self, x):
        return x if self.raw else torch.log1p(x)

    def scaled(self, x):
        s = self.scale
        part = (self.logs(x[:, :-2]) - torch.tensor(s["mean"], dtype=x.dtype)) / torch.tensor(s["deviation"], dtype=x.dtype)
        return torch.cat((part, x[:, -2:]), 1).float()

    def scaled_tokens(self, sequence):
        t = torch.tensor(sequence, dtype=torch.float64)
        kinds = functional.one_hot(t[:, 0].long(), len(features.TOKENS[self.kind])).double()
        values = (torch.log1p(t[:, 1:]) - torch.tensor(self.scale["token_mean"], dtype=t.dtype)) / torch.tensor(self.scale["token_deviation"], dtype=t.dtype)
        return torch.cat((kinds, values), 1).float()

    def batch(self, rows, with_tokens):
        if not with_tokens:
            return self.x[rows], None, None
        t = torch.nn.utils.rnn.pad_sequence([self.t[i] for i in rows], batch_first=True)
        return self.x[rows], t, torch.nn.utils.rnn.pad_sequence([self.counts[i] for i in rows], batch_first=True)

    def groups(self):
        """A number for each row that is the same for equal features, whatever the order of the rows."""
        return [int(hashlib.sha256(repr((s, t)).encode()).hexdigest(), 16) for s, t in zip(self.scalars, self.tokens)]


def class_of(kind, row):
    edges = EDGES[kind]
    if row["out_of_memory"] == "1":
        return len(edges)
    used = int(row["reserved_bytes"]) / MIB
    return next((i for i, edge in enumerate(edges) if used <= edge), len(edges))


def usable(kind, rows):
    """The rows that have a class: a perceptron above the last edge has none."""
    return [r for r in rows if FULL_CLASS[kind] or class_of(kind, r) < len(EDGES[kind])]


def class_count(kind):
    return len(EDGES[kind]) + FULL_CLASS[kind]


def batches(data, rows, with_tokens, generator=None):
    """Rows in batches; those of one batch are about equally long where tokens are padded. A batch norm needs two rows."""
    order = [rows[i] for i in torch.randperm(len(rows), generator=generator)] if generator else list(rows)
    if with_tokens:
        order.sort(key=lambda i: len(data.t[i]) // 8)
    parts = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
    if generator:
        parts = [parts[i] for i in torch.randperm(len(parts), generator=generator)]
    return [p for p in parts if len(p) > 1 or not generator]


def predict(net, data, rows, with_tokens):
    net.eval()
    answers = {}
    with torch.no_grad():
        for part in batches(data, rows, with_tokens):
            for i, row in zip(part, net(*data.batch(part, with_tokens))):
                answers[i] = row
    return torch.stack([answers[i] for i in rows])


def fit(which, data, rows, epochs, seed):
    """A net made anew, trained until a tenth of its rows says that it no longer gets better."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    with_tokens = which == "encoder"
    order = [rows[i] for i in torch.randperm(len(rows), generator=generator)]
    held, used = order[: len(order) // 10], order[len(order) // 10 :]
    net = nets.make(which, data.kind, data.x.shape[1], data.t[0].shape[1], class_count(data.kind))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATES[which], fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best, best_state, since = float("inf"), None, 0
    for epoch in range(epochs):
        net.train()
        for part in batches(data, used, with_tokens, generator):
            optimizer.zero_grad()
            functional.cross_entropy(net(*data.batch(part, with_tokens)), data.classes[part]).backward()
            optimizer.step()
        schedule.step()
        loss = float(functional.cross_entropy(predict(net, data, held, with_tokens), data.classes[held]))
        since += 1
        if loss < best:
            best, since = loss, 0
            best_state = {k: v.clone() for k, v in net.state_dict().items()}
        if since >= PATIENCE:
            break
    net.load_state_dict(best_state)
    return net, epoch + 1


def scores(answers, truth, classes):
    """Accuracy, F1 weighted by class, and how often the answer is too small."""
    f1 = 0.0
    recalls = []
    for c in range(classes):
        hit = int(((answers == c) & (truth == c)).sum())
        said, is_ = int((answers == c).sum()), int((truth == c).sum())
        f1 += is_ * (2 * hit / (said + is_) if said + is_ else 0.0)
        if is_:
            recalls.append(hit / is_)
    share = lambda x: float(x.double().mean())
    return {
        "rows": len(truth), "accuracy": share(answers == truth), "balanced_accuracy": sum(recalls) / len(recalls), "f1": f1 / len(truth),
        "under": share(answers < truth), "constant_accuracy": float(torch.bincount(truth, minlength=classes).max()) / len(truth),
    }


def fit_sums(data, rows):
    """Of the rows that did not meet the end of the card: of the others nobody knows how much they need."""
    rows = [i for i in rows if data.ended[i]]
    return sums.fit(data.terms[rows], data.reserved[rows])


def classes_of_sums(kind, mib):
    return torch.bucketize(mib, torch.tensor(EDGES[kind], dtype=mib.dtype)).clamp_max(class_count(kind) - 1)


def cross_validate_sums(data):
    """The scores, and how the truth of rows that were not fitted lies to the sum."""
    fold = torch.tensor([g % FOLDS for g in data.groups()])
    said = torch.zeros_like(data.reserved)
    for k in range(FOLDS):
        train, test = torch.nonzero(fold != k).flatten().tolist(), torch.nonzero(fold == k).flatten().tolist()
        said[test] = data.terms[test] @ fit_sums(data, train)
    ratios = sums.ratios(data.reserved[data.ended], said[data.ended])
    return scores(classes_of_sums(data.kind, said), data.classes, class_count(data.kind)), ratios


def cross_validate(which, data, epochs):
    """Every row is answered by a net that has seen neither it nor one like it."""
    fold = torch.tensor([g % FOLDS for g in data.groups()])
    answers = torch.zeros_like(data.classes)
    for k in range(FOLDS):
        train, test = torch.nonzero(fold != k).flatten().tolist(), torch.nonzero(fold == k).flatten().tolist()
        data.rescale(train)
        net, ran = fit(which, data, train, epochs, SEED + k)
        answers[test] = predict(net, data, test, which == "encoder").argmax(1)
        print("  fold %d: %d epochs, accuracy %.3f" % (k, ran, float((answers[test] == data.classes[test]).double().mean())), flush=True)
    return scores(answers, data.classes, class_count(data.kind))


def golden(data, made, count=12):
    """Features of some rows and what PyTorch makes of them, in 64-bit arithmetic."""
    rows = torch.randperm(len(data.t), generator=torch.Generator().manual_seed(SEED))[:count].tolist()
    cases = [{"batch": int(data.scalars[i][4]), "optimizer_states": data.states[i], "layers": data.layers[i], "scalars": data.scalars[i], "logits": {}} for i in rows]
    for which, net in made.items():
        if which == "sums":
            for i, case in zip(rows, cases):
                case["logits"][which] = [float(data.terms[i] @ torch.tensor(net["factors"], dtype=torch.float64))]
            continue
        double = net.double().eval()
        for i, case in zip(rows, cases):
            x, t, counts = data.batch([i], True)
            with torch.no_grad():
                case["logits"][which] = double(x.double(), t.double(), counts.double())[0].tolist()
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=programs.KINDS, required=True)
    parser.add_argument("--nets", default="mlp,encoder,sums")
    parser.add_argument("--epochs", default="300,100,0", help="at most, for each of --nets; least squares has none")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--data", default=os.path.join(HERE, "data"))
    parser.add_argument("--out")
    parser.add_argument("--scores")
    parser.add_argument("--golden")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = usable(args.kind, label.read(os.path.join(args.data, args.kind + ".csv.gz")))
    data = Data(args.kind, rows, raw=args.raw)
    print("%s: %d rows, by class %s" % (args.kind, len(rows), torch.bincount(data.classes).tolist()), flush=True)
    made, result = {}, {}
    for which, epochs in zip(args.nets.split(","), args.epochs.split(",")):
        began = time.monotonic()
        if which == "sums":
            result[which], ratios = cross_validate_sums(data)
            made[which] = {"terms": sums.names(args.kind), "factors": fit_sums(data, range(len(rows))).tolist(), "ratios": ratios}
            print("%s %s: %s, %.0f s" % (args.kind, which, json.dumps(result[which]), time.monotonic() - began), flush=True)
            continue
        result[which] = cross_validate(which, data, int(epochs))
        print("%s %s: %s, %.0f s" % (args.kind, which, json.dumps(result[which]), time.monotonic() - began), flush=True)
        data.rescale(range(len(rows)))
        if args.out:
            made[which], _ = fit(which, data, list(range(len(rows))), int(epochs), SEED)
    if args.scores:
        with open(args.scores, "w") as file:
            json.dump(result, file, indent=1)
    if args.out:
        x = torch.tensor(data.scalars, dtype=torch.float64)
        best = max(result, key=lambda which: result[which]["f1"])
        content = {
            "schema": SCHEMA, "kind": args.kind, "answers": best, "edges_mib": EDGES[args.kind], "full_class": FULL_CLASS[args.kind],
            "features": features.names(args.kind), "least": x.min(0).values.tolist(), "most": x.max(0).values.tolist(),
            "most_tokens": max(len(t) for t in data.tokens), "tokens": list(features.TOKENS[args.kind]), "logarithms": not args.raw, **data.scale,
            "nets": {which: net if which == "sums" else nets.dump(net) for which, net in made.items()},
        }
        write(args.out, content)
        if args.golden:
            write(args.golden, golden(data, made))
    return 0


def write(path, content):
    with open(path, "w") as file:
        json.dump(content, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
