"""Measured steps do not change training, and their measures equal a direct calculation."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest

from lvp import measures, optim, roles, training
from lvp.data.tokens.scored import WordCounts
from lvp.errors import InputError
from lvp.losses import next_token_loss
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.training import DataConfig, OptimizerConfig, Program, Run, Setting, TrainingData, language, records, tasks
from tests.lvp.training import plain_training
from tests.marking import slow

PLAIN = Setting(DecoderConfig(vocab=40, width=16, layers=1, context=12), DataConfig("none"), batch=3, steps=7)
MEASURED = dataclasses.replace(PLAIN, measured_steps=(0, 3, 6), measures=("movement", "vocabulary"))
ADAM = {"b1": 0.9, "b2": 0.99, "eps": 1e-8}


def setting(kind="adam", tied=False, **options):
    model = dataclasses.replace(PLAIN.model, tied=tied)
    return dataclasses.replace(MEASURED, model=model, optimizer=OptimizerConfig(kind, options))


def run(rate=0.01, seed=0):
    return Run(dict.fromkeys(roles.ROLES, rate), dict.fromkeys(roles.ROLES, 0.25), seed)


@pytest.fixture(scope="module")
def data():
    tokens = np.random.default_rng(0).zipf(1.4, 4000)
    tokens = (tokens[tokens <= 40] - 1)[:600].astype(np.int32)
    return TrainingData.from_tokens(PLAIN, tokens[:500], tokens[500:])


@pytest.fixture(scope="module")
def programs():
    """Compiling a program takes seconds, so the tests share the programs."""
    return {
        "untied": Program(setting(**ADAM)),
        "tied": Program(setting(tied=True, **ADAM)),
        "sgd": Program(setting("sgd", momentum=0.9)),
        "coupled": Program(setting("coupled_adam", couple=("output", "embedding"))),
    }


@pytest.mark.parametrize("setting", [slow(PLAIN, id="plain"), pytest.param(MEASURED, id="measured")])
def test_micro_batches_trace_the_loss_as_often_as_a_whole_batch(setting, data, monkeypatch):
    def traces(micro_batches):
        calls = []
        monkeypatch.setattr(language, "next_token_loss", lambda *a, **k: calls.append(1) or next_token_loss(*a, **k))
        program = Program(dataclasses.replace(setting, micro_batches=micro_batches))
        runs, zero = program.arrays([program.setting.example_run()]), np.int32(0)
        jax.eval_shape(program.advance, zero, zero, program.run_shapes(), runs, data)
        return len(calls)

    assert traces(3) == traces(1) > 1


@pytest.mark.slow
@pytest.mark.parametrize("head", ["untied", "tied"])
def test_measuring_changes_training_only_to_rounding(head, programs, data):
    """The two gradients of a tied head are computed separately and added."""
    plain = Program(dataclasses.replace(programs[head].setting, measured_steps=()))
    (measured,) = training.run(programs[head], [run()], data)
    (result,), (other,) = (training.run(plain, [run(seed=seed)], data) for seed in (0, 1))
    assert result.measures is None and measured.measures is not None
    plain_training.assert_same_to_rounding(measured, result)
    assert not np.allclose(other.curve_losses, result.curve_losses, rtol=1e-3)


@pytest.mark.slow
def test_chunks_change_no_measure(programs, data):
    (whole,) = training.run(programs["untied"], [run()], data, chunk_seconds=1e9)
    (cut,) = training.run(programs["untied"], [run()], data, chunk_seconds=0)
    assert whole == cut


@pytest.mark.slow
@pytest.mark.parametrize("head", ["untied", "tied"])
def test_measures_equal_a_direct_calculation(head, programs, data):
    """The calculation repeats the training with optax, the dense loss and NumPy, for the last step."""
    measured, tied = programs[head].setting, head == "tied"
    (result,) = training.run(programs[head], [run()], data)
    taken = plain_training.steps(measured, run(), data, optax.adam(0.01, **ADAM))
    start, before, updates = taken[0].params, taken[-1].params, taken[-1].updates
    model = decoder(measured.model)
    state, _ = optax.adam(0.01, **ADAM).update(taken[-1].gradients, taken[-1].opt)[1]

    path = "tied_embedding/embedding" if tied else "head/kernel"
    first, head, move, nu = (np.array(model.head(tree)).T for tree in (start, before, updates, state.nu))
    measured_values = {k: v[-1] for k, v in result.measures["vocabulary"][path].items() if k != "by_frequency"}
    shift = np.linalg.norm(head.mean(0) - first.mean(0)) / np.linalg.norm(head, axis=1).mean()
    assert measured_values["mean_drift"] == pytest.approx(shift, rel=1e-3)
    counts = np.bincount(data.train.tokens, minlength=40) / data.train.tokens.size
    moment = nu.mean(axis=1) / (1 - ADAM["b2"] ** measured.steps)
    assert measured_values["slope"] == pytest.approx(np.polyfit(counts, moment, 1)[0], rel=1e-3)
    assert measured_values["r_squared"] == pytest.approx(np.corrcoef(counts, moment)[0, 1] ** 2, rel=1e-3)
    size = result.measures["matrices"][path]["norm"][-1]
    assert size == pytest.approx(np.linalg.norm(move), rel=1e-3)
    binned = result.measures["vocabulary"][path]["by_frequency"]
    top = np.argmax(counts)
    assert binned["frequency"][-1][0] == pytest.approx(counts[top], rel=1e-5)
    assert binned["norm"][-1][0] == pytest.approx(np.linalg.norm(move[top]), rel=1e-3)
    assert binned["norm"][-1][-1] is None or (counts == 0).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgd", "coupled", "untied"])
def test_sgd_and_coupled_adam_keep_an_untied_heads_mean(name, programs, data):
    """Stollenwerk & Stollenwerk 2025: the head's gradients sum to zero, the input embedding's do not."""
    (result,) = training.run(programs[name], [run(0.01 if name == "coupled" else 0.1)], data)
    vocabulary = result.measures["vocabulary"]
    assert max(result.measures["head_gradient_sum"]) < 1e-6
    assert name == "sgd" or max(vocabulary["head/kernel"]["first_moment_sum"]) < 1e-5
    assert (vocabulary["head/kernel"]["mean_drift"][-1] < 1e-6) == (name != "untied")
    assert vocabulary["embedding/embedding"]["mean_drift"][-1] > 1e-5
    # Neither SGD nor a coupled optimizer has a second moment per token.
    assert ("slope" in vocabulary["head/kernel"]) == (name == "untied")


@pytest.mark.slow
def test_the_heads_part_of_a_tied_gradient_sums_to_zero(programs, data):
    (result,) = training.run(programs["tied"], [run(0.1)], data)
    assert max(result.measures["head_gradient_sum"]) < 1e-6


def test_second_moments_are_found_in_any_chain():
    params = jax.jit(decoder(PLAIN.model).init)(jax.random.key(0))
    adamw = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1))
    for tx in (adamw, optim.by_role(optax.adam, dict.fromkeys(roles.ROLES, 0.1))):
        _, state = jax.jit(lambda params, tx=tx: tx.update(params, tx.init(params), params))(params)
        moments = measures.second_moments(state, 0.999)
        assert set(moments) == {"embedding/embedding", "head/kernel"}
    squares = np.array(params["head"]["kernel"]).T ** 2
    np.testing.assert_allclose(moments["head/kernel"], squares, rtol=1e-4)  # of one step, with bias correction
    assert measures.second_moments(optax.sgd(0.1).init(params), None) == {}


TEXT = np.random.default_rng(1).integers(0, 40, 100).astype(np.int32)
SCORED = dataclasses.replace(MEASURED, data=DataConfig("none", scored="text"), measures=("validation",))


def with_text(data):
    """The data with a scored text."""
    return data._replace(**TrainingData.from_tokens(SCORED, TEXT, TEXT, TEXT)._asdict() | {"train": data.train})


def test_a_scored_text_has_the_models_likelihood(data):
    """Every token but the first is predicted once, in windows that advance by half a context."""
    context, half = PLAIN.model.context, PLAIN.model.context // 2
    one = dataclasses.replace(SCORED, steps=1, measured_steps=())
    ((_, state),) = training.chunks(Program(one), [run()], with_text(data))
    state, model, nats = training.unstack(state, 0, 1), decoder(one.model), 0.0
    log_p = jax.jit(lambda params, tokens: jax.nn.log_softmax(model.apply(params, tokens) @ model.head(params)))
    for start in range(0, TEXT.size - 1, half):
        window = TEXT[start : start + context + 1]
        costs = -np.asarray(log_p(state["params"], window[None, :-1]))[0, np.arange(window.size - 1), window[1:]]
        nats += costs[half if start else 0 :].sum()
    assert float(state["scored_nats"]) == pytest.approx(nats, rel=1e-5)


@pytest.mark.slow
def test_scored_steps_have_the_scores_of_shorter_runs(data):
    """At a constant rate the first steps of a run are a shorter run. The other measured steps have no score."""
    scored, data = SCORED, with_text(data)
    (result,) = training.run(Program(dataclasses.replace(scored, scored_steps=(0, 3))), [run()], data)
    shorter = dataclasses.replace(scored, steps=4, measured_steps=())
    (until_step_3,) = training.run(Program(shorter), [run()], data)
    first, second, last = result.measures["scored"]["nats"]
    assert second == pytest.approx(until_step_3.scored_nats, rel=1e-5) and last is None
    assert first != pytest.approx(second, rel=1e-4) and second != pytest.approx(result.scored_nats, rel=1e-4)
    words = SimpleNamespace(scored_words=WordCounts(50, 40))
    columns = tasks.perplexities(words, result)
    for name, count in (("tokens", 50), ("words", 40)):
        expected = [pytest.approx(np.exp(first / count)), pytest.approx(np.exp(second / count)), None]
        assert columns[f"perplexities_by_{name}"] == expected
        assert columns[f"perplexity_by_{name}"] == pytest.approx(np.exp(result.scored_nats / count))
    assert set(tasks.perplexities(words, until_step_3)) == {"perplexity_by_tokens", "perplexity_by_words"}
    diverging = dataclasses.replace(until_step_3, scored_nats=1e6)  # exp overflows
    assert set(tasks.perplexities(words, diverging).values()) == {np.inf}


def test_steps_without_a_score_leave_the_hash_as_it_was():
    assert "scored_steps" not in records.configuration(MEASURED)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scored_steps": (0,)}, "scored_steps needs a scored text"),
        ({"scored_steps": (0, 2), "data": DataConfig("none", scored="text")}, r"scored_steps .* measure \[2\] too"),
    ],
    ids=str,
)
def test_steps_that_cannot_be_scored_are_named(change, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(MEASURED, **change)


@pytest.mark.parametrize("steps", [(3, 1), (1, 1), (-1,), (7,)])
def test_unmeasurable_steps_are_named(steps):
    with pytest.raises(InputError, match="measured_steps"):
        dataclasses.replace(PLAIN, measured_steps=steps)
