"""`train` gives a run the outcome that its record in a sweep has."""

import json
from dataclasses import replace

import pytest

from lvp import experiments, sweeps, training
from lvp.errors import InputError
from lvp.training import records
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.running import TINY


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """The setting of a sweep of three runs in this process, the directory of the sweep, and the cache of its data."""
    folder = tmp_path_factory.mktemp("three-runs")
    (folder / "text.txt").write_text(some_text(20_000))
    values = TINY | {"corpus": f"text:{folder / 'text.txt'}", "widths": "16", "seeds": "0"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LVP_CACHE", str(folder / "cache"))
        sweeps.run("width_vocab", "smoke", out=folder / "out", executor="inline", quiet=True, **values)
    (planned,) = experiments.load("width_vocab").settings(experiments.configured("width_vocab", "smoke", values))
    return planned, folder / "out", folder / "cache" / "data"


@pytest.mark.slow
def test_a_run_has_the_outcome_of_its_record(sweep):
    """The outcomes agree bit for bit: the same program ran on the same device."""
    planned, out, cache = sweep
    rows = records.read(out / "records")
    by_rate = {row["config"]["lane"]["learning_rates"]["embedding"]: row["outcome"] for row in rows}
    run = planned.runs[1]
    outcome = training.train(planned.setting, run, cache=cache)
    assert json.loads(records.dumps(outcome)) == by_rate.pop(run.learning_rates["embedding"])
    assert len(by_rate) == 2 and json.loads(records.dumps(outcome)) not in by_rate.values()
    assert outcome["status"] == "finished" and 1 < outcome["valid_bits_per_byte"] < 8


def test_an_untrainable_run_is_refused(tmp_path):
    values = TINY | {"corpus": "zipf:1", "widths": "16"}
    (planned,) = experiments.load("width_vocab").settings(experiments.configured("width_vocab", "smoke", values))
    with pytest.raises(InputError, match="options"):
        training.train(planned.setting, replace(planned.runs[0], options={"b1": 0.5}), cache=tmp_path)
