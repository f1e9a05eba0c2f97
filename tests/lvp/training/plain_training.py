"""The training of a setting, reimplemented: dense loss, optax, one dispatch per step, gradients of every micro-batch
kept."""

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
    """params, opt: before the step. micro_gradients: every array is [K, …]."""

    params: Any
    opt: Any
    loss: float
    gradients: Any
    micro_gradients: Any
    updates: Any


def steps(setting, run, data, tx, extra=lambda micro_gradients: {}) -> list[Step]:
    """Returns all steps of a run under `tx`, whose update receives `extra` of the gradients of the micro-batches."""
    model = decoder(setting.model)
    init_key, data_key = jax.random.split(jax.random.key(run.seed))

    @jax.jit
    def start():
        params = model.init(init_key, run.init_std)
        return params, tx.init(params)

    def loss_of(params, windows):
        return dense_next_token_loss(model.apply(params, windows[:, :-1]), model.head(params), windows[:, 1:])

    @jax.jit
    def step_of(params, state, step):
        tokens = jnp.asarray(data.train.tokens)
        windows = batches.random_windows(tokens, data_key, step, setting.batch, setting.model.context)
        parts = windows.reshape(setting.micro_batches, -1, windows.shape[1])
        losses, micro = jax.vmap(jax.value_and_grad(loss_of), in_axes=(None, 0))(params, parts)
        mean = jax.tree.map(lambda x: x.mean(axis=0), micro)
        updates, after = tx.update(mean, state, params, **extra(micro))
        taken = Step(params, state, losses.mean(), mean, micro, updates)
        return taken, optax.apply_updates(params, updates), after

    params, state = start()
    taken = []
    for step in range(setting.steps):
        this, params, state = step_of(params, state, step)
        taken.append(this._replace(loss=float(this.loss)))
    return taken


def assert_same_to_rounding(result, other) -> None:
    """Asserts that two programs trained the same run: equal status, losses equal to rounding.

    The compiler orders the sums of two programs differently. A float32 rounding is 6e-8 of a number. The compared
    trainings have at most 8 steps with some tens of consecutive roundings each: 1e-5 allows 166 roundings.
    """
    assert result.status == other.status
    np.testing.assert_allclose(result.curve_losses, other.curve_losses, rtol=1e-5)
    assert result.valid_loss == pytest.approx(other.valid_loss, rel=1e-5)
