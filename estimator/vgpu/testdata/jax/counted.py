"""Prints whole numbers that a card would have computed: counters of training states, sizes, and what random computations make of them. JAX on the CPU computes the same."""
import random
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@partial(jax.jit, donate_argnums=0)
def train(state, x):
    weights = state["w"] - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(state["w"])
    return {"w": weights, "step": state["step"] + 1, "opt": [state["opt"][0] + x.shape[0], jnp.maximum(state["opt"][1], 3)]}


state = {"w": jnp.ones((256, 256)), "step": jnp.int32(0), "opt": [0, jnp.zeros((2, 3), jnp.uint8)]}
while int(state["step"]) < 10:
    state = train(state, jnp.ones((4, 256)))
print("state", int(state["step"]), np.asarray(state["opt"][0]), state["opt"][1].tolist(), bool(state["step"] == 10))

lengths = jax.device_put(np.random.RandomState(0).randint(0, 99, 200))
longest = int(jnp.max(lengths))
print("sizes", longest, jnp.zeros((longest, 2)).shape, int(lengths[7]), int((lengths > 50).sum()), int(lengths[:20].min()))


def many(step, table, signed):
    carry = lax.fori_loop(0, 5, lambda i, c: (c[0] + i * step, c[1] ^ c[0]), (step, signed))
    scanned, seen = lax.scan(lambda c, x: (c * 3 + x, (c, x > 2)), step, table)
    nested = lax.fori_loop(0, 3, lambda i, a: lax.fori_loop(0, i, lambda j, b: b + step * j, a), signed)
    chosen = lax.switch(step % 3, [lambda s: s + 1, lambda s: s * 2, lambda s: s - 7], signed)
    return (
        carry,
        scanned,
        seen,
        nested,
        chosen,
        lax.cond(step > 4, lambda s: s // 2, lambda s: s % 5, signed),
        lax.while_loop(lambda s: s < 1000, lambda s: s * 2 + 1, jnp.abs(signed) + 1),
        table[::-1],
        table.reshape(2, 3).T,
        lax.dynamic_slice(table, (step,), (3,)),
        lax.dynamic_update_slice(table, table[:2], (step,)),
        jnp.concatenate([table, table[1:]]),
        jnp.arange(6) * table,
        jnp.clip(signed, -5, 5),
        [lax.div(signed, table), lax.rem(signed, table), lax.div(signed, 0 * step), lax.rem(signed, 0 * step), signed // 7, signed % 7],
        [table.sum(), table.min(), (table > 2).all(), (table > 2).any()],
        signed.astype(jnp.uint8) + jnp.uint8(250),
        jnp.uint32(1) - jnp.uint32(step),
        [-signed, jnp.sign(signed), ~signed, ~(signed > 0), (signed > 0) & (step > 0)],
    )


compiled = jax.jit(many)
for step, signed in ((0, -17), (5, 17), (9, -(2**31))):
    found = compiled(jnp.int32(step), jnp.asarray([3, 1, 4, 1, 5, 9], jnp.int32), jnp.int32(signed))
    print("many", [np.asarray(leaf).tolist() for leaf in jax.tree_util.tree_leaves(found)])

OPERATIONS = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.bitwise_xor, jnp.bitwise_or, lax.rem, lax.div, jnp.floor_divide]


def at_random(seed, a, b):
    choice = random.Random(seed)
    values = [a, b, a + 1]
    for _ in range(12):
        one, other = choice.sample(values, 2)
        values.append(jnp.where(one < other, choice.choice(OPERATIONS)(one, other), choice.choice(OPERATIONS)(other, one)))
    return values[-1]


for seed in range(12):
    print("random", seed, int(jax.jit(partial(at_random, seed))(jnp.int32(seed * 7 - 30), jnp.int32(11 - seed))))

counted = jax.pmap(lambda s: s + 2)
print("pmap", counted(counted(np.zeros((1,), np.int32)))[0].item())
