"""Has each function of the layer raise, one at a time, in a program that carries out a plan: the program then computes the same, or ends with that error. It never
computes anything else. Prints a line for each function, and what came of all. Of the card stands the model of equal.py.
"""
import inspect
import os
import random
import sys

import torch

import equal
from gresize_offload import copies, sequence, state, swapper

SEED, STEPS = 4, 13


def functions():
    for owner in (swapper.Swapper, sequence.Sequence, state.State, copies.Pool, copies.Host, sequence, state):
        for name, value in sorted(vars(owner).items()):
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and function.__module__.startswith("gresize_offload"):
                yield owner, name


def outcome(owner, name, calls):
    """Of a process of its own: what became of the programs when the function raises at its calls-th call and each later one."""
    reached = [0]
    own = vars(owner)[name]
    function = getattr(own, "__func__", own)

    def planted(*args, **kwargs):
        reached[0] += 1
        if reached[0] >= calls:
            raise RuntimeError("planted")
        return function(*args, **kwargs)

    plain = equal.run(SEED, None, STEPS)
    noted = equal.Noted()
    equal.without(noted, SEED, 12)
    wanted = equal.planned(noted, random.Random(SEED))
    setattr(owner, name, planted)
    try:
        layer = swapper.Swapper(torch, wanted, equal.Model(torch), "cpu")
        got = equal.without(layer, SEED, STEPS)
    except RuntimeError as e:
        return "ends with the error" if "planted" in str(e) else "another error: %s" % e
    if len(got) != len(plain) or not all(a.equal(b) for a, b in zip(plain, got)):
        return "WRONG"
    return "as without" if reached[0] >= calls else "not reached"


def main():
    counts = {}
    for owner, name in functions():
        for calls in (1, 40):
            ours, theirs = os.pipe()
            if os.fork() == 0:
                try:
                    said = outcome(owner, name, calls)
                except BaseException as e:
                    said = "another error: %r" % e
                os.write(theirs, said[:500].encode())
                os._exit(0)
            os.close(theirs)
            with os.fdopen(ours) as f:
                said = f.read() or "died"
            os.wait()
            print("%s.%s, call %d: %s" % (owner.__name__, name, calls, said))
            counts[said] = counts.get(said, 0) + 1
    print("planted:", counts)
    return 1 if set(counts) - {"as without", "ends with the error", "not reached"} or counts.get("not reached", 0) * 2 > sum(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
