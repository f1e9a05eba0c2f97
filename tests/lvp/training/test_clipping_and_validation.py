"""Gradient clipping, and the validation loss during training."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import roles, training
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.sweeps import work
from lvp.training import DataConfig, OptimizerConfig, Program, Run, Setting, TrainingData
from tests.lvp.training import plain_training

SETTING = Setting(
    DecoderConfig(vocab=30, width=16, layers=1, context=8, head_dim=8),
    DataConfig("none"),
    batch=4,
    steps=6,
    optimizer=OptimizerConfig("sgd", {}),
    measured_steps=(0, 3, 5),
    measures=("movement", "validation"),
)
RATE = 0.1
RUN = Run(dict.fromkeys(roles.ROLES, RATE), dict.fromkeys(roles.ROLES, 1.0), 3)


@pytest.fixture(scope="module")
def data():
    tokens = np.random.default_rng(0).integers(0, 30, 400).astype(np.int32)
    return TrainingData.from_tokens(SETTING, tokens[:300], tokens[300:])


def outcome(data, **changes):
    (result,) = training.run(Program(dataclasses.replace(SETTING, **changes)), [RUN], data)
    return result


@pytest.fixture(scope="module")
def plain(data):
    return outcome(data)


def norms(result):
    """Returns the norms of the measured updates over all parameters."""
    return np.sqrt(np.sum([np.square(role["norm"]) for role in result.measures["roles"].values()], axis=0))


@pytest.mark.slow
def test_an_update_is_at_most_the_rate_times_the_norm(data):
    """SGD's update is the gradient times the rate. The norm clips the first step."""
    gradient = plain_training.steps(SETTING, RUN, data, optax.sgd(RATE))[0].gradients
    norm = 0.5 * float(optax.tree.norm(gradient))
    clipped = norms(outcome(data, clip_norm=norm, measures=("movement",))) / RATE
    assert clipped[0] == pytest.approx(norm, rel=1e-4) and np.all(clipped <= norm * (1 + 1e-4))


@pytest.mark.slow
def test_a_large_norm_changes_training_only_to_rounding(data, plain):
    plain_training.assert_same_to_rounding(outcome(data, clip_norm=1e6), plain)
    small = outcome(data, clip_norm=0.01)
    np.testing.assert_allclose(norms(small), 0.01 * RATE, rtol=1e-4)
    assert not np.allclose(small.curve_losses, plain.curve_losses, rtol=1e-3)


@pytest.mark.slow
def test_validation_losses_equal_those_of_a_shorter_training(data, plain):
    losses = plain.measures["validation"]["loss"]
    assert losses[-1] == pytest.approx(plain.valid_loss, rel=1e-5)  # measures have six digits
    cut = outcome(data, steps=4, measured_steps=(3,))
    assert losses[1] == pytest.approx(cut.valid_loss, rel=1e-5) and losses[0] != losses[1]


@pytest.mark.slow
def test_validation_changes_training_only_to_rounding(data, plain):
    plain_training.assert_same_to_rounding(plain, outcome(data, measured_steps=()))


@pytest.mark.slow
def test_later_positions_are_the_second_half_of_each_window(data):
    last = plain_training.steps(SETTING, RUN, data, optax.sgd(RATE))[-1]
    params, model = optax.apply_updates(last.params, last.updates), decoder(SETTING.model)
    windows = jnp.concatenate(data.valid)
    logits = model.apply(params, windows[:, :-1]) @ model.head(params)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:])
    weights = jnp.concatenate(data.valid_weights)
    means = [jnp.sum((losses * weights)[:, half]) / jnp.sum(weights[:, half]) for half in (slice(4), slice(4, 8))]
    measured = outcome(data, measures=("later_positions",)).measures["later_positions"]["loss"][-1]
    assert measured == pytest.approx(float(means[1]), rel=2e-5)  # measures have six digits
    assert measured != pytest.approx(float(means[0]), rel=1e-3)  # the test separates the halves


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan")])
def test_a_norm_must_be_above_zero(norm):
    with pytest.raises(InputError, match="clip_norm must be finite and above zero"):
        dataclasses.replace(SETTING, clip_norm=norm)


def test_a_record_contains_the_utilisation_of_the_device(monkeypatch):
    """At 10⁹ tokens per second."""

    class Device:
        device_kind = "NVIDIA H100 80GB HBM3"

        def memory_stats(self):
            return {"peak_bytes_in_use": 123}

    def speed(devices):
        mesh = SimpleNamespace(size=devices) if devices > 1 else None
        return work._speed(SETTING, mesh, 2, 10, 10 * 2 * SETTING.tokens_per_step / 1e9)

    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    part = SETTING.model.flops_per_token() * 1e9 / 989e12
    assert speed(1)["mfu"] == pytest.approx(part, abs=1e-4) and speed(1)["peak_bytes"] == 123
    assert speed(4)["mfu"] == pytest.approx(part / 4, abs=1e-4) and speed(4)["tokens_per_second"] == pytest.approx(1e9)
    Device.device_kind, Device.memory_stats = "cpu", lambda self: None
    assert speed(1)["mfu"] is None and speed(1)["peak_bytes"] > 10**7  # of this process
