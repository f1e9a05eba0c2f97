"""One program per setting: the outcome of a run, reproducibility, and independence of runs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import parametrization, roles, training
from lvp.errors import InputError
from lvp.losses import dense_next_token_loss
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.training import DataConfig, OptimizerConfig, Program, Run, Setting, TrainingData
from tests.lvp.training import plain_training

SETTING = Setting(DecoderConfig(vocab=40, width=16, layers=1, context=12), DataConfig("none"), batch=3, steps=7)


def run(rate=0.01, seed=0, **rates):
    return Run(dict.fromkeys(roles.ROLES, rate) | rates, dict.fromkeys(roles.ROLES, 0.25), seed)


@pytest.fixture(scope="module")
def data():
    tokens = np.random.default_rng(0).integers(0, 40, 600).astype(np.int32)
    return TrainingData.from_tokens(SETTING, tokens[:500], tokens[500:])


@pytest.fixture(scope="module")
def program():
    return Program(SETTING)


@pytest.fixture(scope="module")
def pack():
    return Program(SETTING, 3)


def same(a, b):
    return dataclasses.asdict(a) == dataclasses.asdict(b)


def test_training_equals_plain_optax(program, data):
    """The loop is reimplemented: dense loss, one optax.adam per role's rate, one dispatch per step."""
    trained_run = run(embedding=0.05, output=0.002)
    tx = optax.multi_transform({r: optax.adam(x) for r, x in trained_run.learning_rates.items()}, roles.labels)
    losses = [step.loss for step in plain_training.steps(SETTING, trained_run, data, tx)]
    (result,) = training.run(program, [trained_run], data)
    np.testing.assert_allclose(result.curve_losses, losses, rtol=2e-5)
    assert result.train_loss == pytest.approx(losses[-1], rel=2e-5)  # a tenth of 7 steps is the last step


def test_validation_scores_every_token_once(program, data):
    kept = {}
    (result,) = training.run(
        program,
        [run()],
        data,
        on_chunk=lambda step, s: kept.update(params=jax.tree.map(np.asarray, s["params"])),
    )
    model, tokens = decoder(SETTING.model), np.random.default_rng(0).integers(0, 40, 600)[500:]
    total, context = 0.0, SETTING.model.context

    @jax.jit
    def loss(params, window):
        return dense_next_token_loss(model.apply(params, window[:, :-1]), model.head(params), window[:, 1:])

    for start in range(0, 99, context):
        window = jnp.asarray(tokens[start : start + context + 1])[None]
        total += (window.shape[1] - 1) * loss(kept["params"], window)
    assert result.valid_loss == pytest.approx(float(total / 99), rel=1e-5)


def test_chunks_change_no_bit(program, data):
    whole = training.run(program, [run()], data, chunk_seconds=1e9)
    assert same(whole[0], training.run(program, [run()], data, chunk_seconds=0)[0])


def test_resuming_from_a_state_changes_no_bit(program, data):
    whole, kept = training.run(program, [run()], data), {}

    def keep(step, state):
        kept[step] = jax.tree.map(np.array, state)

    training.run(program, [run()], data, chunk_seconds=0, on_chunk=keep)
    again = training.run(program, [run()], data, state=kept[4], step=4)
    assert same(whole[0], again[0])
    # Negative control: without the data's random key the run differs.
    without = kept[4] | {"key": np.zeros_like(kept[4]["key"])}
    assert not same(whole[0], training.run(program, [run()], data, state=without, step=4)[0])


def test_packed_runs_equal_single_runs_to_rounding(program, pack, data):
    runs = [run(0.01, 0), run(0.02, 0), run(0.01, 1)]
    packed = training.run(pack, runs, data)
    for in_pack, packed_run in zip(packed, runs, strict=True):
        (alone,) = training.run(program, [packed_run], data)
        np.testing.assert_allclose(in_pack.curve_losses, alone.curve_losses, rtol=1e-5)
        assert in_pack.valid_loss == pytest.approx(alone.valid_loss, rel=1e-5)
    assert packed[0].train_loss != packed[1].train_loss != packed[2].train_loss


def test_a_diverging_run_changes_no_bit_of_the_other_runs(pack, data):
    healthy = training.run(pack, [run(0.01, 0), run(0.02, 0), run(0.01, 1)], data)
    sick = training.run(pack, [run(0.01, 0), run(1e38, 0), run(0.01, 1)], data)
    assert sick[1].status == "diverged" and sick[1].train_loss is None
    assert 0 < sick[1].diverged_step < SETTING.steps
    assert same(sick[0], healthy[0]) and same(sick[2], healthy[2])


def test_divergence_is_an_outcome(program, data):
    (result,) = training.run(program, [run(1e38)], data, chunk_seconds=0)
    assert (result.status, result.valid_loss) == ("diverged", None)
    assert result.curve_losses[0] is not None and result.curve_losses[-1] is None


def test_seeds_and_rates_share_one_compilation(data):
    program = Program(SETTING)
    for changed in (run(), run(0.5), run(seed=3), run(embedding=0.7)):
        training.run(program, [changed], data)
    assert program.advance._cache_size() == 1


@pytest.mark.parametrize("rate", [0, -1e-3, float("nan"), float("inf"), "fast", None])
def test_unusable_rates_are_named(rate):
    with pytest.raises(InputError, match="embedding"):
        run(embedding=rate)


def test_too_little_text_is_named():
    with pytest.raises(InputError, match="12 tokens"):
        TrainingData.from_tokens(SETTING, np.zeros(12, np.int32), np.zeros(50, np.int32))
    with pytest.raises(InputError, match="validation"):
        TrainingData.from_tokens(SETTING, np.zeros(50, np.int32), np.zeros(1, np.int32))


BETAS = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}


def ours(learning_rate, b1, b2, eps):
    return optax.adam(learning_rate, b1, b2, eps)


def test_a_user_optimizer_trains_like_a_built_in_one(program, data):
    own = OptimizerConfig("ours", SETTING.optimizer.options, factory=ours)
    setting = dataclasses.replace(SETTING, optimizer=own)
    (built_in,), (result,) = (training.run(p, [run()], data) for p in (program, Program(setting)))
    plain_training.assert_same_to_rounding(built_in, result)
    assert dataclasses.asdict(setting)["optimizer"] == {"kind": "ours", "options": dict(own.options), "traced": ()}
    assert dataclasses.replace(own, options=dict(own.options) | {"b1": 0.5}).make is ours


@pytest.mark.slow
def test_measures_that_need_unknown_decays_are_left_out(data):
    def hidden(learning_rate, beta1=0.9, beta2=0.999):
        return optax.adam(learning_rate, beta1, beta2)

    def measured(optimizer):
        measuring = {"measured_steps": (0, 1), "measures": ("gradients", "vocabulary")}
        setting = dataclasses.replace(SETTING, optimizer=optimizer, **measuring)
        (outcome,) = training.run(Program(setting), [run()], data)
        return outcome

    known, unknown = measured(OptimizerConfig()), measured(OptimizerConfig("hidden", factory=hidden))
    plain_training.assert_same_to_rounding(known, unknown)
    for path in (("roles", "hidden", "alignment"), ("vocabulary", "head/kernel", "slope")):
        of_known, of_unknown = known.measures, unknown.measures
        for key in path[:-1]:
            of_known, of_unknown = of_known[key], of_unknown.get(key, {})
        assert path[-1] in of_known and path[-1] not in of_unknown


@pytest.mark.parametrize(
    "words, says",
    [
        ({"kind": "adam", "factory": ours}, "lvp has an optimizer of this name"),
        ({"kind": "ours", "factory": 3}, "must be a function"),
        ({"kind": "ours", "factory": ours, "options": {"b1": 0.9}}, "missing a required argument: 'b2'"),
        ({"kind": "ours", "factory": optax.sgd, "options": {"b1": 0.9}}, "unexpected keyword argument 'b1'"),
        ({"kind": "ours", "factory": ours, "options": BETAS, "traced": ("b3",)}, "unexpected keyword argument 'b3'"),
        ({"kind": "ours"}, "must be one of adam"),
    ],
)
def test_an_unusable_optimizer_gives_a_one_line_error(words, says):
    with pytest.raises(InputError, match=says) as caught:
        OptimizerConfig(**words)
    assert "\n" not in str(caught.value)


def test_a_run_under_lvp_has_the_numbers_of_table_2():
    """Hayou & Liu 2025, table 2, at d = 16 and η = 1/2: d^(−1/2) = 1/4, η d^(−1/2) = 1/8, η/d = 1/32."""
    table = parametrization.table("lvp", width=16, vocab=40)
    rates = {"embedding": 0.125, "position": 0.125, "hidden": 0.03125, "output": 0.03125, "vector": 0.03125}
    stds = {"embedding": 0.25, "position": 0.25, "hidden": 0.25, "output": 0.25, "vector": 0.0}
    assert Run.under(table, 0.5 / 16, 7, warmup_steps=2) == Run(rates, stds, 7, warmup_steps=2)
    deviating = Run.under(table, 0.5 / 16, 7, rates={"embedding": 0.75}, stds={"output": 0.0625})
    assert deviating == Run(rates | {"embedding": 0.75}, stds | {"output": 0.0625}, 7)
