"""`lvp.sweeps.trainable` under Tune's own calls: results, checkpoints, reuse and hyperparameters. The page
docs/extending.md runs it in a `tune.Tuner` (tests/docs/test_extending.py)."""

import math

import pytest
from ray import cloudpickle

from lvp import experiments, sweeps, training
from lvp.errors import InputError
from lvp.sweeps.ray_tune import with_hyperparameters
from tests.sweeps.running import TINY

VALUES = TINY | {"corpus": "zipf:1", "widths": "16", "steps": "30"}
HYPERPARAMETERS = {"embedding": 0.05, "seed": 3}


@pytest.fixture(scope="module")
def made(cache):
    """A trainable, and the outcome of its run without Tune."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LVP_CACHE", str(cache))
        loaded = experiments.load("width_vocab")
        (planned,) = loaded.settings(experiments.configured(loaded, "smoke", VALUES))
        run = with_hyperparameters(planned.runs[0], HYPERPARAMETERS)
        yield (
            sweeps.trainable("width_vocab", "smoke", **VALUES),
            training.train(planned.setting, run, cache=cache / "data"),
        )


def finish(trial):
    """The results up to the last."""
    results = [trial.train()]
    while not results[-1]["done"]:
        results.append(trial.train())
    return results


@pytest.mark.slow
def test_results_checkpoints_and_reuse(made, tmp_path):
    """A trial that Tune has paused after its first result gives the bits of a trial without a pause."""
    cls, expected = made
    trial = cls(config=HYPERPARAMETERS)
    first = trial.train()
    assert first["step"] >= 1 and math.isfinite(first["train_loss"]) and not first["done"]
    trial.save_checkpoint(str(tmp_path))
    *between, last = finish(trial)
    assert [result["step"] for result in between] == sorted({result["step"] for result in between})
    assert last["step"] == 30 and last["status"] == "finished"
    assert [last[name] for name in ("train_loss", "valid_loss")] == [expected[x] for x in ("train_loss", "valid_loss")]
    # The actor is reused by a trial with other hyperparameters, and then continues the first from its checkpoint.
    assert trial.reset_config(HYPERPARAMETERS | {"seed": 4})
    assert finish(trial)[-1]["train_loss"] != last["train_loss"]
    trial.reset_config(HYPERPARAMETERS)
    trial.load_checkpoint(str(tmp_path))
    assert trial.at == first["step"]
    assert finish(trial)[-1]["valid_loss"] == last["valid_loss"]
    # Control: the checkpoint belongs to these hyperparameters.
    trial.reset_config(HYPERPARAMETERS | {"seed": 4})
    trial.load_checkpoint(str(tmp_path))
    assert trial.at == 0


OWN = """
import jax, jax.numpy as jnp
from lvp.experiments.common.own_models import Model, Runs, experiment
from lvp.roles import Declaration

def model(width, vocab):
    init = lambda key: {"embed": jnp.zeros((vocab, width)), "head": jax.random.normal(key, (width, vocab))}
    apply = lambda params, tokens: params["embed"][tokens] @ params["head"]
    return Model(init, apply, [
        Declaration("embed", "embedding", fan_in=(), vocab_axis=0), Declaration("head", "output", fan_in=(0,))])

RUNS = Runs(corpus="zipf:1", widths=(8, 12), vocab=64, rates=(0.01, 0.1, 1.0), seeds=(0,), steps=4, context=5, batch=3)
EXPERIMENT = experiment("own", model=model, presets={"tiny": RUNS})
"""


def test_a_model_of_ones_own_is_a_trainable(tmp_path, cache, monkeypatch):
    """A worker on another machine does not have the file. Its result is that of the sweep."""
    monkeypatch.setenv("LVP_CACHE", str(cache))
    file = tmp_path / "own.py"
    file.write_text(OWN)
    table = sweeps.run(str(file), "tiny", executor="inline", out=tmp_path / "out", quiet=True)
    run = table[(table["setting.model.width"] == 12) & (table["run.learning_rate"] == 0.1)]
    cls = cloudpickle.loads(cloudpickle.dumps(sweeps.trainable(str(file), "tiny", setting="d 12")))
    file.unlink()
    last = finish(cls(config={"learning_rate": 0.1, "seed": 0}))[-1]
    assert last["train_loss"] == run["train_loss"].item()
    with pytest.raises(InputError, match="unknown hyperparameter 'embedding'.* learning_rate, seed"):
        cls(config={"embedding": 0.1})


def test_hyperparameters_are_rates_of_roles_and_fields_of_a_run():
    loaded = experiments.load("width_vocab")
    run = loaded.settings(experiments.configured(loaded, "smoke", VALUES))[0].runs[0]
    other = with_hyperparameters(run, HYPERPARAMETERS)
    assert other.seed == 3 and other.learning_rates == {**run.learning_rates, "embedding": 0.05}
    assert with_hyperparameters(run, {}) == run
    with pytest.raises(InputError, match="unknown hyperparameter 'embeding'; did you mean embedding") as refused:
        with_hyperparameters(run, {"embeding": 0.1})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("with_vocab",), "did you mean width_vocab"),
        (("width_vocab", "smole"), "did you mean smoke"),
    ],
)
def test_unknown_names_are_one_line(arguments, says):
    with pytest.raises(InputError, match=says):
        sweeps.trainable(*arguments)
    with pytest.raises(InputError, match="unknown setting 'd 33'"):
        sweeps.trainable("width_vocab", "smoke", setting="d 33")
    with pytest.raises(InputError, match="setting .* of linear_network has no steps that Tune could stop"):
        sweeps.trainable("linear_network", "smoke")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        sweeps.trainable("absent.py", "smoke")
    with pytest.raises(InputError, match="did you mean steps"):
        sweeps.trainable("width_vocab", "smoke", stpes=3)
