"""Micro-batches, schedules and traced options in the training program, and the measures that need them."""

import dataclasses

import jax
import numpy as np
import pytest

from lvp import measures, optim, roles, training
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.training import DataConfig, OptimizerConfig, Program, Run, Setting, TrainingData
from tests.lvp.training import plain_training
from tests.marking import slow

ADAMW = OptimizerConfig("adamw", {"b2": 0.95, "weight_decay": 0.1}, traced=("b1",))
SETTING = Setting(
    DecoderConfig(vocab=40, width=16, layers=1, context=12),
    DataConfig("none"),
    batch=6,
    steps=8,
    optimizer=ADAMW,
    measured_steps=(0, 7),
    micro_batches=3,
    cooldown=0.5,
)
HELD = dataclasses.replace(
    SETTING, optimizer=OptimizerConfig("lion_ar", {"weight_decay": 0.1, "batch_size": SETTING.batch}, traced=("b",))
)


def run(setting=SETTING, rate=0.01, warmup=2, momentum=0.9, seed=0):
    ones = dict.fromkeys(roles.ROLES, 1.0)
    rates, std = ({r: x * y for r, y in ones.items()} for x in (rate, 0.25))
    return Run(rates, std, seed, warmup, {setting.optimizer.momentum: momentum})


@pytest.fixture(scope="module")
def data():
    tokens = np.random.default_rng(0).zipf(1.4, 4000)
    tokens = (tokens[tokens <= 40] - 1)[:600].astype(np.int32)
    return TrainingData.from_tokens(SETTING, tokens[:500], tokens[500:])


@pytest.fixture(scope="module")
def program():
    return Program(SETTING)


@pytest.fixture(scope="module")
def held():
    return Program(HELD)


def reference_steps(trained_run, data, setting=SETTING, **changed):
    """Runs the same training with `plain_training`, with the given changes."""
    rate = optim.trapezoid(trained_run.learning_rates["hidden"], setting.steps, warmup_steps=trained_run.warmup_steps)
    if setting is HELD:
        options = {"batch_size": setting.batch, "b": trained_run.options["b"], "weight_decay": 0.1} | changed
        extra = lambda micro: {"gradient_snr": optim.gradient_snr(micro, setting.micro_batch_size)}  # noqa: E731
        return plain_training.steps(setting, trained_run, data, optim.lion_ar(rate, **options), extra)
    mask = lambda params: jax.tree.map(lambda role: role != "vector", roles.labels(params))  # noqa: E731
    options = {"b1": trained_run.options["b1"], "b2": 0.95, "weight_decay": 0.1, "mask": mask} | changed
    return plain_training.steps(setting, trained_run, data, optim.adamw(rate, **options))


@pytest.mark.slow
@pytest.mark.parametrize("warmup, momentum", [slow(0, 0.9), (2, 0.9), slow(4, 0.5)])
def test_training_equals_plain_micro_batches_with_the_schedule(program, data, warmup, momentum):
    trained_run = run(warmup=warmup, momentum=momentum)
    (result,) = training.run(program, [trained_run], data)
    expected = [step.loss for step in reference_steps(trained_run, data)]
    np.testing.assert_allclose(result.curve_losses, expected, rtol=3e-5)
    # Another warm-up or momentum gives another training.
    assert not np.allclose(expected, [s.loss for s in reference_steps(run(warmup=3), data)], rtol=1e-4)
    assert not np.allclose(expected, [s.loss for s in reference_steps(trained_run, data, b1=0.7)], rtol=1e-4)


@pytest.mark.slow
def test_micro_batches_change_training_only_to_rounding(data):
    settings = [dataclasses.replace(SETTING, micro_batches=k, measured_steps=()) for k in (1, 6)]
    whole, parts = [training.run(Program(setting), [run()], data)[0] for setting in settings]
    np.testing.assert_allclose(parts.curve_losses, whole.curve_losses, rtol=3e-5)


@pytest.mark.slow
def test_warmups_momenta_and_rates_share_one_compilation(program, data):
    program.compile(data)
    compiled = program.advance
    for trained_run in (run(), run(rate=0.1, warmup=4, momentum=0.0), run(warmup=0, seed=3)):
        assert training.run(program, [trained_run], data)[0].status == "finished"
    assert program.advance is compiled


@pytest.mark.slow
@pytest.mark.parametrize("which", ["program", slow("held")])
def test_measures_equal_a_direct_calculation(which, data, request):
    program = request.getfixturevalue(which)
    setting = program.setting
    trained_run = run(setting)
    (result,) = training.run(program, [trained_run], data)
    taken = reference_steps(trained_run, data, setting)
    for at, step in ((0, 0), (1, setting.steps - 1)):
        before = taken[step]
        matrices = {path: {k: v[at] for k, v in m.items()} for path, m in result.measures["matrices"].items()}
        phi = by_path(optim.gradient_snr(before.micro_gradients, setting.micro_batch_size))
        inputs = decoder(setting.model).apply(before.params, data.probe, capture=True)[1]
        weights, moves, gradients = map(by_path, (before.params, before.updates, before.gradients))
        momentum = measures.first_moments(before.opt)
        for path, measured in matrices.items():
            assert measured["snr"] == pytest.approx(float(phi[path]), rel=2e-3, abs=1e-4)
            x, w, u = (np.asarray(a, np.float64) for a in (inputs[path], weights[path], moves[path]))
            y, dy = (w[inputs[path]], u[inputs[path]]) if path.startswith("embedding") else (x @ w, x @ u)
            assert measured["representation_change"] == pytest.approx(np.linalg.norm(dy) / np.linalg.norm(y), rel=2e-3)
            g, m = np.asarray(gradients[path], np.float64).ravel(), np.asarray(momentum[path], np.float64).ravel()
            cosine = g @ m / (np.linalg.norm(g) * np.linalg.norm(m)) if step else 0.0
            assert measured["alignment"] == pytest.approx(cosine, abs=2e-3)
            assert measured["cancelled"] == pytest.approx(-0.9 / 0.1 * (g @ m) / (g @ g), abs=2e-2)


def by_path(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


@pytest.mark.slow
def test_the_change_is_held_by_each_parameters_snr(held, data):
    trained_run = run(HELD)
    (result,) = training.run(held, [trained_run], data)
    expected = [step.loss for step in reference_steps(trained_run, data, HELD)]
    np.testing.assert_allclose(result.curve_losses, expected, rtol=2e-3)  # signs of rounding errors may differ
    unheld = [step.loss for step in reference_steps(trained_run, data, HELD, batch_size=None)]
    assert not np.allclose(expected, unheld, rtol=5e-3)


@pytest.mark.slow
def test_measures_of_micro_batches_change_only_rounding(program, data):
    plain = Program(dataclasses.replace(SETTING, measured_steps=()))
    (measured,) = training.run(program, [run()], data)
    (result,), (another_seed,) = (training.run(plain, [trained_run], data) for trained_run in (run(), run(seed=1)))
    plain_training.assert_same_to_rounding(measured, result)
    assert not np.allclose(another_seed.curve_losses, result.curve_losses, rtol=1e-3)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"micro_batches": 4}, r"micro_batches \(4\) must divide batch \(6\)"),
        ({"micro_batches": 0}, "micro_batches must be at least 1"),
        ({"micro_batches": 1, "optimizer": HELD.optimizer}, "micro_batches must be at least 2"),
        ({"cooldown": 1.5}, "cooldown must be a fraction"),
        ({"measures": ("movements",)}, "measures must hold only"),
    ],
)
def test_impossible_settings_are_named(changes, named):
    with pytest.raises(InputError, match=named):
        dataclasses.replace(SETTING, **changes)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"warmup_steps": 5}, r"warmup_steps \(5\) plus cooldown .* must not exceed steps \(8\)"),
        ({"options": {}}, r"the options that its setting traces \(b1\), got none"),
        ({"options": {"b2": 0.9}}, r"the options that its setting traces \(b1\), got b2"),
    ],
)
def test_untrainable_runs_are_named(changes, named):
    with pytest.raises(InputError, match=named):
        SETTING.check(dataclasses.replace(run(), **changes))
    with pytest.raises(InputError, match="constant"):
        dataclasses.replace(SETTING, cooldown=None).check(run())
    with pytest.raises(InputError, match="at least 2 micro-batches"):
        measures.snr({"head": {"kernel": np.ones((2, 2))}}, {"head": {"kernel": np.ones((1, 2))}}, 1, 4)


def test_only_arguments_of_the_factory_can_be_traced():
    for name in ("b3", "batch_size"):
        with pytest.raises(InputError, match=f"traced: '{name}' is not an option of lion_ar that a run can set"):
            OptimizerConfig("lion_ar", {}, traced=(name,))


def test_evaluation_and_probe_fit_a_micro_batch(data):
    assert data.valid.shape[1] == data.probe.shape[0] == SETTING.micro_batch_size == 2
    weights, targets = data.valid_weights.ravel(), data.valid[..., 1:].ravel()
    np.testing.assert_array_equal(targets[weights > 0], np.concatenate([data.valid[0, 0, 1:], targets[12:]])[:99])
    assert weights.sum() == 99  # every token of 100 except the first
    short = TrainingData.from_tokens(SETTING, data.train.tokens, data.train.tokens[:14])
    np.testing.assert_array_equal(short.probe, [data.train.tokens[:12]] * 2)
