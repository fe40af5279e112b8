"""A product of two large matrices that are drawn: openxla.org, OOM debugging."""
import jax
import jax.numpy as jnp


@jax.jit
def product():
    a = jax.random.normal(jax.random.PRNGKey(1), (327680, 327680), dtype=jnp.bfloat16)
    return a @ a


product().block_until_ready()
