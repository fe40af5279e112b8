"""Flax and Optax: a small convolutional network on made-up digits, as in Flax's own example."""
import argparse
import flax.linen as nn
import jax, jax.numpy as jnp, numpy as np, optax
from flax.training import train_state

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=128)
p.add_argument("--epochs", type=int, default=2)
a = p.parse_args()

class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(32, (3, 3))(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Conv(64, (3, 3))(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.relu(nn.Dense(256)(x))
        return nn.Dense(10)(x)

@jax.jit
def apply_model(state, images, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        return jnp.mean(optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, 10))), logits
    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return grads, loss, jnp.mean(jnp.argmax(logits, -1) == labels)

@jax.jit
def update_model(state, grads):
    return state.apply_gradients(grads=grads)

rng = np.random.default_rng(0)
images = rng.random((4096, 28, 28, 1), dtype=np.float32)
labels = rng.integers(0, 10, 4096)
cnn = CNN()
params = cnn.init(jax.random.key(0), jnp.ones([1, 28, 28, 1]))["params"]
state = train_state.TrainState.create(apply_fn=cnn.apply, params=params, tx=optax.sgd(0.1, 0.9))
for epoch in range(a.epochs):
    losses = []
    for perm in rng.permutation(4096)[: 4096 // a.batch_size * a.batch_size].reshape(-1, a.batch_size):
        grads, loss, acc = apply_model(state, images[perm], labels[perm])
        state = update_model(state, grads)
        losses.append(loss)
    _, test_loss, test_acc = apply_model(state, images[:1000], labels[:1000])
    print("epoch:%3d, train_loss: %.4f, test_loss: %.4f" % (epoch, np.mean(losses), test_loss))
