"""A factory per role in `optim.parametrized`, against `optax.multi_transform` with the same factories. Prints a ratio.

    python -m tests.benchmarks.roles

The parameters of a 4-layer decoder of width 256 and vocabulary 8192, 7 million in float32, updated in place (donated):
Muon for the hidden matrices, AdamW for the other roles. Three minutes.
"""

import sys

from tests.benchmarks import RUN, alternate, finish, serve

MODULE = "tests.benchmarks.roles"
SHAPE = {"vocab": 8192, "width": 256, "layers": 4, "context": 64}
ROUNDS, CALLS = 11, 3
RATE, MUON_RATE, DECAY = 1e-3, 0.02, 0.1


def by_role():
    """`optim.parametrized` with a factory per role."""
    import optax

    from lvp import optim, roles

    factories = dict.fromkeys(roles.ROLES, optax.adamw) | {"hidden": optax.contrib.muon}
    shape = {"width": SHAPE["width"], "vocab": SHAPE["vocab"]}
    return optim.parametrized(
        factories, "lvp", learning_rate=RATE, rates={"hidden": MUON_RATE}, weight_decay=DECAY, **shape
    )


def multi_transform():
    """The same factories, rates and decays by hand."""
    import optax

    from lvp import roles
    from lvp.parametrization import table

    rows = table("lvp", width=SHAPE["width"], vocab=SHAPE["vocab"]).rows
    transforms = {row.role: optax.adamw(RATE * row.lr_multiplier, weight_decay=DECAY * row.decay) for row in rows}
    transforms["hidden"] = optax.contrib.muon(MUON_RATE, weight_decay=DECAY)
    return optax.multi_transform(transforms, roles.labels)


def side(name: str) -> None:
    """`by_role` or `multi_transform`."""
    import jax
    import jax.numpy as jnp
    import optax

    from lvp.models.configs import DecoderConfig
    from lvp.models.decoder import decoder

    tx = {"by_role": by_role, "multi_transform": multi_transform}[name]()
    params = decoder(DecoderConfig(**SHAPE)).init(jax.random.key(0))
    gradients = jax.tree.map(lambda x: 1e-3 * jnp.cos(x), params)
    at = {"params": params, "state": tx.init(params)}
    facts = {"parameters": sum(x.size for x in jax.tree.leaves(params))}
    del params

    @jax.jit(donate_argnums=(0, 1))
    def advance(params, state, gradients):
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def run(n):
        for _ in range(n):
            at["params"], at["state"] = advance(at["params"], at["state"], gradients)
        jax.block_until_ready(at)

    serve({RUN: run}, facts)


def main() -> None:
    done = alternate(MODULE, {"by_role": (True, CALLS), "multi_transform": (True, CALLS)}, ROUNDS)
    ratio = done["by_role"].over(done["multi_transform"])
    rows = [("a factory per role / optax.multi_transform with the same factories", f"{ratio:.2f}×", "≤ 1.05×", "1×")]
    finish("roles", ROUNDS, rows, {name: side.times[RUN] for name, side in done.items()})


if __name__ == "__main__":
    side(sys.argv[1]) if len(sys.argv) > 1 else main()
