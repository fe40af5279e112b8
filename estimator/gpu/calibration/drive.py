"""Run the capture and the workloads one after another, each in a process of its own that is started ahead of its turn.

    drive.py OUTDIR BUDGET_SECONDS
Writes results.jsonl, capture.json, device.json, nvidia-smi.txt, snapshots*.tar, log.txt, each as soon as it is known."""
import collections
import ctypes
import gzip
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
out, budget = os.path.realpath(sys.argv[1]), float(sys.argv[2])
start = time.time()
now = lambda: time.time() - start
os.makedirs(out, exist_ok=True)
tmp = tempfile.mkdtemp()
AHEAD = int(os.environ.get("GPUTRUTH_AHEAD", 4))


class Card:
    def __init__(self):
        try:
            self.lib = ctypes.CDLL("libnvidia-ml.so.1")
            self.lib.nvmlInit_v2()
            self.dev = ctypes.c_void_p()
            self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.dev))
        except OSError:
            self.lib = None
        self.peak = 0
        threading.Thread(target=self.watch, daemon=True).start()

    def used(self):
        if not self.lib:
            return 0
        m = (ctypes.c_ulonglong * 3)()
        self.lib.nvmlDeviceGetMemoryInfo(self.dev, m)
        return m[2]

    def watch(self):
        while True:
            self.peak = max(self.peak, self.used())
            time.sleep(0.01)


def log(*a):
    with open(f"{out}/log.txt", "a") as f:
        print(f"{now():7.2f}", *a, file=f)
    print(f"{now():7.2f}", *a, flush=True)


def compact(src):
    """A memory snapshot as small JSON: the allocator's events in order, and the segments at the end."""
    with open(src, "rb") as f:
        s = pickle.load(f)
    code = dict(alloc="a", free_requested="r", free_completed="f", segment_alloc="S", segment_free="F", segment_map="M", segment_unmap="U", oom="o", snapshot="s")
    ev, streams = [], {}
    for t in s["device_traces"][0] if s["device_traces"] else []:
        a = code.get(t["action"], t["action"])
        if a == "f" and ev and ev[-1][0] == "r" and ev[-1][1] == t.get("addr"):
            ev[-1][0] = "f"  # requested and completed at once
            continue
        e = [a, t.get("addr", 0), t["size"]]
        if t.get("stream"):
            e.append(streams.setdefault(t["stream"], len(streams) + 1))
        ev.append(e)
    base = min((e[1] for e in ev if e[1]), default=0)
    for e in ev:
        e[1] = e[1] - base if e[1] else -1
    segs = [[g["address"] - base, g["total_size"], g["segment_type"], streams.get(g["stream"], 0), [[b["size"], b.get("requested_size", 0), b["state"]] for b in g["blocks"]]] for g in s["segments"]]
    data = json.dumps(dict(format=1, settings={k: str(v) for k, v in s.get("allocator_settings", {}).items()}, events=ev, segments=segs), separators=(",", ":")).encode()
    os.unlink(src)
    with open(src + ".gz", "wb") as f:
        f.write(gzip.compress(data, 9, mtime=0))
    return src + ".gz", len(ev)


tars = [0]


def store(res):
    path, n = res
    size = os.path.getsize(path)
    for i in range(3):
        t = f"{out}/snapshots{i or ''}.tar"
        if (os.path.getsize(t) if os.path.exists(t) else 0) + size < 15 << 20:
            with tarfile.open(t, "a") as tar:
                tar.add(path, os.path.basename(path).replace(".pickle", ".json"))
            break
    os.unlink(path)


class Job:
    def __init__(self, kind, name, args=(), env=None, cap=None, timeout=75, tag=""):
        self.kind, self.name, self.args, self.env, self.cap, self.timeout = kind, name, list(args), env or {}, cap, timeout
        self.tag = name + "".join("_" + "".join(c if c.isalnum() else "_" for c in f"{k}_{v}") for k, v in self.env.items()) + (f"_cap{cap[1]}" if cap else "")

    def spawn(self):
        args = self.args
        if self.kind == "workload":
            args = args + ["--steps", "5"]
            if "cudaMallocAsync" not in str(self.env):
                self.snap = f"{tmp}/{self.tag}.pickle"
                args += ["--snapshot", self.snap]
        self.err = tempfile.TemporaryFile("w+", dir=tmp)
        self.p = subprocess.Popen([sys.executable, f"{here}/job.py", self.kind, self.name if self.kind == "workload" else f"{here}/{self.name}", *args],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True, env={**os.environ, **self.env}, start_new_session=True, cwd=tmp)

    def drop(self):
        try:
            os.killpg(self.p.pid, signal.SIGKILL)
        except OSError:
            pass
        self.p.wait()


def main():
    card = Card()
    base = card.used()
    results = open(f"{out}/results.jsonl", "a")
    W = lambda n, **kw: Job("workload", n, **kw)
    conf = lambda v: dict(env={"PYTORCH_CUDA_ALLOC_CONF": v})
    cap = lambda sections, seconds, *a: Job("script", "capture.py", [f"{out}/capture.json", "--seconds", str(seconds), "--resume", "--only", sections, *a], timeout=seconds + 25)
    names = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, %r); import workload; a=len(workload.W); import extra; print(a, *workload.W)" % here], capture_output=True, text=True,
                           stdin=subprocess.DEVNULL).stdout.split()
    count, names = int(names[0]), names[1:]
    r50, gpt, lla = "resnet50_b64_sgdm", "gpt2_b8_s1024_bf16", "llama1b_b2_s2048_bf16_fused"
    late = [n for n in names if "compile" in n]
    queue = [W(r50), cap("device,granularity,context,first_use,cudnn", 60, "--nccl"), W(gpt), W(lla), W(r50, **conf("expandable_segments:True")), W(gpt, **conf("expandable_segments:True")),
             W(r50, **conf("max_split_size_mb:64")), W(r50, env={"CUDA_MODULE_LOADING": "EAGER"}), cap("convolutions", 35), cap("ops", 60), Job("script", "device.py", tag="device")]
    mine = [W(n) for n in names[:count] if n not in (r50, gpt, lla) and n not in late]
    first = ("vgg19_b300", "mobilenet_v2_b128", "unet2d", "efficientnet", "lstm", "resnet50_b128_fp16", "mnasnet", "regnet")
    queue += sorted(mine, key=lambda j: not j.name.startswith(first))
    queue += [W(n, cap=(n, f)) for n, f in ((r50, 0.95), (r50, 0.85), ("vgg19_b300_86_adam", 0.9), ("mobilenet_v2_b128_adam", 0.93), (gpt, 0.93))]
    queue += [W(r50, **conf("backend:cudaMallocAsync"))]
    queue += [W(n) for n in names[count:]]
    queue += [W(n, timeout=100) for n in late]
    queue += [W(gpt, **conf("garbage_collection_threshold:0.6")), W(gpt, **conf("roundup_power2_divisions:4")), W(gpt, env={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})]
    queue += [W(n, cap=(n, f)) for n, f in ((r50, 0.9), (r50, 0.8), ("vgg19_b300_86_adam", 0.8), ("unet2d_b8_256_adam", 0.9), ("mnasnet_b469_86_adagrad", 0.9), (gpt, 0.88), ("bert_base_b32_s512_adam", 0.95))]
    if os.environ.get("GPUTRUTH_SMALL"):
        queue = [j for j in queue if j.kind == "script" or j.name in (r50, gpt, "resnet18_b64_sgd", "gpt2_b20_s128_keep_adamw", "mlp_cuda_graph", "dcgan_b128")]
    total, peaks, ready = len(queue), {}, collections.deque()
    pool = multiprocessing.get_context("fork").Pool(2)
    reserve = float(os.environ.get("GPUTRUTH_CONV", 25))
    try:
        while True:
            while queue and len(ready) < AHEAD:
                j = queue.pop(0)
                j.spawn()
                ready.append(j)
            if not ready or now() > budget - reserve - 4:
                break
            j = ready.popleft()
            for _ in range(200):
                before = card.used()
                if before <= base + (4 << 20):
                    break
                time.sleep(0.01)
            card.peak, t = 0, now()
            limit = min(j.timeout, budget - reserve / 2 - now())
            go = {}
            if j.cap:
                go["cap_bytes"] = int(peaks.get(j.cap[0], 0) * j.cap[1])
            try:
                text, _ = j.p.communicate(json.dumps(go) + "\n", timeout=limit)
                rc = j.p.returncode
            except subprocess.TimeoutExpired:
                j.drop()
                text, rc = "", "timeout"
            j.drop()
            peak, secs = card.peak, round(now() - t, 2)
            j.err.seek(0)
            err = j.err.read()
            if j.kind == "workload":
                try:
                    row = json.loads(text.strip().splitlines()[-1])
                except Exception:
                    row = dict(name=j.name, error=f"rc {rc}: " + err[-500:])
                row.update(env=j.env, cap=go.get("cap_bytes"), cap_share=j.cap and j.cap[1], nvml_used_before_bytes=before, nvml_used_peak_bytes=peak, turn_seconds=secs)
                if not j.env and not j.cap:
                    peaks[j.name] = row.get("max_reserved_bytes", 0)
                results.write(json.dumps(row) + "\n")
                results.flush()
                snap = getattr(j, "snap", None)
                if snap and os.path.exists(snap):
                    pool.apply_async(compact, (snap,), callback=store, error_callback=lambda e: log("snapshot", repr(e)))
                M = lambda k: f"{row.get(k, 0) / 2**20:.1f}"
                log(j.tag, secs, "s alloc", M("max_allocated_bytes"), "reserved", M("max_reserved_bytes"), "outside", M("outside_bytes"), "nvml", f"{peak / 2**20:.1f}", row.get("error", "")[:150].replace("\n", " "))
            else:
                if j.name == "device.py":
                    with open(f"{out}/device.json", "w") as f:
                        f.write(text)
                log(j.tag, j.args[-1:], rc, secs, "s", err[-300:].replace("\n", " | "))
    finally:
        for j in ready:
            j.drop()
        left = budget - now() - 3
        if left > 8:
            subprocess.run([sys.executable, f"{here}/capture.py", f"{out}/capture.json", "--resume", "--only", "convolutions", "--seconds", str(left - 6)], timeout=left + 3, stderr=subprocess.DEVNULL)
        pool.close()
        threading.Timer(max(1, budget - now()), lambda: os._exit(0)).start()
        pool.join()
        log("end;", len(queue) + len(ready), "of", total, "not run")
        sys.stdout.flush()
        os._exit(0)


with open(f"{out}/nvidia-smi.txt", "w") as f:
    smi = subprocess.Popen(["sh", "-c", "nvidia-smi -q; nvidia-smi"], stdout=f, stderr=f)
log("versions", subprocess.run([sys.executable, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True).stdout.replace("\n", " ") if not os.environ.get("GPUTRUTH_SMALL") else "")
main()
