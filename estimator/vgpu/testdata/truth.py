"""What a program would do with its real values: truth.py record FILE PROGRAM ARGS on the CPU, then truth.py replay FILE PROGRAM ARGS on the
virtual GPU, where every value that only a kernel could know is the one that the CPU gave in the same place of the program.

Record runs with DEVICE=cpu. Each call of a function that makes an integer or a boolean, and each read of a number, is counted by its name;
in replay the n-th call is answered as the n-th call was. Where the two fall out of step the run ends with status 3.
"""
import collections
import os
import runpy
import sys

from gresize_vgpu.values import patches, shadow_tensors

mode, path = sys.argv[1:3]
sys.argv = sys.argv[3:]
if mode == "replay":
    # The policies give way to the record before anything is hooked.
    original_guess, original_compute = shadow_tensors.Shadow.guess, shadow_tensors.Shadow.compute

import torch  # noqa: E402

MADE = patches.COMPARED + patches.EQUAL + patches.UNEQUAL + patches.NEGATED
MADE += "float long int bool to type sum count_nonzero argmax argmin max min topk sort argsort multinomial bucketize searchsorted".split()
READ = "item tolist __bool__ __float__ __int__ __index__".split()
record = torch.load(path, weights_only=False) if mode == "replay" else {}
OTHERS = ("/torch/optim/", "/gresize_vgpu/")
counts = collections.Counter()
inside = []  # the calls that are under way
beside = [0]  # deep in a computation that is not the program's


def integers(result):
    values = result if isinstance(result, tuple) else (result,)
    return [v for v in values if isinstance(v, torch.Tensor) and not v.is_floating_point()]


def counted(owner, name, read):
    original = getattr(owner, name, None)
    if not callable(original):
        return

    def call(*args, **kwargs):
        # Optimizers of the CPU and of the card read other things, and what a call calls is not the program's.
        caller = sys._getframe(1).f_code.co_filename
        if beside[0] or inside or OTHERS[0] in caller or OTHERS[1] in caller:
            return original(*args, **kwargs)
        key = (owner.__name__, name, counts[owner.__name__, name])
        counts[owner.__name__, name] += 1
        inside.append(key)
        try:
            result = original(*args, **kwargs)
        finally:
            inside.pop()
        if mode == "record":
            if read:
                record[key] = result
            elif integers(result):
                record[key] = integers(result)[-1].detach().clone()
        elif read and isinstance(result, (bool, int, float)) and args[0].is_cuda:
            return type(result)(record[key])
        return result

    setattr(owner, name, call)


def guess(self, tensor, make, kind=shadow_tensors.GUESSED):
    value = record.get(inside[0]) if inside else None
    if value is None or value.shape != tensor.shape:
        print("truth: out of step at", inside, None if value is None else value.shape, tensor.shape, file=sys.stderr)
        sys.stderr.flush()
        os._exit(3)
    self.put(tensor, value.to(tensor.dtype), shadow_tensors.KNOWN)


def compute(self, function, *args, **kwargs):
    beside[0] += 1
    try:
        return original_compute(self, function, *args, **kwargs)
    finally:
        beside[0] -= 1


for name in dict.fromkeys(MADE + READ):
    for owner in (torch, torch.Tensor):
        if not (owner is torch and (name.startswith("__") or name in READ)):
            counted(owner, name, name in READ)
if mode == "replay":
    shadow_tensors.Shadow.guess, shadow_tensors.Shadow.compute = guess, compute
    shadow_tensors.MOST_SECONDS = 1e9
runpy.run_path(sys.argv[0], run_name="__main__")
if mode == "record":
    torch.save(record, path)
