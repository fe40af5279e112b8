"""What the tables of this folder share: CSV files that are gone on with, and one estimate after another at low priority.

GRESIZE names another gresize than build/bin/gresize, for a sweep that goes on while the tree is built anew.
"""
import csv
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MIB = 1 << 20
DOES_NOT_FIT = 3  # exit code of gresize
NICENESS = 15


def read_rows(path):
    """The rows of a CSV file, without its comment lines; none when there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def append_row(path, fields, row):
    """Adds a row at once, so that an interrupted sweep loses nothing."""
    new = not os.path.exists(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def make_venv(version, *extra):
    """The Python of the environment of one PyTorch release."""
    made = subprocess.run(
        [os.path.join(ROOT, "tools", "torchvenv", "make-venv"), version] + list(extra),
        stdout=subprocess.PIPE, universal_newlines=True, check=True,
    )
    return os.path.join(made.stdout.strip(), "bin", "python")


def estimate(name, gpu, command, options=()):
    """gresize's answer for a command as a dictionary of plain figures, or None with the reason on standard error."""
    gresize = os.environ.get("GRESIZE") or os.path.join(ROOT, "build", "bin", "gresize")
    ran = subprocess.run(
        [gresize, "estimate", "--gpu", gpu, "--json"] + list(options) + ["--"] + command,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        preexec_fn=lambda: os.nice(NICENESS),
    )
    try:
        answer = json.loads(ran.stdout)
        rank = answer["ranks"][0]
        reserved, outside = rank["peak_reserved_bytes"], rank["outside_bytes"]
        high = rank.get("comfortable_high_bytes", rank["comfortable_bytes"])
    except (ValueError, KeyError, IndexError, TypeError) as e:
        print("%s: no estimate (exit %d, %r): %s" % (name, ran.returncode, e, ran.stderr.strip()[-300:]), file=sys.stderr)
        return None
    return {
        "peak_reserved_bytes": reserved,
        "outside_bytes": outside,
        "high_bytes": high - outside,
        "fits": "no" if ran.returncode == DOES_NOT_FIT or not answer.get("fits", True) else "yes",
        "confidence": answer.get("confidence", ""),
        "seconds": "%.1f" % answer.get("wall_seconds", 0),
    }


def percentile(values, share):
    """The smallest value that at least that share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * share * 1000) // 1000) - 1)] if ordered else float("nan")
