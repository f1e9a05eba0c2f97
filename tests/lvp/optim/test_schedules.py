"""Schedules with a peak and their users: warm-up in steps, traced or not, and peaks that must be given."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.parametrization import table


def test_trapezoids_must_fit_into_their_steps():
    with pytest.raises(InputError, match="warmup \\+ cooldown must be at most 1"):
        optim.trapezoid(0.1, 100, warmup=0.6, cooldown=0.5)
    optim.trapezoid(0.1, 100, warmup=0.5, cooldown=0.5)
    with pytest.raises(InputError, match="warmup_steps must lie between 0 and 50"):
        optim.trapezoid(0.1, 100, warmup_steps=51)


def test_warmup_in_steps_may_be_traced():
    """One program serves all lengths and equals the schedule of the fraction."""
    steps = jnp.arange(45)
    traced = jax.jit(lambda rise: jax.vmap(optim.trapezoid(0.3, 40, warmup_steps=rise))(steps))
    for fraction in (0.0, 0.05, 0.25, 0.5):
        expected = jax.vmap(optim.trapezoid(0.3, 40, fraction))(steps)
        np.testing.assert_allclose(traced(round(40 * fraction)), expected, rtol=1e-6)


def lion_ar(rate, **kwargs):
    return optim.lion_ar(rate, weight_decay=0.1, **kwargs)


@pytest.mark.parametrize(
    "make",
    [lion_ar, optim.rotate_by_learning_rate, lambda rate, **kw: optim.parametrized(
        optim.lion_ar, table("lvp", width=64, vocab=512), learning_rate=rate, weight_decay=0.1, **kw
    )],
    ids=["lion_ar", "rotate_by_learning_rate", "parametrized"],
)  # fmt: skip
def test_a_peak_that_cannot_be_read_must_be_given(make):
    """A number is its own peak. An array may be one step's value, which does not contain the schedule's maximum."""
    schedule = optax.cosine_decay_schedule(0.1, 10)
    with pytest.raises(InputError, match="peak_learning_rate is required.*`.peak`"):
        make(schedule)
    with pytest.raises(InputError, match="peak_learning_rate is required.*array"):
        make(jnp.float32(0.1))
    with pytest.raises(InputError, match="peak_learning_rate is required.*array"):
        jax.jit(lambda rate: make(rate).init({"head": {"kernel": jnp.ones((2, 3))}}))(0.1)
    for bad in (0.0, -1.0):
        with pytest.raises(InputError, match="peak"):
            make(schedule, peak_learning_rate=bad)
    for rate, peak in ((0.1, None), (np.float32(0.1), None), (optim.trapezoid(0.1, 10), None), (schedule, 0.1)):
        make(rate, peak_learning_rate=peak)
