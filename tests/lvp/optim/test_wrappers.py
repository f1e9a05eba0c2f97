"""Every function that gives an optimizer per role, in every wrapper and with every kind of rate and decay: the steps
are those of plain numbers, or one error names the argument."""

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

WIDTH, VOCAB, RATE, LAMBDA = 8, 16, 0.1, 0.2
LVP = table("lvp", width=WIDTH, vocab=VOCAB)
SHAPE = Shape(width=WIDTH, vocab=VOCAB)
PARAMS = {
    "embedding": {"embedding": jnp.ones((VOCAB, WIDTH))},
    "head": {"kernel": jnp.ones((WIDTH, VOCAB))},
    "norm": {"scale": jnp.ones(WIDTH)},
}
MASK = {"embedding": {"embedding": False}, "head": {"kernel": True}, "norm": {"scale": True}}
RISING = optax.linear_schedule(0.0, RATE, 2)
PEAKED = optim.trapezoid(RATE, 3, warmup=0.7, cooldown=0.0)
FUNCTIONS = {
    "parametrized": functools.partial(optim.parametrized, optax.adamw, LVP),
    "independent": functools.partial(optim.parametrized, optax.adamw, LVP, decay="independent"),
    "by_role": functools.partial(optim.by_role, optax.adamw),
    "transfer": functools.partial(optim.transfer, optax.adamw, scale(SHAPE, SHAPE, "lvp")),
}


def arguments(function, rate=RATE, weight_decay=LAMBDA, **more):
    rates = {"rates": dict.fromkeys(ROLES, rate)} if function.func is optim.by_role else {"learning_rate": rate}
    return {**rates, "weight_decay": weight_decay, "b1": 0.8, **more}


def plain(function, **given):
    return function(**arguments(function, **given))


def injected(function, **given):
    return optax.inject_hyperparams(function)(**arguments(function, **given))


def injected_partial(function):
    given = arguments(function)
    (rate,) = given.keys() & {"rates", "learning_rate"}
    return optax.inject_hyperparams(functools.partial(function, **given))(**{rate: given[rate]})


def is_matrix(params):
    return jax.tree.map(lambda x: x.ndim > 1, params)


# Wrapper → the optimizer, and the same steps from plain arguments.
WRAPPERS = {
    "array": (lambda f: plain(f, rate=jnp.float32(RATE), weight_decay=jnp.float32(LAMBDA)), plain),
    "NumPy": (lambda f: plain(f, rate=np.float32(RATE), weight_decay=np.asarray(LAMBDA)), plain),
    "MultiSteps": (lambda f: optax.MultiSteps(plain(f), 1), plain),
    "masked": (lambda f: optax.masked(plain(f), MASK), lambda f: optax.masked(plain(f), lambda p: MASK)),
    "schedule": (lambda f: plain(f, rate=RISING), lambda f: injected(f, rate=RISING)),
    "decay schedule": (lambda f: plain(f, weight_decay=RISING), lambda f: injected(f, weight_decay=RISING)),
    "injected": (injected, plain),
    "injected, bound": (injected_partial, plain),
    "injected schedule": (lambda f: injected(f, rate=PEAKED), lambda f: plain(f, rate=PEAKED)),
    "injected array": (lambda f: injected(f, rate=jnp.float32(RATE)), plain),
    "mask": (lambda f: plain(f, mask=is_matrix(PARAMS)), lambda f: plain(f, mask=is_matrix)),
    "injected mask": (lambda f: injected(f, mask=MASK), lambda f: plain(f, mask=MASK)),
    "injected function": (lambda f: injected(f, mask=is_matrix), lambda f: plain(f, mask=is_matrix)),
}
WITHOUT_PEAK = {"array", "schedule", "decay schedule"} | {name for name in WRAPPERS if name.startswith("injected")}


def steps(tx):
    params, state, out = PARAMS, tx.init(PARAMS), []
    for count in range(3):
        updates, state = tx.update(jax.tree.map(lambda p: jnp.cos(p + count), params), state, params)  # noqa: B023
        params = optax.apply_updates(params, updates)
        out.append(params)
    return out


def assert_same_steps(a, b):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), steps(a), steps(b))


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrappers_change_no_step(name, wrapper):
    function, builds = FUNCTIONS[name], WRAPPERS[wrapper]
    if name == "independent" and wrapper in WITHOUT_PEAK:
        # λ η_t / max η is unknown, and η_t / η_t would be 0/0 at a rate of 0.
        with pytest.raises(InputError, match="peak_learning_rate is required") as error:
            for build in builds:
                build(function).init(PARAMS)
        assert "\n" not in str(error.value)
        function = functools.partial(function, peak_learning_rate=RATE)
    assert_same_steps(*(build(function) for build in builds))


def test_the_steps_depend_on_what_is_wrapped():
    """Control for the test above."""
    for other in ({"rate": 2 * RATE}, {"rate": RISING}, {"weight_decay": 0.0}, {"mask": MASK}):
        for name in ("parametrized", "by_role", "transfer"):
            with pytest.raises(AssertionError):
                assert_same_steps(plain(FUNCTIONS[name], **other), plain(FUNCTIONS[name]))
