"""The parameters of one wide layer, drawn on eight cards that have an eighth each: jax-ml/jax issue 19893."""
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

INPUTS, FEATURES = 32768, 32768 * 8
mesh = Mesh(np.array(jax.devices()), ("cards",))
draw = jax.nn.initializers.lecun_normal()
jax.jit(lambda key: draw(key, (INPUTS, FEATURES)), out_shardings=NamedSharding(mesh, PartitionSpec("cards")))(jax.random.PRNGKey(0)).block_until_ready()
