"""The recorded RMS of token rows and of the positions added to them equals a direct calculation."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import measures, roles, training
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder, first_input
from lvp.models.layers import sinusoidal_positions
from lvp.training import DataConfig, Program, Run, Setting, TrainingData

MODEL = DecoderConfig(vocab=40, width=16, layers=1, context=12, embedding_multiplier=4.0)
TOKENS = jnp.array([[1, 2, 3, 1], [5, 6, 7, 8]])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_rows_and_positions_are_told_apart(positions):
    amplitude = 0.5 if positions == "sinusoidal" else 1.0
    config = dataclasses.replace(MODEL, positions=positions, position_amplitude=amplitude)
    params = jax.jit(decoder(config).init)(jax.random.key(0))
    rows, added = jax.jit(functools.partial(first_input, config))(params, TOKENS)
    np.testing.assert_allclose(rows, 4 * params["embedding"]["embedding"][TOKENS], rtol=1e-6)
    expected = {
        "sinusoidal": lambda: 0.5 * sinusoidal_positions(4, 16),
        "learned": lambda: params["position"]["embedding"][:4],
        "rotary": lambda: np.zeros((4, 16)),
    }[positions]()
    np.testing.assert_allclose(added, np.broadcast_to(expected, added.shape), atol=1e-6)
    sizes = measures.input_sizes(rows, added)["inputs"]
    assert float(sizes["rows"]) == pytest.approx(np.sqrt(np.mean(np.square(rows))), rel=1e-5)
    assert float(sizes["added"]) == pytest.approx(np.sqrt(np.mean(np.square(expected))), rel=1e-5)


@pytest.mark.slow
def test_a_measured_step_records_them():
    setting = Setting(MODEL, DataConfig("none"), batch=4, steps=3, measured_steps=(0, 2), measures=("inputs",))
    tokens = np.random.default_rng(0).integers(0, 40, 600).astype(np.int32)
    data = TrainingData.from_tokens(setting, tokens[:500], tokens[500:])
    run = Run(dict.fromkeys(roles.ROLES, 0.1), dict.fromkeys(roles.ROLES, 0.25), 0)
    (outcome,) = training.run(Program(setting), [run], data)
    sizes = outcome.measures["inputs"]
    assert outcome.status == "finished" and set(outcome.measures) == {"inputs"}
    assert sizes["rows"][0] == pytest.approx(1.0, abs=0.3)  # init std times multiplier
    assert sizes["rows"][1] > sizes["rows"][0] + 0.1  # Adam's steps are 0.1 times the multiplier
    assert sizes["added"] == pytest.approx([np.sqrt(np.mean(sinusoidal_positions(12, 16) ** 2))] * 2, rel=1e-5)
