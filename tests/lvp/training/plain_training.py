"""The training of a cell written anew: dense loss, optax, one dispatch a step, every micro-batch's gradient kept."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp.data.tokens import batches
from lvp.losses import dense_next_token_loss
from lvp.models.decoder import decoder


class Step(NamedTuple):
    """params, opt: before the step. loss, gradients, updates; micro_gradients: every array [K, …]."""

    params: Any
    opt: Any
    loss: float
    gradients: Any
    micro_gradients: Any
    updates: Any


def steps(cell, lane, data, tx, extra=lambda micro_gradients: {}) -> list[Step]:
    """All steps of a lane under `tx`, whose update is given `extra` of the micro-batches' gradients."""
    model = decoder(cell.model)
    init_key, data_key = jax.random.split(jax.random.key(lane.seed))
    params = model.init(init_key, lane.init_std)
    state, taken = tx.init(params), []

    def loss_of(params, windows):
        return dense_next_token_loss(model.apply(params, windows[:, :-1]), model.head(params), windows[:, 1:])

    @jax.jit
    def step_of(params, state, windows):
        parts = [jax.value_and_grad(loss_of)(params, part) for part in jnp.split(windows, cell.micro_batches)]
        micro = jax.tree.map(lambda *xs: jnp.stack(xs), *[gradient for _, gradient in parts])
        mean = jax.tree.map(lambda x: x.mean(axis=0), micro)
        updates, after = tx.update(mean, state, params, **extra(micro))
        return sum(loss for loss, _ in parts) / len(parts), mean, micro, updates, after

    for step in range(cell.steps):
        windows = batches.random_windows(jnp.asarray(data.train.tokens), data_key, step, cell.batch, cell.model.context)
        loss, mean, micro, updates, after = step_of(params, state, windows)
        taken.append(Step(params, state, float(loss), mean, micro, updates))
        params, state = optax.apply_updates(params, updates), after
    return taken


def assert_same_to_rounding(result, other) -> None:
    """Asserts that two programs trained the same lane: equal status, losses within rounding.

    The compiler orders the sums of two programs differently. A float32 rounding is 6e-8 of a number; the trainings that
    are compared here have at most 8 steps, of some tens of roundings in a row each: 1e-5 holds 166 roundings.
    """
    assert result.status == other.status
    np.testing.assert_allclose(result.curve_losses, other.curve_losses, rtol=1e-5)
    assert result.valid_loss == pytest.approx(other.valid_loss, rel=1e-5)
