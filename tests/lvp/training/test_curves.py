"""The curves of an outcome: means over equal parts of the steps, of loss, norm of the gradient and learning rate."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from lvp import optim, training
from lvp.models.configs import DecoderConfig
from lvp.parametrization import table
from lvp.training import DataConfig, Program, Run, Setting, TrainingData
from lvp.training.outcome import curve

MODEL = DecoderConfig(24, 16, layers=1, context=8, head_dim=8)
SETTING = Setting(MODEL, DataConfig("none"), batch=4, steps=12, cooldown=0.5)
RUN = Run.under(table("lvp", width=16, vocab=24), 0.02, 0, warmup_steps=3)
TOKENS = np.arange(600, dtype=np.int32) ** 2 % MODEL.vocab


@pytest.mark.parametrize(
    ("steps", "points"), [(7, 7), (50, 50), (1500, 50), (5000, 50), (12_000, 120), (100_000, 1000), (300_001, 1000)]
)
def test_a_point_per_hundred_steps(steps, points):
    """Up to 5,000 steps there are 50 points, as in the committed records."""
    losses = np.arange(steps, dtype=float)
    found = curve(losses, 2 * losses, np.ones(steps))
    assert len(found["curve_steps"]) == points and found["curve_steps"][-1] == steps
    assert max(np.diff([0, *found["curve_steps"]])) - min(np.diff([0, *found["curve_steps"]])) <= 1
    middle = (np.array([0, *found["curve_steps"][:-1]]) + found["curve_steps"] - 1) / 2
    np.testing.assert_allclose(found["curve_losses"], middle)
    np.testing.assert_allclose(found["curve_gradient_norms"], 2 * middle, rtol=1e-5)
    assert found["curve_rates"] == [1.0] * points


def test_values_that_are_not_finite_are_none():
    found = curve(np.array([1.0, np.nan]), np.array([np.inf, 2.0]), np.ones(2))
    assert found["curve_losses"] == [1.0, None] and found["curve_gradient_norms"] == [None, 2.0]


def test_norms_and_rates_of_a_run():
    """The first norm is that of the initial gradient, and clipping does not change it."""
    data = TrainingData.from_tokens(SETTING, TOKENS[:500], TOKENS[500:])
    (plain,) = training.run(Program(SETTING), [RUN], data)
    (clipped,) = training.run(Program(clipping := replace(SETTING, clip_norm=0.01)), [RUN], data)
    schedule = optim.trapezoid(RUN.hidden_rate, 12, warmup_steps=3, cooldown=0.5)
    np.testing.assert_allclose(plain.curve_rates, schedule(np.arange(12)), rtol=1e-5)
    program = Program(clipping)
    state = jax.jit(program._init)(RUN.arrays())
    gradient_of = jax.jit(lambda s, d: jax.grad(program._loss)(s["params"], program._batch(0, s, d)))
    gradient = gradient_of(state, data)
    norm = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(gradient)))
    assert norm > 0.05
    for outcome in (plain, clipped):
        assert outcome.curve_gradient_norms[0] == pytest.approx(norm, rel=1e-4)
    assert len(set(plain.curve_gradient_norms)) == 12 and plain.curve_gradient_norms != clipped.curve_gradient_norms
