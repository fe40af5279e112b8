"""Ten thousand draws of a network's parameters by vmap: jax-ml/jax issue 12575."""
import argparse
import functools

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--features", type=int, nargs="+", required=True)
features = parser.parse_args().features
init = jax.nn.initializers.lecun_normal()


@functools.partial(jax.vmap, in_axes=(0, None))
def draw(key, x):
    for n in features:
        key, own = jax.random.split(key)
        x = x @ init(own, (x.shape[-1], n)) + jnp.zeros(n)
    return x


for _ in range(4):
    draw(jax.random.split(jax.random.PRNGKey(23), 10000), jnp.ones((4, 50))).block_until_ready()
