"""A role's factor with relative updates: it applies once, outside the root. `describe` equals an optimizer's
behaviour."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.optim.elementwise import lion_scale
from lvp.parametrization import table
from lvp.roles import Declaration

SIDE = 4
LVP = table("lvp", width=SIDE, vocab=SIDE)  # embedding × 2, everything else × 1
RATE, LAMBDA, BETA = 0.01, 0.1, 0.9
GAMMA = float(lion_scale(BETA, None, nesterov=False, inverse_bias_correction=False))
ANGLE = math.sqrt(2 * RATE * LAMBDA) * GAMMA
WEIGHTS = jnp.array([[1.0, 1, -1, -1], [1, -1, 1, -1], [-1, 1, 1, -1], [1, 1, 1, 1]])
# Every neuron of one matrix is orthogonal to the same neuron of the other, along columns and along rows.
SIGNS = WEIGHTS * jnp.array([[1.0, 1, -1, -1], [1, -1, 1, -1], [-1, 1, -1, 1], [-1, -1, 1, 1]])
PARAMS = {"embedding": {"embedding": WEIGHTS}, "head": {"kernel": WEIGHTS}, "norm_final": {"scale": jnp.ones(SIDE)}}
GRADIENTS = {"embedding": {"embedding": SIGNS}, "head": {"kernel": SIGNS}, "norm_final": {"scale": jnp.ones(SIDE)}}


def test_the_example_matrices_are_orthogonal():
    np.testing.assert_array_equal((WEIGHTS * SIGNS).sum(0), 0)
    np.testing.assert_array_equal((WEIGHTS * SIGNS).sum(1), 0)


def turned(tx):
    """Returns the tangent of the angle of every neuron after one step, of (embedding rows, head columns), and the
    update of the gains."""
    updates, _ = jax.jit(tx.update)(GRADIENTS, tx.init(PARAMS), PARAMS)
    after = optax.apply_updates(PARAMS, updates)

    def tangent(w, axis):
        return -(w * SIGNS).sum(axis) / (w * WEIGHTS).sum(axis)

    return (
        tangent(after["embedding"]["embedding"], 1),
        tangent(after["head"]["kernel"], 0),
        updates["norm_final"]["scale"],
    )


def make(**kwargs):
    return optim.parametrized(
        optim.lion_ar, kwargs.pop("rule", LVP), **{"learning_rate": RATE, "weight_decay": LAMBDA, "b": BETA} | kwargs
    )


def test_the_role_factor_multiplies_the_angle_outside_the_root():
    embedding, head, gains = turned(make())
    np.testing.assert_allclose(embedding, 2 * ANGLE, rtol=1e-5)
    np.testing.assert_allclose(head, ANGLE, rtol=1e-5)
    np.testing.assert_allclose(gains, -RATE * GAMMA, rtol=1e-5)


def test_by_role_passes_the_rate_to_the_factory_inside_the_root():
    rates = {"embedding": 2 * RATE, "output": RATE, "vector": RATE}
    embedding, head, _ = turned(optim.by_role(optim.lion_ar, rates, weight_decay=LAMBDA, b=BETA))
    np.testing.assert_allclose(embedding / head, math.sqrt(2), rtol=1e-5)


def test_independent_decay_sets_the_angle_for_any_rate():
    for rate in (RATE, 10 * RATE):
        embedding, head, gains = turned(make(learning_rate=rate, decay="independent"))
        np.testing.assert_allclose(head, math.sqrt(2 * LAMBDA) * GAMMA, rtol=1e-5)
        np.testing.assert_allclose(embedding / head, 2, rtol=1e-5)
        np.testing.assert_allclose(gains, -rate * GAMMA, rtol=1e-5)


def test_rotational_adamw_applies_the_factor_once():
    # The direction of the first step is the gradient's sign (except for ε) and its average norm is its own.
    embedding, head, _ = turned(
        optim.parametrized(optim.rotational_adamw, LVP, learning_rate=RATE, weight_decay=LAMBDA)
    )
    angle = math.sqrt(2 * RATE * LAMBDA * 0.1 / 1.9)
    np.testing.assert_allclose(embedding, 2 * angle, rtol=1e-5)
    np.testing.assert_allclose(head, angle, rtol=1e-5)


def half(count):
    """A schedule at half its peak of 2 · RATE."""
    return RATE * jnp.ones_like(count, float)


def test_the_peak_reaches_every_role():
    for learning_rate in (half, jnp.float32(RATE)):
        with pytest.raises(InputError, match="peak_learning_rate is required"):
            make(learning_rate=learning_rate)
        embedding, head, _ = turned(make(learning_rate=learning_rate, peak_learning_rate=2 * RATE))
        np.testing.assert_allclose(head, ANGLE / math.sqrt(2), rtol=1e-5)
        np.testing.assert_allclose(embedding / head, 2, rtol=1e-5)
    _, head, _ = turned(make(learning_rate=optim.trapezoid(RATE, 10, warmup=0.4)))
    np.testing.assert_allclose(head, ANGLE / 4, rtol=1e-5)


def test_injected_schedules(trajectory):
    inject = optax.inject_hyperparams(functools.partial(optim.parametrized, optim.lion_ar, LVP))
    kwargs = {"learning_rate": half, "peak_learning_rate": 2 * RATE, "weight_decay": LAMBDA}
    injected, plain = (
        trajectory(f(**kwargs), PARAMS, [GRADIENTS] * 3) for f in (inject, functools.partial(make, b=0.9))
    )
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), injected, plain)


def test_declarations_reach_the_factory():
    declarations = (Declaration("w", "hidden", fan_in=(1,)),)
    tx = optim.parametrized(optim.lion_ar, LVP, learning_rate=RATE, weight_decay=LAMBDA, declarations=declarations)
    params = {"w": jnp.arange(1.0, 13).reshape(3, 4)}
    updates, _ = tx.update({"w": jnp.cos(params["w"])}, tx.init(params), params)
    norms = lambda p, axis: jnp.linalg.norm(p["w"], axis=axis)  # noqa: E731
    after = optax.apply_updates(params, updates)
    np.testing.assert_allclose(norms(after, 1), norms(params, 1), rtol=1e-6)
    assert np.max(np.abs(norms(after, 0) / norms(params, 0) - 1)) > 1e-4


@pytest.mark.parametrize("factory", [optim.lion_ar, optim.rotational_adamw])
def test_a_schedule_of_the_decay_is_refused(factory):
    with pytest.raises(InputError, match="weight_decay must be a number or a scalar array, got a schedule"):
        factory(0.1, weight_decay=optax.constant_schedule(0.1))


def test_zero_decay_is_refused_because_it_gives_no_angle():
    with pytest.raises(InputError, match="weight_decay must be above 0.*embedding/embedding"):
        make(weight_decay=None).init(PARAMS)


@pytest.mark.parametrize("decay", ["coupled", "independent"])
def test_describe_equals_the_optimizers_behaviour(params, decay):
    """The rate is measured from a step of sign descent, the decay from a step of AdamW without gradient."""
    rule = table("lvp", width=64, vocab=64)
    schedule = optim.trapezoid(RATE, 10)
    signs = optim.parametrized(optim.sign_sgd, rule, learning_rate=schedule)
    decays = optim.parametrized(optax.adamw, rule, learning_rate=schedule, weight_decay=LAMBDA, decay=decay)
    steps, _ = signs.update(params, signs.init(params), params)
    shrunk, _ = decays.update(jax.tree.map(jnp.zeros_like, params), decays.init(params), params)
    by_path = zip(jax.tree.leaves(steps), jax.tree.leaves(shrunk), jax.tree.leaves(params), strict=True)
    for row, other, (step, shrink, p) in zip(
        optim.describe(signs, params).rows, optim.describe(decays, params).rows, by_path, strict=True
    ):
        np.testing.assert_allclose(jnp.abs(step), row.learning_rate, rtol=1e-6)
        np.testing.assert_allclose(shrink, -other.decay_per_step * p, rtol=1e-5, atol=1e-9)
        assert row.shape == p.shape and row.init_std == rule[row.role].init_std


def test_describe_lists_paths_and_no_decay_of_rotations(params):
    tx = make(rule=table("lvp", width=64, vocab=64))
    text = str(optim.describe(tx, jax.eval_shape(lambda: params)))
    for path, role, multiplier in (("embedding/embedding", "embedding", "8"), ("head/kernel", "output", "1")):
        assert any(
            line.split()[0] == path and line.split()[2] == role and line.split()[6] == multiplier
            for line in text.splitlines()[2:]
        )
    assert all(row.decay_per_step == 0 for row in optim.describe(tx, params).rows)


def test_describe_refuses_foreign_optimizers_and_traced_rates(params):
    with pytest.raises(InputError, match="got GradientTransformationExtraArgs"):
        optim.describe(optax.adam(0.1), params)
    with pytest.raises(InputError, match="traced"):
        jax.vmap(
            lambda rate: optim.describe(make(learning_rate=rate, peak_learning_rate=1.0), PARAMS).rows[0].learning_rate
        )(jnp.ones(2))
