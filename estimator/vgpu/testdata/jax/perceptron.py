"""A perceptron trained by gradient descent with momentum in plain JAX."""
import argparse
import jax, jax.numpy as jnp
import numpy as np

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=4096)
p.add_argument("--width", type=int, default=4096)
p.add_argument("--layers", type=int, default=8)
p.add_argument("--steps", type=int, default=20)
a = p.parse_args()

def init(key):
    keys = jax.random.split(key, a.layers)
    return [(jax.random.normal(k, (a.width, a.width)) * 0.02, jnp.zeros(a.width)) for k in keys]

def loss(params, x, y):
    for w, b in params:
        x = jax.nn.relu(x @ w + b)
    return jnp.mean((x - y) ** 2)

@jax.jit
def step(params, moments, x, y):
    l, g = jax.value_and_grad(loss)(params, x, y)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, g)
    return jax.tree.map(lambda p, m: p - 0.01 * m, params, moments), moments, l

params = init(jax.random.PRNGKey(0))
moments = jax.tree.map(jnp.zeros_like, params)
rng = np.random.default_rng(0)
for i in range(a.steps):
    x = rng.standard_normal((a.batch_size, a.width), dtype=np.float32)
    params, moments, l = step(params, moments, x, x)
    if i % 5 == 0:
        print("step", i, "loss", l)
