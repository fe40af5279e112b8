"""A fault of the Python layers' own in what looks at later steps: planted.py MODULE CLASS METHOD. The program beside it is an ordinary one."""
import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np


def fails(*args, **kwargs):
    raise KeyError("planted")


module, kind, method = sys.argv[1:]
setattr(getattr(importlib.import_module(module), kind), method, fails)
step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
w = jnp.ones((64, 64))
for i in range(10**5):
    for x in [np.ones((64, 64), np.float32)] * 100:
        w = step(w, x)
    if i % 1000 == 7:
        print(i)
