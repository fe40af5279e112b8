"""A difference of two arrays of doubles: theislab/moscot issue 51."""
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
costs, least = jnp.zeros((1036, 1036, 2930)), jnp.zeros((1036, 1, 2930))
(costs - least).block_until_ready()
