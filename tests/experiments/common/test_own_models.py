"""Models of one's own: training equals a plain optax loop, in three libraries; wrong models are one line."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from lvp import optim, sweeps, training
from lvp.errors import InputError
from lvp.experiments.common import own_models
from lvp.experiments.common.own_models import Model, ModelRun, Runs
from lvp.roles import Declaration
from lvp.training import RandomWindows, TrainingData, records
from tests.marking import slow

VOCAB, WIDTH = 23, 8
RUNS = Runs(widths=(WIDTH, 12), vocab=VOCAB, rates=(0.01, 0.1, 1.0), seeds=(0, 1), steps=6, context=5, batch=3)


def plain(width, vocab):
    """A bigram model in plain JAX."""

    def init(key):
        return {"embed": jnp.zeros((vocab, width)), "head": jax.random.normal(key, (width, vocab))}

    declarations = [
        Declaration("embed", "embedding", fan_in=(), vocab_axis=0),
        Declaration("head", "output", fan_in=(0,)),
    ]
    return Model(init, lambda params, tokens: jnp.tanh(params["embed"][tokens]) @ params["head"], declarations)


class Linen(nn.Module):
    width: int
    vocab: int

    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(self.vocab, use_bias=False, name="head")(jnp.tanh(nn.Embed(self.vocab, self.width)(tokens)))


def in_linen(width, vocab):
    module = Linen(width, vocab)
    return Model(
        init=lambda key: module.init(key, jnp.zeros((1, 2), int))["params"],
        apply=lambda params, tokens: module.apply({"params": params}, tokens),
        declarations=[Declaration("Embed_0/embedding", "embedding")],
    )


class NNX(nnx.Module):
    def __init__(self, width, vocab, rngs):
        self.embed = nnx.Embed(vocab, width, rngs=rngs)
        self.head = nnx.Linear(width, vocab, use_bias=False, rngs=rngs)

    def __call__(self, tokens):
        return self.head(jnp.tanh(self.embed(tokens)))


def in_nnx(width, vocab):
    def made(key):
        return nnx.split(NNX(width, vocab, nnx.Rngs(key)))

    structure = nnx.graphdef(nnx.eval_shape(lambda: NNX(width, vocab, nnx.Rngs(0))))
    return Model(
        init=lambda key: made(key)[1],
        apply=lambda params, tokens: nnx.merge(structure, params)(tokens),
        declarations=[Declaration("embed/embedding", "embedding")],
    )


class Equinox(eqx.Module):
    embed: eqx.nn.Embedding
    head: eqx.nn.Linear

    def __init__(self, width, vocab, key):
        self.embed = eqx.nn.Embedding(vocab, width, key=key)
        self.head = eqx.nn.Linear(width, vocab, use_bias=False, key=key)

    def __call__(self, tokens):
        return jax.vmap(jax.vmap(lambda token: self.head(jnp.tanh(self.embed(token)))))(tokens)


def in_equinox(width, vocab):
    _, static = eqx.partition(Equinox(width, vocab, jax.random.key(0)), eqx.is_array)
    return Model(
        init=lambda key: eqx.filter(Equinox(width, vocab, key), eqx.is_array),
        apply=lambda params, tokens: eqx.combine(params, static)(tokens),
        declarations=[Declaration("embed/weight", "embedding"), Declaration("head/weight", "output")],
    )


def setting_of(make, **changes):
    """The setting of the model at the first width, of other Runs with changes."""
    runs = own_models.replace(RUNS, **changes)
    (planned, *_) = own_models.experiment("mine", model=make, presets={"tiny": runs}).settings(runs)
    return planned.setting


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(0).zipf(1.5, 400).clip(max=VOCAB - 1).astype(np.int32)


def trained(setting, tokens, *runs):
    program = setting.task().program(len(runs))
    return training.run(program, list(runs), TrainingData.from_tokens(setting, tokens[:300], tokens[300:]))


@pytest.mark.parametrize("rule", ["lvp", slow("mup")])
@pytest.mark.parametrize("make", [plain, in_linen, in_nnx, in_equinox])
def test_training_equals_a_plain_optax_loop(make, rule, tokens):
    setting, run = setting_of(make, rule=rule), ModelRun(0.1, 3)
    (outcome,) = trained(setting, tokens, run)
    model, source = make(WIDTH, VOCAB), RandomWindows(jnp.array(tokens[:300]))
    keys = jax.random.split(jax.random.key(3), 3)
    tx = optim.parametrized(
        optax.adam, rule, width=WIDTH, vocab=VOCAB, learning_rate=0.1, declarations=model.declarations
    )
    params = optim.initialize(tx, model.init(keys[0]), keys[1])
    state, losses = tx.init(params), []

    @jax.jit
    def loss_of(params, windows):
        log_p = jax.nn.log_softmax(model.apply(params, windows[:, :-1]))
        return -jnp.take_along_axis(log_p, windows[:, 1:, None], axis=-1).mean()

    @jax.jit
    def step_of(params, state, step):
        windows = source.batch(keys[2], step, RUNS.batch, RUNS.context)
        loss, gradient = jax.value_and_grad(loss_of)(params, windows)
        updates, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    for step in range(RUNS.steps):
        params, state, loss = step_of(params, state, step)
        losses.append(float(loss))
    np.testing.assert_allclose(outcome.curve_losses, losses, rtol=2e-5)
    parts = [tokens[None, start : start + RUNS.context + 1] for start in range(300, len(tokens) - 1, RUNS.context)]
    valid = sum(float(loss_of(params, part)) * (part.size - 1) for part in parts) / sum(part.size - 1 for part in parts)
    np.testing.assert_allclose(outcome.valid_loss, valid, rtol=2e-5)


def test_records_keep_their_hash_without_fields_of_the_decoder():
    """`--reuse` finds a record by this hash."""
    setting = setting_of(plain)
    config = {"cell": records.configuration(setting), "lane": {"learning_rate": 0.1, "seed": 0}, "data": None}
    record = {"hash": records.config_hash(config), "config": config, "outcome": {}, "provenance": {}}
    assert records.in_current_form(record) == record
    columns = records.table([record]).columns
    assert "setting.model.width" in columns and "setting.model.head_dim" not in columns


def test_packed_runs_equal_single_runs(tokens):
    setting, runs = setting_of(plain), [ModelRun(0.01, 0), ModelRun(0.5, 1)]
    packed = trained(setting, tokens, *runs)
    for run, outcome in zip(runs, packed, strict=True):
        (alone,) = trained(setting, tokens, run)
        np.testing.assert_allclose(outcome.curve_losses, alone.curve_losses, rtol=1e-5)


def test_micro_batches_and_clipping_are_a_decoders(tokens):
    """Parts of a batch change rounding only. Recorded norms are those before clipping."""
    run = ModelRun(0.1, 0)
    (whole,), (parts,), (clipped,) = (
        trained(setting_of(plain, **changes), tokens, run)
        for changes in ({}, {"micro_batches": 3}, {"clip_norm": 1e-3})
    )
    np.testing.assert_allclose(parts.curve_losses, whole.curve_losses, rtol=1e-5)
    assert max(clipped.curve_gradient_norms) > 1e-3  # the norm before clipping


def test_rates_of_a_base_width_shrink_under_mup(tokens):
    """Control: without a base width, the rate is that of each width."""
    by_base = [setting_of(plain, rule="mup", base_width=base).model.table["hidden"].lr_multiplier for base in (None, 4)]
    assert by_base == [1.0, 0.5]


def wrong(width, vocab):
    return plain(width, vocab)._replace(apply=lambda params, tokens: params["embed"][tokens])


def raising(width, vocab):
    def apply(params, tokens):
        raise ValueError("no such layer\nmore")

    return plain(width, vocab)._replace(apply=apply)


def undeclared(width, vocab):
    return plain(width, vocab)._replace(declarations=())


@pytest.mark.parametrize(
    "make, says",
    [
        (wrong, r"model of width 8: apply must return logits of shape \(3, 5, 23\) .*, got \(3, 5, 8\)"),
        (raising, "model of width 8 cannot be trained: ValueError: no such layer$"),
        (undeclared, "model of width 8: parameter 'embed' .* declaration"),
    ],
)
def test_an_untrainable_model_is_one_line_before_training(make, says):
    setting = setting_of(make)
    with pytest.raises(InputError, match=says) as caught:
        setting.task().check_runs([])
    assert "\n" not in str(caught.value)


def test_unusable_settings_are_named():
    with pytest.raises(InputError, match="experiment needs either model or train, and got neither"):
        own_models.experiment("mine", presets={"tiny": RUNS})
    with pytest.raises(InputError, match="rule must be one of .*, got 'mu'"):
        setting_of(plain, rule="mu")
    with pytest.raises(InputError, match="rates needs at least 3 values"):
        own_models.replace(RUNS, rates=(0.1,))


FILE = """
from lvp.experiments.common.own_models import Runs, experiment

def train(run):
    {body}

EXPERIMENT = experiment("outside", train=train, presets={{"tiny": Runs(widths=(8,), rates=(1, 2, 4), steps=5)}})
"""


def test_a_corpus_that_is_not_read_is_refused(tmp_path):
    path = tmp_path / "outside.py"
    path.write_text(FILE.format(body="return [1.0] * 5"))
    with pytest.raises(InputError, match="corpus=zipf: `train` of outside reads data of its own; omit the corpus"):
        sweeps.run(path, "tiny", corpus="zipf", dry_run=True, quiet=True)


@pytest.mark.parametrize(
    "body, says",
    [
        ("return [1.0] * 4", r"train must return the losses of 5 steps, got an array of shape \(4,\)"),
        ("return 'text'", "could not convert string to float"),
        ("raise ValueError('no data')", "ValueError: no data"),
    ],
)
def test_a_function_that_fails_is_named(tmp_path, body, says):
    path = tmp_path / "outside.py"
    path.write_text(FILE.format(body=body))
    with pytest.raises(RuntimeError, match=f"9 runs failed: .*{says}") as caught:
        sweeps.run(path, "tiny", out=tmp_path / "out", executor="inline", quiet=True)
    assert "\n" not in str(caught.value)


def test_a_function_that_trains_has_records_and_may_diverge(tmp_path):
    path = tmp_path / "outside.py"
    nan = "float('nan') if run.learning_rate == 4 and step == 3 else run.learning_rate + run.seed"
    body = f"return [{nan} for step in range(5)]"
    path.write_text(FILE.format(body=body))
    rows = sweeps.run(path, "tiny", out=tmp_path / "out", executor="inline", quiet=True)
    diverged = rows[rows["status"] == "diverged"]
    assert set(diverged["run.learning_rate"]) == {4.0} and set(diverged["diverged_step"]) == {3} and len(diverged) == 3
    (losses,) = own_models.losses(rows, Runs(widths=(8,), rates=(1, 2, 4), steps=5))
    np.testing.assert_array_equal(losses, [[1, 2, np.inf], [2, 3, np.inf], [3, 4, np.inf]])
    assert (tmp_path / "out" / "figure.png").exists()
