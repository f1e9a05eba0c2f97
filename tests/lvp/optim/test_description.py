"""`describe` shows what the optimizer applies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.parametrization import Shape, table
from lvp.parametrization.scaling import scale
from lvp.roles import ROLES
from tests.lvp.optim.conftest import SIDE

LVP = table("lvp", width=SIDE, vocab=SIDE)
RATE, LAMBDA = 0.01, 0.1
SHAPE = Shape(width=SIDE, vocab=SIDE)


def without_embedding(params):
    return dict.fromkeys(params, True) | {"embedding": False}


MUON = dict.fromkeys(ROLES, optax.adamw)
MUON["hidden"] = functools.partial(optax.contrib.muon, consistent_rms=0.2, weight_decay_mask=without_embedding)
MASKED = functools.partial(optax.adamw, mask=without_embedding)
# The optimizer, and the parents of parameters that do not decay; a mask as a tree, as a prefix, as a function, bound.
MASKS = {
    "tree": (
        lambda p, **given: optim.parametrized(optax.adamw, LVP, mask=without_embedding(p), **given),
        {"embedding"},
    ),
    "prefix": (
        lambda p, **given: optim.parametrized(optax.lion, LVP, mask=dict.fromkeys(p, True) | {"head": False}, **given),
        {"head"},
    ),
    "function": (
        lambda p, **given: optim.parametrized(optim.coupled_adam, LVP, mask=without_embedding, **given),
        {"embedding"},
    ),
    "bound": (
        lambda p, **given: optim.parametrized(dict.fromkeys(ROLES, optax.adamw) | {"embedding": MASKED}, LVP, **given),
        {"embedding"},
    ),
    "transfer": (
        lambda p, **given: optim.transfer(optax.adamw, scale(SHAPE, SHAPE, "lvp"), mask=without_embedding, **given),
        {"embedding"},
    ),
    "without": (lambda p, **given: optim.parametrized(optax.adamw, LVP, **given), set()),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("decay", ["coupled", "independent"])
def test_masked_parameters_do_not_decay(name, decay, params, zeros):
    make, excluded = MASKS[name]
    tx = make(params, learning_rate=RATE, weight_decay=LAMBDA, decay=decay)
    updates, _ = tx.update(zeros, tx.init(params), params)
    rows = optim.describe(tx, params).rows
    for row, update, p in zip(rows, jax.tree.leaves(updates), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(update, -row.decay_per_step * p, rtol=1e-5, atol=1e-9)
        decays = row.role != "vector" and row.path.split("/")[0] not in excluded
        assert (row.weight_decay > 0) == (row.decay_per_step > 0) == decays


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (optax.linear_schedule(0.0, RATE, 4), RATE),
        (optax.warmup_cosine_decay_schedule(0.0, RATE, 1024, 10_000), RATE),
        (lambda count: jax.lax.cond(count < 3, lambda: 0.0, lambda: RATE), RATE),
        (optax.linear_schedule(RATE, 0.0, 4), RATE),
        (lambda count: 0.0, 0.0),
        (optim.trapezoid(2 * RATE, 10), 2 * RATE),  # its peak is known
    ],
)
def test_a_warmup_from_zero_does_not_hide_the_rates(schedule, expected, params):
    tx = optim.parametrized(optax.adamw, LVP, learning_rate=schedule)
    described = optim.describe(tx, params)
    for row in described.rows:
        assert row.learning_rate == pytest.approx(expected * LVP[row.role].lr_multiplier)
    where = "at the peak" if hasattr(schedule, "peak") else "without a peak at the largest value of steps 0, 1, 2, 4"
    assert where in described.note


@pytest.mark.parametrize(
    "lost",
    [
        lambda tx: optax.chain(optax.clip_by_global_norm(1.0), tx),
        lambda tx: optax.MultiSteps(tx, 2),
        lambda tx: optax.apply_if_finite(tx, 3),
        lambda tx: jax.tree.map(lambda x: x, tx),
        lambda tx: tx._replace(init=tx.init),
        lambda tx: optax.inject_hyperparams(functools.partial(optim.parametrized, optax.adamw, LVP))(
            learning_rate=RATE
        ),
    ],
)
def test_what_does_not_keep_the_settings_is_refused(lost, params):
    tx = optim.parametrized(optax.adamw, LVP, learning_rate=RATE)
    for call in (optim.describe, functools.partial(optim.initialize, key=jax.random.key(0))):
        call(tx, params)
        with pytest.raises(InputError, match="the result of optim.parametrized itself, got .*: a chain") as error:
            call(lost(tx), params)
        assert "\n" not in str(error.value)


def test_described_parameters_may_be_shapes(params):
    tx = optim.parametrized(MUON, LVP, learning_rate=jnp.float32(RATE), weight_decay=LAMBDA)
    assert optim.describe(tx, jax.eval_shape(lambda: params)) == optim.describe(tx, params)
