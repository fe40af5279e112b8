"""Flax and Optax: a ResNet-50 with batch statistics, trained with momentum on made-up images."""
import argparse
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--steps", type=int, default=8)
p.add_argument("--size", type=int, default=224)
a = p.parse_args()


class Bottleneck(nn.Module):
    filters: int
    strides: int = 1

    @nn.compact
    def __call__(self, x, train):
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        y = nn.relu(norm()(conv(self.filters, (1, 1))(x)))
        y = nn.relu(norm()(conv(self.filters, (3, 3), (self.strides, self.strides))(y)))
        y = norm()(conv(4 * self.filters, (1, 1))(y))
        if x.shape != y.shape:
            x = norm()(conv(4 * self.filters, (1, 1), (self.strides, self.strides))(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                x = Bottleneck(64 * 2**stage, 2 if stage and not block else 1)(x, train)
        return nn.Dense(1000)(x.mean((1, 2)))


model, optimizer = ResNet(), optax.sgd(0.1, 0.9)
variables = jax.jit(partial(model.init, train=False))(jax.random.key(0), jnp.ones((1, a.size, a.size, 3)))
params, statistics = variables["params"], variables["batch_stats"]
state = optimizer.init(params)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(params, statistics, state, images, labels):
    def loss(params):
        logits, new = model.apply({"params": params, "batch_stats": statistics}, images, True, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new["batch_stats"]

    (value, statistics_now), gradients = jax.value_and_grad(loss, has_aux=True)(params)
    updates, state_now = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), statistics_now, state_now, value


rng = np.random.default_rng(0)
for i in range(a.steps):
    images = rng.random((a.batch_size, a.size, a.size, 3), dtype=np.float32)
    params, statistics, state, value = step(params, statistics, state, images, rng.integers(0, 1000, a.batch_size))
print("parameters", sum(x.size for x in jax.tree.leaves(params)), "loss", float(value))
