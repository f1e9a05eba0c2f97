"""The calculation of one run of `linear_network`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp.models import linear
from lvp.parametrization import table


def calculate(arguments: Mapping[str, Any], run: Mapping[str, Any], dataset) -> dict[str, list[float | None]]:
    """`loss_step{t}`: the loss after t steps by rate, in nats; None if it is not finite."""
    pairs = jnp.asarray(dataset.pair_frequencies(), jnp.float32)
    normalize = run["rows"] == "normalized"
    after = losses(jax.random.key(run["seed"]), pairs, arguments, normalize_rows=normalize)
    return {
        f"loss_step{t}": [float(x) if np.isfinite(x) else None for x in after[:, i]]
        for i, t in enumerate(arguments["steps"])
    }


def losses(key: jax.Array, pairs: jax.Array, arguments: Mapping[str, Any], *, normalize_rows: bool) -> np.ndarray:
    """Losses [rates, steps] after each of `arguments["steps"]` steps of Adam from LVP's init, by embedding rate."""
    width, vocab = arguments["width"], arguments["vocab"]
    lvp = table("lvp", width=width, vocab=vocab)
    start = linear.init(key, width, vocab, lvp["embedding"].init_std, lvp["output"].init_std)
    rates = jnp.asarray(arguments["rates"], jnp.float32)
    output_rate = jnp.float32(arguments["rate_times_width"] / width * lvp["output"].lr_multiplier)
    most = max(arguments["steps"])
    curves = _curves(start, pairs, rates, output_rate, arguments["eps"], most, normalize_rows)
    return np.asarray(curves)[:, arguments["steps"]]


@partial(jax.jit, static_argnums=(5, 6))
def _curves(start, pairs, rates, output_rate, eps, steps, normalize_rows):
    """Losses [rates, steps + 1] before the first step and after each step."""
    direction = optax.scale_by_adam(b1=0.9, b2=0.999, eps=eps)
    loss = jax.value_and_grad(partial(linear.pair_loss, pairs=pairs, normalize_rows=normalize_rows))

    def train(rate):
        by_matrix = linear.as_params(rate, output_rate)

        def step(carry, _):
            params, state = carry
            value, gradients = loss(params)
            moves, state = direction.update(gradients, state)
            return (jax.tree.map(lambda p, eta, u: p - eta * u, params, by_matrix, moves), state), value

        return jax.lax.scan(step, (start, direction.init(start)), length=steps + 1)[1]

    return jax.lax.map(train, rates)
