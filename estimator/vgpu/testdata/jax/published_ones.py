"""One array: jax-ml/jax issue 1491."""
import jax

jax.local_devices()
jax.numpy.ones(10000).block_until_ready()
