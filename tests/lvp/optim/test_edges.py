"""Values at the edge: gradients that are not finite, constants out of range, empty and zero matrices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.optim.elementwise import lion_scale
from lvp.parametrization import Shape, table
from lvp.parametrization.recommend import recommend
from lvp.parametrization.scaling import scale
from lvp.roles import ROLES
from tests.marking import slow

WIDTH, VOCAB, RATE = 8, 16, 0.1
LVP = table("lvp", width=WIDTH, vocab=VOCAB)
EQUAL = dict.fromkeys(ROLES, RATE)
ALONE = {
    "sign_sgd": optim.sign_sgd,
    "adamw": optim.adamw,
    "lion_a": optim.lion_a,
    "lion_ar": optim.lion_ar,
    "rotational_adamw": optim.rotational_adamw,
    "coupled_adam": optim.coupled_adam,
}
MADE = {
    **{name: factory(learning_rate=RATE) for name, factory in ALONE.items()},
    "constant change": optax.chain(
        optim.scale_by_representation_change(batch_size=8), optim.rotate_by_learning_rate(RATE)
    ),
    "parametrized": optim.parametrized(optim.coupled_adam, LVP, learning_rate=RATE),
    "by_role": optim.by_role(optim.lion_ar, EQUAL, weight_decay=0.1),
    "transfer": optim.transfer(optax.adamw, scale(Shape(WIDTH, VOCAB), Shape(WIDTH, VOCAB), "lvp"), RATE),
}


def tree(seed, head=(WIDTH, VOCAB)):
    keys = jax.random.split(jax.random.key(seed), 3)
    return {
        "embedding": {"embedding": jax.random.normal(keys[0], (VOCAB, WIDTH))},
        "head": {"kernel": jax.random.normal(keys[1], head)},
        "norm": {"scale": jax.random.normal(keys[2], (WIDTH,))},
    }


def trained(tx, gradients, params):
    state, update = tx.init(params), jax.jit(functools.partial(tx.update, gradient_snr=0.1))
    for gradient in gradients:
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.parametrize("value", [jnp.nan, slow(jnp.inf)])
@pytest.mark.parametrize("name", MADE)
def test_apply_if_finite_skips_a_gradient_that_is_not_finite(name, value):
    """The step is left out, in every optimizer. Without it, some parameters are not finite for good."""
    tx = optax.with_extra_args_support(MADE[name])
    bad = tree(2)
    bad["head"]["kernel"] = bad["head"]["kernel"].at[1, 2].set(value)
    guarded = trained(optax.apply_if_finite(tx, max_consecutive_errors=5), [tree(1), bad, tree(3)], tree(0))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)  # another program
    jax.tree.map(close, guarded, trained(tx, [tree(1), tree(3)], tree(0)))
    if value is jnp.nan:  # control
        after = trained(tx, [tree(1), bad, tree(3)], tree(0))["head"]["kernel"]
        assert np.isnan(after[1, 2])
        if name == "coupled_adam":
            assert np.isnan(after[1]).all() and np.isfinite(after[0]).all()  # all tokens share the moment


def refused(message, build):
    with pytest.raises(InputError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


def test_arguments_out_of_range_are_refused():
    refused("weight_decay", lambda: optim.rotate_by_learning_rate(RATE, weight_decay=-1.0))
    refused("declarations", lambda: optim.by_role(optax.sgd, EQUAL, declarations=["head"]))
    refused("declarations", lambda: optim.scale_by_role(EQUAL, declarations=["head"]))
    refused("micro_batch_size", lambda: optim.snr_of_squares(1.0, 2.0, 4, 0))
    refused("steps", lambda: recommend(Shape(WIDTH, VOCAB), RATE, steps=-5))
    tx = optim.lion_ar(RATE)
    with pytest.raises(ValueError, match="tx.update"):
        tx.update(tree(1), tx.init(tree(0)))


FACTORIES = [optim.adamw, optim.coupled_adam, optim.rotational_adamw, optax.adamw, optax.lion]


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: f"{factory.__module__}.{factory.__name__}")
def test_a_beta_of_one_is_refused_by_every_function(factory):
    """1 − β is the weight of the gradient, and m / (1 − βᵗ) is 0/0."""
    makers = [
        functools.partial(optim.parametrized, table=LVP, learning_rate=RATE, weight_decay=0.1),
        functools.partial(optim.by_role, rates=EQUAL, weight_decay=0.1),
    ]
    if factory is not optim.coupled_adam and factory is not optax.lion:
        scaling = scale(Shape(WIDTH, VOCAB), Shape(WIDTH, VOCAB), "lvp")
        makers.append(functools.partial(optim.transfer, scaling=scaling, learning_rate=RATE, weight_decay=0.1))
    for name in ("b1", "b2"):
        for one in (1, 1.0, jnp.float32(1.0), np.asarray(1.0)):
            for make in makers:
                refused(rf"{name} must lie in \[0, 1\)", lambda: make(factory, **{name: one}))  # noqa: B023
            refused(rf"{name} must lie", lambda: makers[0](functools.partial(factory, **{name: one})))  # noqa: B023
    for make in makers:
        make(factory, b1=0.0, b2=0.0)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("kind", [float, np.float32, np.asarray, jnp.asarray], ids=["float", "NumPy", "0-d", "jax"])
def test_rates_and_decays_are_checked_in_every_type(bad, kind):
    value = kind(bad)
    for factory in ALONE.values():
        refused("learning_rate must be finite and not negative", lambda: factory(value))  # noqa: B023
    refused("learning_rate must be", lambda: optim.parametrized(optax.adamw, LVP, learning_rate=value))
    refused("weight_decay must be", lambda: optim.parametrized(optax.adamw, LVP, learning_rate=1.0, weight_decay=value))
    refused("rates.'hidden'. must be", lambda: optim.by_role(optax.adamw, EQUAL | {"hidden": value}))
    refused("eps must be", lambda: optim.by_role(optax.adamw, EQUAL, eps=value))
    refused("peak must be", lambda: optim.trapezoid(value, 10))
    refused("factors.'hidden'. must be", lambda: optim.scale_by_role({"hidden": value}))
    jax.eval_shape(lambda rate: optim.adamw(rate).init(tree(0)), jnp.float32(bad))  # a traced value is not known


@pytest.mark.parametrize("head", [(WIDTH, 0), slow((0, VOCAB)), slow((0, 0))])
@pytest.mark.parametrize("name", ALONE)
def test_an_empty_matrix_changes_nothing(name, head):
    tx, params, gradient = optax.with_extra_args_support(ALONE[name](RATE)), tree(0, head), tree(1, head)
    updates, state = tx.update(gradient, tx.init(params), params)
    assert updates["head"]["kernel"].shape == head
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((updates, state)))
    other, gradients = ({k: v for k, v in t.items() if k != "head"} for t in (params, gradient))
    tx = ALONE[name](RATE) if name != "coupled_adam" else optim.coupled_adam(RATE, couple=("output", "embedding"))
    if name != "coupled_adam":  # without a head, nothing would be coupled
        expected, _ = tx.update(gradients, tx.init(other), other)
        for key in other:
            jax.tree.map(np.testing.assert_array_equal, updates[key], expected[key])


@pytest.mark.parametrize("make", [optim.lion_ar, functools.partial(optim.parametrized, optim.lion_ar, LVP)])
def test_a_zero_head_takes_signs_and_keeps_taking_them(make):
    """θ ← θ − η γ sign(u), without decay; the other matrices rotate."""
    tx, params = make(learning_rate=RATE, weight_decay=0.1), tree(0)
    params["head"]["kernel"] = jnp.zeros((WIDTH, VOCAB))
    gradient = tree(1)
    after = trained(optax.with_extra_args_support(tx), [gradient, gradient], params)
    expected = -2 * RATE * lion_scale(0.9, 1, nesterov=False, inverse_bias_correction=False)
    np.testing.assert_allclose(after["head"]["kernel"], expected * jnp.sign(gradient["head"]["kernel"]), rtol=1e-5)
    norms = [np.linalg.norm(p["embedding"]["embedding"], axis=1) for p in (params, after)]
    np.testing.assert_allclose(*norms, rtol=1e-6)
