"""Sweeps in one program: `jax.vmap` over rates and seeds equals a loop, and a diverged run does not affect the
others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.parametrization import table
from tests.marking import all_slow_but

VOCAB, WIDTH, STEPS, POISONED = 6, 4, 20, 7
LVP = table("lvp", width=WIDTH, vocab=VOCAB)
DECAY = {"weight_decay": 0.1}


def peaked(factory, **kwargs):
    """Returns rate → optimizer with this rate as its peak, because a traced rate has no known peak."""
    return lambda rate: factory(learning_rate=rate, peak_learning_rate=rate, **DECAY, **kwargs)


def scheduled(rate):
    """Returns LionAR with a schedule of the traced peak `rate`."""
    return optim.lion_ar(optim.trapezoid(rate, STEPS, warmup=0.25), **DECAY)


parametrized = functools.partial(optim.parametrized, table=LVP)
OPTIMIZERS = {
    "sign_sgd_0": functools.partial(optim.sign_sgd, sign_of_zero=0),
    "sign_sgd_1": functools.partial(optim.sign_sgd, sign_of_zero=1),
    "adamw": functools.partial(optim.adamw, **DECAY),
    "adamw_uncorrected": functools.partial(optim.adamw, bias_correction_first=False, **DECAY),
    "lion_a": functools.partial(optim.lion_a, **DECAY),
    "lion_a_nesterov": functools.partial(optim.lion_a, nesterov=True, inverse_bias_correction=True, **DECAY),
    "lion_ar": peaked(optim.lion_ar),
    "lion_ar_nesterov": peaked(optim.lion_ar, nesterov=True, inverse_bias_correction=True),
    "lion_ar_scheduled": scheduled,
    "rotational_adamw": functools.partial(optim.rotational_adamw, **DECAY),
    "coupled_adam": functools.partial(optim.coupled_adam, **DECAY),
    "parametrized_adamw": lambda rate: parametrized(optim.adamw, learning_rate=rate, **DECAY),
    "parametrized_lion_ar": peaked(functools.partial(parametrized, optim.lion_ar)),
    "parametrized_coupled_adam": lambda rate: parametrized(optim.coupled_adam, learning_rate=rate, **DECAY),
}
FEW = ("adamw", "lion_ar_scheduled", "coupled_adam", "parametrized_lion_ar")
RATES = np.float32([0.003, 0.03, 0.3])


SHAPES = {
    "embedding": {"embedding": (VOCAB, WIDTH)},
    "block_0": {"mlp": {"up": {"kernel": (WIDTH, WIDTH), "bias": (WIDTH,)}}},
    "head": {"kernel": (WIDTH, VOCAB)},
}


def tree(rng, *leading: int) -> dict:
    """Returns parameters of every role except positions."""
    draw = lambda shape: rng.normal(size=(*leading, *shape)).astype(np.float32)  # noqa: E731
    return jax.tree.map(draw, SHAPES, is_leaf=lambda node: isinstance(node, tuple))


def drawn(seed: int) -> tuple[dict, dict, dict]:
    """Returns start, goal and the noise of every step. One column of the head starts at zero: a neuron that keeps no
    norm."""
    rng = np.random.default_rng(seed)
    start, goal, noise = tree(rng), tree(rng), tree(rng, STEPS)
    start["head"]["kernel"][:, 0] = 0.0
    return start, goal, noise


def trained(make, rate, data, poison):
    """Runs twenty steps towards the goal under noise; `poison` is added to the gradient of one step. A gradient is a
    separate sum for each coordinate, so runs cannot round differently, and only the optimizer is compared."""
    start, goal, noise = data
    tx = make(rate)

    def step(carry, now):
        params, state = carry
        t, noise = now
        extra = jnp.where(t == POISONED, poison, 0.0)
        gradients = jax.tree.map(lambda p, q, r: p - q + 0.5 * r + extra, params, goal, noise)
        updates, state = tx.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (start, tx.init(start)), (jnp.arange(STEPS), noise))[0]


RUNS = [drawn(seed) for seed in range(len(RATES))]


@functools.cache
def program(name: str):
    return jax.jit(jax.vmap(functools.partial(trained, OPTIMIZERS[name])))


@functools.cache
def swept(name: str, poison: tuple[float, ...]):
    """Returns parameters and state of the runs (rate, seed), with a poison each, from one compiled program per
    optimizer."""
    data = jax.tree.map(lambda *leaves: np.stack(leaves), *RUNS)
    return jax.device_get(program(name)(RATES, data, np.float32(poison)))


def of_run(tree, i: int):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.mark.parametrize("name", all_slow_but(FEW, OPTIMIZERS))
def test_runs_equal_a_loop(name):
    """The tolerance is 2e-6 of a leaf's largest entry. Twenty roundings of 6e-8 can add up to 1.2e-6."""
    single = jax.jit(functools.partial(trained, OPTIMIZERS[name]))
    runs = swept(name, (0.0, 0.0, 0.0))
    for i, (rate, data) in enumerate(zip(RATES, RUNS, strict=True)):
        alone = jax.device_get(single(rate, data, np.float32(0)))
        for a, b in zip(jax.tree.leaves(of_run(runs, i)), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * np.max(np.abs(b)))
    assert single._cache_size() == program(name)._cache_size() == 1  # rates are traced: one compilation for all
    first, second, third = (of_run(runs[0], i)["head"]["kernel"] for i in range(3))
    assert not np.allclose(first, second, atol=0.1) and not np.allclose(second, third, atol=0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", all_slow_but(FEW, OPTIMIZERS))
def test_a_diverged_run_does_not_affect_other_runs(name, bad):
    """Compares bits with the same program on the same runs without poison."""
    healthy, broken = swept(name, (0.0, 0.0, 0.0)), swept(name, (0.0, float(bad), 0.0))
    for i in (0, 2):
        jax.tree.map(np.testing.assert_array_equal, of_run(broken, i), of_run(healthy, i))
    same = jax.tree.map(np.array_equal, of_run(broken, 1), of_run(healthy, 1))
    assert not all(jax.tree.leaves(same[0]))  # control: the poison had an effect
    if np.isnan(bad):
        assert all(
            np.all(np.isnan(leaf)) for leaf in jax.tree.leaves(of_run(broken[0], 1))
        )  # and the effect is visible
