"""Sixteen scans in a row, each of which keeps all of its partial sums: openxla/xla issue 27322."""
import jax
import jax.numpy as jnp

SIZE, SCANS = 40000, 16


@jax.jit
def sums(x):
    for _ in range(SCANS):
        x, partial = jax.lax.scan(lambda total, y: (total + y,) * 2, x, jnp.ones(SIZE))
        x += partial.sum(axis=-1)
    return x


sums(jnp.ones(SIZE)).block_until_ready()
