"""Two processes of one program, a card each, as a launcher would start them."""
import os
import subprocess
import sys


def compare(rank, differ):
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    jax.distributed.initialize(sys.argv[2], 2, rank)
    print("told", multihost_utils.broadcast_one_to_all(np.full(2, 7 * (1 - rank), np.int32)), flush=True)
    multihost_utils.assert_equal(np.arange(4 + 2) + rank * differ, "sizes")


def train(rank):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.distributed.initialize(sys.argv[2], 2, rank)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    x = jax.make_array_from_callback((2048, 1024), NamedSharding(mesh, PartitionSpec("data")), lambda index: np.ones((1024, 1024), np.float32))
    w = jax.device_put(np.ones((1024, 1024), np.float32), NamedSharding(mesh, PartitionSpec()))  # it is compared among the processes
    step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
    for _ in range(8):
        w = step(w, x)
    w.block_until_ready()


if len(sys.argv) > 3:
    compare(int(sys.argv[1]), sys.argv[3] == "other")
elif len(sys.argv) > 2:
    train(int(sys.argv[1]))
else:
    import socket

    with socket.socket() as s:
        s.bind(("localhost", 0))
        address = "localhost:%d" % s.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank), address] + sys.argv[1:], env=dict(os.environ, CUDA_VISIBLE_DEVICES=str(rank))) for rank in range(2)]
    sys.exit(max(abs(r.wait()) for r in ranks))
