"""One process of a series: imports and builds on the CPU, waits for a line on stdin, then uses the GPU.

    job.py workload NAME ARGS...      workload.py's NAME, its model built on the CPU before the line comes
    job.py script FILE ARGS...        any script; torch is imported before the line comes

The line is JSON; {"cap_bytes": N} limits PyTorch's allocator to N bytes. The GPU is not touched before it.
"""
import json
import os
import runpy
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
kind, name, args = sys.argv[1], sys.argv[2], sys.argv[3:]

import torch  # noqa: E402

rc = 0
if kind == "workload":
    import workload
    import extra  # noqa: F401
    real, built, failure = workload.Train, [], None

    def later(*a, **kw):
        built.append((a, kw))
        return Later()

    class Later:
        """Stands for the Train that is made once the GPU may be used."""
        model = property(lambda self: built[-1][0][0])

        def __setattr__(self, k, v):
            self.__dict__[k] = v
    make = workload.W[name]
    if not name.startswith(("mlp_cuda_graph", "resnet50_b256_infer", "gpt2_b8_generate")):
        workload.Train = extra.Train = later
        torch.manual_seed(0)
        try:
            got = make()
            a, kw = built[-1]

            def make():
                t = real(*a, **kw)
                for k, v in got.__dict__.items():
                    setattr(t, k, v)
                return t
        except Exception as e:
            failure = e
        workload.Train = extra.Train = real
    workload.W[name] = make
    if "GPTNeo" in name or "gpt" in name or "llama" in name:
        import transformers  # noqa: F401

go = json.loads(sys.stdin.readline() or "{}")
if go.get("quit"):
    os._exit(0)
sys.argv = [name if kind == "script" else "workload.py", *args]
if kind == "script":
    runpy.run_path(name, run_name="__main__")
else:
    sys.argv.insert(1, name)
    try:
        if failure:
            raise failure
        if go.get("cap_bytes"):
            torch.cuda.init()
            torch.cuda.set_per_process_memory_fraction(go["cap_bytes"] / torch.cuda.get_device_properties(0).total_memory)
        workload.main()
    except Exception as e:
        out = dict(name=name, error=f"{type(e).__name__}: {e}"[:900])
        if torch.cuda.is_initialized():
            out.update(max_allocated_bytes=torch.cuda.max_memory_allocated(), max_reserved_bytes=torch.cuda.max_memory_reserved(),
                       retries=torch.cuda.memory_stats().get("num_alloc_retries"))
        import traceback
        traceback.print_exc()
        print(json.dumps(out))
        rc = 1
sys.stdout.flush()
sys.stderr.flush()
os._exit(rc)
