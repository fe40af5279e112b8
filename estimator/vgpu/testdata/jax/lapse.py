"""Programs of JAX that go on for long, one a function: what they need is known after a part of them that few of their turns come to. LARGE is what that takes at least."""
import itertools
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, BATCH = 256, 64
ROWS = 1 << 16  # of the larger batch: 64 MiB of what goes in, as much of what a layer makes


def loss_of(params, batch):
    return jnp.mean((jnp.tanh(batch @ params["w"]) @ params["v"]) ** 2)


@jax.jit
def train_step(params, batch):
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads), loss


@jax.jit
def evaluate(params, batch):
    return loss_of(params, batch)


def start():
    return {"w": jnp.ones((WIDTH, WIDTH)), "v": jnp.ones((WIDTH, 8))}


def rows(count):
    return np.ones((count, WIDTH), np.float32)


def endless():
    while True:
        yield rows(BATCH)


def batches():
    for i in range(0, 8192, BATCH):
        yield rows(BATCH)


def evaluates_late():
    params, it = start(), endless()
    for step in range(1_000_000):
        batch = next(it)
        params, loss = train_step(params, batch)
        if step % 1000 == 999:
            evaluate(params, rows(ROWS))


def epochs():
    params = start()
    for epoch in range(200):
        for batch in batches():
            params, loss = train_step(params, batch)
        if epoch == 150:
            evaluate(params, rows(ROWS))


def a_later_phase():
    params, it = start(), endless()
    for step in range(1_000_000):
        params, loss = train_step(params, next(it))
    for i in range(3):
        params, loss = train_step(params, rows(ROWS))


def grows_by_a_test():
    params = start()
    for step in range(1_000_000):
        params, loss = train_step(params, rows(ROWS if step > 5000 else BATCH))


def counts_on_the_card():
    params, step = start(), jnp.int32(0)
    while int(step) < 60:
        params, loss = train_step(params, rows(BATCH))
        step = step + 1
    evaluate(params, rows(ROWS))
    print("at its end", int(step))


def counts_what_was_left_out():
    params, step = start(), jnp.int32(0)
    for turn in range(1_000_000):
        params, loss = train_step(params, rows(BATCH))
        step = step + 1
    evaluate(params, rows(ROWS))
    print("at its end", int(step))


def larger_by_the_cards_counter():
    params, step = start(), jnp.int32(0)
    for epoch in range(20):
        for batch in Loader(5000):
            params, loss = train_step(params, rows(ROWS if int(step) > 70_000 else BATCH))
            step = step + 1
    print("at its end", int(step))


@partial(jax.jit, donate_argnums=0)
def staged_step(state, x):
    step = state["step"] + 1
    stage = jnp.where(step > 90_000, 2, jnp.where(step > 50_000, 1, 0))
    return {"w": state["w"] - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(state["w"]), "step": step, "stage": stage}


def larger_by_the_cards_stage():
    state = {"w": start()["w"], "step": jnp.int32(0), "stage": jnp.int32(0)}
    sizes = [BATCH, 2 * BATCH, ROWS]
    for turn in range(100_000):
        state = staged_step(state, rows(sizes[int(state["stage"])]))
    print("at its end", int(state["step"]))


def counts_round():
    params, step = start(), jnp.int32(0)
    for turn in range(1_000_000):
        params, loss = train_step(params, rows(BATCH))
        step = (step + 1) % 1000
    if int(step) > 50:
        evaluate(params, rows(ROWS))


def keeps_arrays():
    params, kept = start(), []
    for step in range(100_000):
        params, loss = train_step(params, rows(BATCH))
        kept.append(params["w"])


def keeps_some():
    params, kept = start(), []
    for step in range(1_000_000):
        params, loss = train_step(params, rows(BATCH))
        if step % 100 == 0:
            kept.append(evaluate(params, rows(BATCH * 100)) + jnp.zeros((1 << 20,)))


def collects_on_the_host():
    params, seen = start(), []
    for i in range(100_000):
        seen.append(np.asarray(evaluate(params, rows(BATCH)) * np.ones((64, WIDTH), np.float32)))
    data = np.concatenate(seen)
    for step in range(100):
        params, loss = train_step(params, data)


def counts_and_collects():
    params, seen, step = start(), [], 0
    while step < 100_000:
        params, loss = train_step(params, rows(BATCH))
        seen.append(np.asarray(evaluate(params, rows(BATCH)) * np.ones((64, WIDTH), np.float32)))
        step += 1
    data = np.concatenate(seen)
    for step in range(100):
        params, loss = train_step(params, data)


def counts_by_itself():
    params, it, step = start(), endless(), 0
    while step < 1_000_000:
        params, loss = train_step(params, next(it))
        step += 1
        if step == 700_000:
            evaluate(params, rows(ROWS))


def nothing_else():
    params = start()
    for step in range(1_000_000):
        params, loss = train_step(params, rows(BATCH))
        if step % 1000 == 0:
            print(step, loss)
    print("at its end", step + 1)


def never_ends():
    params = start()
    for step in itertools.count():
        params, loss = train_step(params, rows(BATCH))
        if step > 10**12:
            evaluate(params, rows(ROWS))


def fails_later():
    params = start()
    for step in range(1_000_000):
        params, loss = train_step(params, rows(BATCH))
        if step == 90_000:
            raise ValueError("too few")


class Loader:
    """Batches of a data set, as loaders of libraries give them: the last is smaller. Of no length."""

    def __init__(self, count, rows=BATCH):
        self.count, self.rows = count, rows

    def __iter__(self):
        number = 0
        while number < self.count:
            number += 1
            yield {"x": rows(self.rows), "label": number % 10}
        yield {"x": rows(self.rows // 2), "label": 0}


def over_a_loader():
    params, step = start(), 0
    for epoch in range(90):
        for batch in Loader(20_000):
            params, loss = train_step(params, batch["x"])
            step += 1
            if step == 1_000_000:
                evaluate(params, rows(ROWS))
    print("at its end", step)


def over_a_numbered_loader():
    params = start()
    for epoch in range(3):
        for step, batch in enumerate(Loader(30_000)):
            params, loss = train_step(params, batch["x"])
            if step == 25_000:
                evaluate(params, rows(ROWS))
    print("at its end", step)


def one_large_batch():
    params = start()
    data = [rows(BATCH)] * 300_000
    data[200_000] = rows(ROWS)
    for batch in data:
        params, loss = train_step(params, batch)


def over_places():
    params = start()
    data = rows(BATCH * 4)
    for epoch in range(20):
        for places in np.random.permutation(BATCH * 20_000).reshape(-1, BATCH):
            params, loss = train_step(params, data[places % len(data)])
    evaluate(params, rows(ROWS))
    print("at its end")


def over_settings():
    for size in [BATCH] * 20 + [ROWS]:
        params = start()
        for step in range(6):
            params, loss = train_step(params, rows(size))


def by_what_is_in_it():
    params = start()
    parts = np.random.RandomState(0).randint(4, 20, 100_000)
    parts[90_000] = 1
    for batch in [{"parts": np.full(4, number)} for number in parts]:
        params, loss = train_step(params, rows(ROWS // int(batch["parts"].max())))


def rarely_a_longer_one():
    params = start()
    lengths = np.full(20_000, BATCH)
    lengths[14_000] = ROWS
    for batch in [{"length": np.full(4, length)} for length in lengths]:
        params, loss = train_step(params, rows(int(batch["length"].max())))


def rarely_a_longer_one_on_the_card():
    params = start()
    lengths = np.full(20_000, BATCH)
    lengths[14_000] = ROWS
    for batch in [np.full(4, length) for length in lengths]:
        params, loss = train_step(params, rows(int(jnp.max(jax.device_put(batch)))))


def keeps_losses():
    params, losses = start(), []
    for epoch in range(200):
        for step in range(20_000):
            params, loss = train_step(params, rows(BATCH))
            losses.append(loss)


def keeps_the_losses_of_an_epoch():
    params, means = start(), []
    for epoch in range(200):
        losses = []
        for step in range(4000):
            params, loss = train_step(params, rows(BATCH))
            losses.append(loss)
        means.append(loss + 0)


def by_what_is_in_a_list():
    params = start()
    data = [rows(16 * size) for size in range(4, 12)] * 10_000
    data[70_000] = rows(ROWS)
    for step in range(len(data)):
        params, loss = train_step(params, data[step])


def endless_loader():
    params, step = start(), 0
    for batch in endless():
        params, loss = train_step(params, batch)
        step += 1
        if step == 300_000:
            evaluate(params, rows(ROWS))
        if step == 1_000_000:
            break
    print("at its end", step)


def evaluates_within():
    params = start()
    for step, batch in enumerate(Loader(30_000)):
        params, loss = train_step(params, batch["x"])
        if step % 1000 == 999:
            for held_out in Loader(20, 2 * BATCH):
                evaluate(params, held_out["x"])
    evaluate(params, rows(ROWS))


def slow_loader():
    params = start()

    def read():
        while True:
            time.sleep(0.1)
            yield rows(BATCH)

    for batch in read():
        params, loss = train_step(params, batch)


def keeps_each():
    params, kept = start(), []
    for batch in Loader(20_000):
        params, loss = train_step(params, batch["x"])
        kept.append(params["w"])


def collects_each():
    params, seen = start(), []
    for batch in Loader(20_000):
        seen.append(np.asarray(evaluate(params, batch["x"]) * np.ones((64, WIDTH), np.float32)))
    data = np.concatenate(seen)
    for step in range(100):
        params, loss = train_step(params, data)


def loader_fails():
    params = start()

    def read():
        for number in itertools.count():
            if number == 20_000:
                raise ValueError("too few")
            yield rows(BATCH)

    for batch in zip(read()):
        params, loss = train_step(params, batch[0])


globals()[sys.argv[1]]()
