"""What the tables of this folder share: CSV files with remarks, and environments."""
import csv
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MIB = 1 << 20
NICENESS = 15


def read_rows(path):
    """The rows of a CSV file, without its comment lines; none when there is no file."""
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def make_venv(version, *extra):
    """The Python of the environment of one PyTorch release."""
    made = subprocess.run(
        [os.path.join(ROOT, "tools", "torchvenv", "make-venv"), version] + list(extra),
        stdout=subprocess.PIPE, universal_newlines=True, check=True,
    )
    return os.path.join(made.stdout.strip(), "bin", "python")
