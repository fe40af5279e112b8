"""What the tools that fill docs/accuracy/ share: environments, one estimate as a row, files of rows, tables in pages."""
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
GRESIZE = os.environ.get("GRESIZE") or os.path.join(BUILD, "bin", "gresize")
PAGES = os.path.join(ROOT, "docs", "accuracy")
CACHE = os.environ.get("GRESIZE_CACHE", "/var/cache/gresize")
MIB = 1 << 20
# What the virtual GPU stands in for, and what an environment of make-venv has already.
NEVER_INSTALLED = ("torch", "torchvision", "triton")
# The figures of one estimate that a row holds.
ANSWER_FIELDS = (
    "status", "steps", "ranks", "peak_allocated_bytes", "peak_reserved_bytes", "comfortable_bytes", "comfortable_high_bytes",
    "confidence", "reasons", "unanswered", "seconds", "host_peak_bytes",
)


def venv(release, triton=False):
    """The Python of the environment with one release of PyTorch, and its Triton if wanted, made where it is missing."""
    extra = ["--with-triton"] if triton else []
    made = subprocess.run(
        [os.path.join(ROOT, "tools", "torchvenv", "make-venv"), release] + extra, stdout=subprocess.PIPE, universal_newlines=True, check=True
    )
    return os.path.join(made.stdout.strip(), "bin", "python")


def overlay(release, packages):
    """A folder for PYTHONPATH that holds the packages and what they need, but for PyTorch and NVIDIA's libraries.

    A package is named as pip names it; with a leading "+" it is taken alone, whatever it asks for.
    """
    packages = sorted(packages)
    if not packages:
        return ""
    name = hashlib.sha256("\n".join([release] + packages).encode()).hexdigest()[:12]
    place = os.path.join(CACHE, "overlays", "torch-%s-%s" % (release, name))
    if os.path.isdir(place):
        return place
    python = venv(release)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wanted = [p[1:] for p in packages if p.startswith("+")]
    resolved = [p for p in packages if not p.startswith("+")]
    os.makedirs(os.path.dirname(place), exist_ok=True)
    part = tempfile.mkdtemp(dir=os.path.dirname(place))
    try:
        if resolved:
            report = os.path.join(part, "report.json")
            subprocess.run(
                pip + ["install", "--dry-run", "--ignore-installed", "--report", report, "torch==" + release] + resolved,
                check=True, stdout=subprocess.DEVNULL,
            )
            with open(report) as file:
                for item in json.load(file)["install"]:
                    meta = item["metadata"]
                    package = meta["name"].lower().replace("_", "-")
                    if package not in NEVER_INSTALLED and not package.startswith(("nvidia-", "cuda-")):
                        wanted.append("%s==%s" % (meta["name"], meta["version"]))
            os.remove(report)
        subprocess.run(pip + ["install", "--no-deps", "--no-cache-dir", "--target", part] + wanted, check=True, stdout=sys.stderr)
        with open(os.path.join(part, "installed.txt"), "w") as file:
            file.write("\n".join(sorted(wanted)) + "\n")
        os.chmod(part, 0o755)
        try:
            os.rename(part, place)
        except OSError:
            if not os.path.isdir(place):  # otherwise another run was faster
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def estimate(command, gpu="h100", options=(), environment=None, cwd=None):
    """Runs `gresize estimate` on a command and returns its answer, with the reason under "error" when there is none."""
    env = dict(os.environ)
    env.update(environment or {})
    ran = subprocess.run(
        [GRESIZE, "estimate", "--gpu", gpu, "--json"] + list(options) + ["--"] + list(command),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, env=env, cwd=cwd, preexec_fn=lambda: os.nice(max(0, 10 - os.nice(0))),
    )
    try:
        return json.loads(ran.stdout)
    except ValueError:
        return {"error": "exit %d: %s" % (ran.returncode, ran.stderr.strip()[-500:])}


def answer_row(answer):
    """The figures of an answer: those of the rank that needs most."""
    if "error" in answer:
        return {"status": "no answer", "reasons": answer["error"].replace("\n", " ")}
    ranks = answer.get("ranks") or [{}]
    largest = max(ranks, key=lambda r: r.get("comfortable_bytes", 0))
    row = {n: largest.get(n, "") for n in ("peak_allocated_bytes", "peak_reserved_bytes", "comfortable_bytes", "comfortable_high_bytes")}
    codes, unanswered = [], []
    for reason in answer.get("reasons", []):
        if reason["code"] == "symbol_unanswered":
            unanswered.append(reason.get("detail", ""))
        code = reason["code"]
        if code in ("script_failed", "values_compared", "workspace_bounded", "phase_not_reached"):
            code += " (%s)" % " ".join(reason.get("detail", "").split())
        if code not in codes:
            codes.append(code)
    row.update(
        status=answer.get("status", ""), steps=answer.get("steps", 0), ranks=len(answer.get("ranks") or []), confidence=answer.get("confidence", ""),
        reasons="; ".join(codes), unanswered=" ".join(unanswered), seconds="%.1f" % answer.get("wall_seconds", 0),
        host_peak_bytes=answer.get("host_peak_bytes", ""),
    )
    return row


def read_rows(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path, fields, rows):
    """Replaces the file as a whole, so that an interrupted tool leaves the rows that it had."""
    part = path + ".part"
    with open(part, "w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(part, path)


def mib(text):
    return "%d" % round(int(text) / MIB) if text not in ("", None) else ""


def markdown(header, rows):
    """A table; a header that ends in ":" stands over figures."""
    lines = ["| " + " | ".join(h.rstrip(":") for h in header) + " |", "|" + "|".join("---:" if h.endswith(":") else "---" for h in header) + "|"]
    lines += ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines)


def replace_section(page, name, text):
    """Puts the text between the page's two comments that name the section."""
    begin, end = "<!-- begin %s -->" % name, "<!-- end %s -->" % name
    with open(page) as file:
        content = file.read()
    before, found, rest = content.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit("%s: no %s … %s" % (page, begin, end))
    with open(page, "w") as file:
        file.write(before + begin + "\n" + text + "\n" + end + after)
