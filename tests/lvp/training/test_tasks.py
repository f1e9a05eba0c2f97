"""`train` gives a lane the outcome that its record in a sweep has."""

import json
from dataclasses import replace

import pytest

import experiments
from lvp import training
from lvp.errors import InputError
from lvp.training import records
from sweeps.driver.manifest import Manifest
from sweeps.worker.tasks import task_for
from sweeps.worker.worker import Settings, Worker
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.running import TINY


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Returns a sweep with the record of its first lane, trained by a worker in this process, and the cache of its
    data."""
    folder = tmp_path_factory.mktemp("one-lane")
    (folder / "text.txt").write_text(some_text(20_000))
    values = TINY | {"corpus": f"text:{folder / 'text.txt'}", "widths": "16", "seeds": "0"}
    config = experiments.configured("width_vocab", "smoke", values)
    (planned,) = experiments.load("width_vocab").cells(config)
    dataset = task_for(planned.cell).prepare(folder / "cache")
    datasets = {planned.label: dataset.to_dict()}
    manifest = Manifest(folder / "out", "width_vocab", "smoke", experiments.to_dict(config), datasets)
    manifest.begin()
    manifest.make_lane_directories()
    lane = next(iter(manifest.cells[0].lanes))
    Worker(manifest.out, Settings(pin=False)).run_trial({"id": "0000", "cell": 0, "lanes": [lane], "pack": 1})
    return manifest, folder / "cache"


@pytest.mark.slow
def test_a_lane_has_the_outcome_of_its_record(sweep):
    """The outcomes agree bit for bit: the same program ran on the same device."""
    manifest, cache = sweep
    (record,) = records.read(manifest.out / "records")
    (entry,) = manifest.cells
    outcome = training.train(entry.cell, entry.lanes[record["hash"]], cache=cache)
    assert json.loads(records.dumps(outcome)) == record["outcome"]
    assert outcome["status"] == "finished" and 1 < outcome["valid_bits_per_byte"] < 8


def test_an_untrainable_lane_is_refused(sweep):
    manifest, cache = sweep
    (entry,) = manifest.cells
    lane = replace(next(iter(entry.lanes.values())), options={"b1": 0.5})
    with pytest.raises(InputError, match="options"):
        training.train(entry.cell, lane, cache=cache)
