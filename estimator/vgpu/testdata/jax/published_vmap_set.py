"""A vmap over the places at which an array is set: jax-ml/jax issue 23358."""
import jax
import jax.numpy as jnp

x = jnp.zeros(100_000)
jax.vmap(lambda i: x.at[i].set(7).sum())(jnp.arange(x.size)).block_until_ready()
