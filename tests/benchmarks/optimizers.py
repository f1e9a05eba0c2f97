"""The time of an optimizer's update and apply, divided by that of optax's optimizer.

    python -m tests.benchmarks.optimizers

The parameters are those of a 4-layer decoder of width 1024 and vocabulary 32768: 117 million in float32. They are
donated, so updates are in place. Each step is measured as one dispatch, and as part of a loop of four steps on the
device.
"""

import math
import sys

from tests.benchmarks import RUN, alternate, finish, serve

MODULE = "tests.benchmarks.optimizers"
SHAPE = {"vocab": 32768, "width": 1024, "layers": 4, "context": 64}
ROUNDS, LOOP = 11, 4
DECAY = 0.1


def sides() -> dict:
    import optax

    from lvp import optim

    return {
        "lion": optax.lion(1e-3, weight_decay=DECAY),
        "lion_a": optim.lion_a(1e-3, weight_decay=DECAY),
        "adamw": optax.adamw(1e-3, weight_decay=DECAY),
        "lion_ar": optim.lion_ar(1e-3, weight_decay=DECAY),
        "coupled_adam": optim.coupled_adam(1e-3, weight_decay=DECAY),
        "rotational_adamw": optim.rotational_adamw(1e-3, weight_decay=DECAY),
    }


def side(name: str) -> None:
    """Runs one side. Its name is a key of `sides`, with the suffix "-loop" for four steps in a loop."""
    import jax
    import jax.numpy as jnp
    import optax

    from lvp.models.configs import DecoderConfig
    from lvp.models.decoder import decoder

    name, _, looped = name.partition("-")
    tx = sides()[name]
    shapes = jax.eval_shape(decoder(DecoderConfig(**SHAPE)).init, jax.random.key(0))

    @jax.jit
    def begin():
        waves = jax.tree.map(lambda s: jnp.cos(jnp.arange(s.size, dtype=s.dtype)).reshape(s.shape), shapes)
        params = jax.tree.map(lambda x: 0.03 * x, waves)
        return params, tx.init(params), jax.tree.map(lambda x: 1e-3 * x, waves)

    def update(gradients, state, params, t):
        # `t` changes in each step, so the barrier keeps computations on the gradients inside the loop.
        gradients, _ = jax.lax.optimization_barrier((gradients, t))
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    @jax.jit(donate_argnums=(0, 1))
    def advance(params, state, gradients, t):
        if not looped:
            return update(gradients, state, params, t)
        return jax.lax.fori_loop(0, LOOP, lambda i, at: update(gradients, at[1], at[0], t + i), (params, state))

    params, state, gradients = jax.block_until_ready(begin())
    at = {"params": params, "state": state}
    facts = {"state_bytes": optax.tree.size(state) * 4, "parameter_bytes": optax.tree.size(params) * 4}
    del params, state

    def run(n):
        for i in range(n):
            at["params"], at["state"] = advance(at["params"], at["state"], gradients, jnp.float32(1 + i))
        jax.block_until_ready(at)

    serve({RUN: run}, facts)


def main() -> None:
    rows, raw = [], {}
    marks = {
        ("lion_a", "lion"): ("≤ 1.05×", ""),
        ("lion_ar", "adamw"): ("≤ 2.0×", "1.6×"),
        ("coupled_adam", "adamw"): ("≤ 1.05×", "< 1×"),
        ("rotational_adamw", "adamw"): ("", ""),
    }
    for suffix, what in (("", "a dispatch a step"), ("-loop", "in a loop on the device")):
        calls = {name + suffix: (True, 1 if suffix else LOOP) for name in sides()}
        done = alternate(MODULE, calls, ROUNDS)
        raw |= {name: s.times[RUN] for name, s in done.items()}
        for (ours, theirs), (least, aim) in marks.items():
            ratio = done[ours + suffix].over(done[theirs + suffix])
            rows.append((f"{ours} / optax.{theirs}, {what}", f"{ratio:.2f}×", least, aim))
    for name, least in (("lion_a", "1.0×"), ("lion_ar", "1.0× + a float per neuron"), ("coupled_adam", "")):
        facts = done[name + "-loop"].facts
        ratio = facts["state_bytes"] / facts["parameter_bytes"]
        rows.append(
            (f"{name}: state bytes / parameter bytes", f"{math.floor(ratio * 1e4 + 0.5) / 1e4:.4f}×", least, "")
        )
    finish("optimizers", ROUNDS, rows, raw)


if __name__ == "__main__":
    side(sys.argv[1]) if len(sys.argv) > 1 else main()
