"""The parameters of a finished run stay in the store, whole and unchanged, or an error names them."""

import random

import jax
import pytest

from lvp import experiments, models
from lvp.errors import InputError
from lvp.files import checkpoints, digests
from lvp.models.weights import read
from lvp.sweeps.driver import existing
from lvp.sweeps.store import Store
from lvp.sweeps.sweep import plan, prepared
from lvp.sweeps.work import Worker
from lvp.training import task_for
from tests.faults.conftest import refused
from tests.faults.damage import flip
from tests.faults.kill_points import Killed
from tests.marking import slow
from tests.sweeps.running import outcomes

KEEP = {"keep_weights": True, "checkpoint_seconds": 0.0}


@pytest.fixture(scope="module")
def kept(small, tmp_path_factory):
    """The directory of an undisturbed sweep that keeps its weights."""
    small(out := tmp_path_factory.mktemp("kept") / "out", **KEEP)
    return out


def weights_of(place) -> dict[str, str]:
    """Run → digest of its weights."""
    return {run: read(f"{place}/weights/{run}").digest for run in Store(place).objects.names("weights")}


def trained_runs(place) -> set[str]:
    return {run for run, outcome in outcomes(place).items() if "valid_loss" in outcome}


def test_kept_parameters_have_the_records_validation_loss(kept, whole, monkeypatch, cache):
    assert outcomes(kept) == outcomes(whole) and not Store(whole).objects.names("weights")
    monkeypatch.setenv("LVP_CACHE", str(cache))
    sweep = existing(Store(kept))
    loaded = experiments.load(sweep.experiment)
    settings = loaded.settings(experiments.restored(loaded, sweep.preset, sweep.config))
    (planned,) = plan(settings, prepared(settings))
    task = task_for(planned.setting)
    program, feed = task.program(), task.load(planned.dataset)
    loss = jax.jit(program._validated)
    for run, outcome in outcomes(kept).items():
        model, params = models.load(kept / "weights" / run)
        assert model.config == planned.setting.model
        _, data = feed([planned.runs[run]]).feed(0)
        assert float(loss({"params": params}, data)) == pytest.approx(outcome["valid_loss"], rel=1e-6)
        assert float(loss({"params": model.init(jax.random.key(0))}, data)) != pytest.approx(outcome["valid_loss"])


@pytest.mark.parametrize("place", ["directory", "bucket"])
@pytest.mark.parametrize("moment", ["in training", "before the record"])
def test_a_killed_sweep_continues_to_the_same_weights(small, kept, tmp_path, request, monkeypatch, place, moment):
    out = str(tmp_path / "out") if place == "directory" else request.getfixturevalue("address")

    def stop(*_):
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if moment == "in training":
            patched.setattr(Worker, "_log", stop)
        else:
            patched.setattr(Store, "add_record", stop)
        small(out, **KEEP)
    assert len(weights_of(out)) == (moment == "before the record")  # an unfinished run has none
    small(out, **KEEP)
    assert outcomes(out) == outcomes(kept) and weights_of(out) == weights_of(kept)
    assert weights_of(out).keys() == trained_runs(kept) and len(set(weights_of(out).values())) == 3


def test_a_flipped_bit_in_kept_weights_is_noticed(kept, tmp_path):
    (run, *_) = Store(kept).objects.names("weights")
    place, rng, named = kept / "weights" / run, random.Random(0), 0
    right = digests.digests_of_tree(read(place).params)
    for path in sorted(p for p in place.rglob("*") if p.is_file() and p.stat().st_size):
        content = path.read_bytes()
        for _ in range(4):
            path.write_bytes(flip(content, rng))
            try:
                assert digests.digests_of_tree(read(place).params) == right, path  # a byte that no load reads
            except InputError as error:
                assert str(place) in str(error) and "\n" not in str(error)
                named += 1
        path.write_bytes(content)
    assert named > 4 and digests.digests_of_tree(read(place).params) == right


def test_a_place_without_weights_is_one_line(kept, whole, tmp_path, address):
    Store(tmp_path).save("0" * 16, 1, {"params": {}, "a": jax.numpy.ones(3)}, [])
    unfinished = tmp_path / "checkpoints" / ("0" * 16) / checkpoints.name_of(1)
    for place in (whole, kept, kept / "weights", tmp_path / "nowhere", unfinished, address):
        with refused() as message:
            models.load(place)
        assert f"{place} holds no weights: name OUT" in message[0]


@pytest.mark.parametrize("executor", [slow("local"), slow("ray")])
def test_processes_keep_the_same_weights(command, cache, kept, text, tmp_path, executor, monkeypatch):
    words = ("run", "width_vocab", "--preset", "smoke", "--executor", executor, "--threads", "1", "--keep-weights")
    small = {"widths": "16", "seeds": "0", "steps": "8"}
    done = command(*words, "--corpus", f"text:{text}", "--out", out := tmp_path / "out", **small)
    assert done.returncode == 0, done.stderr
    assert weights_of(out).keys() == weights_of(kept).keys()
