"""The check that a machine sees the driver's files, and workers whose driver was replaced."""

import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.driver.manifest import Manifest
from sweeps.executors.local import Process, WorkerDied
from sweeps.executors.machine_check import MachineCheck
from sweeps.worker.worker import Settings


@pytest.fixture
def sweep(finished, tmp_path) -> Manifest:
    """A copy of the finished sweep and of its tokens, with one unfinished lane."""
    out, _ = finished
    shutil.copytree(out, tmp_path / "out")
    manifest = Manifest.read(tmp_path / "out")
    for dataset in manifest.datasets.values():
        for name in ("tokens_train", "tokens_valid"):
            dataset[name] = str(shutil.copy(dataset[name], tmp_path / f"{dataset['vocab']}-{name}.npy"))
    manifest.begin()
    next(iter((manifest.out / "records").iterdir())).unlink()
    return manifest


def tokens(manifest: Manifest) -> Path:
    return Path(next(iter(manifest.datasets.values()))["tokens_train"])


CHANGES = {
    "does not see {out}/manifest.json (No such file or directory)": lambda m: (m.out / "manifest.json").unlink(),
    "does not see {out}/session.json (No such file or directory)": lambda m: (m.out / "session.json").unlink(),
    "does not see the same {out} as the driver": lambda m: m.session_path.write_text(
        '{"time": 0.0, "host": "other"}\n'
    ),
    "does not see {tokens} (No such file or directory)": lambda m: tokens(m).unlink(),
    "does not see the same {tokens} as the driver": lambda m: tokens(m).write_bytes(tokens(m).read_bytes()[:-2]),
}


@pytest.mark.parametrize("says, change", CHANGES.items(), ids=range(len(CHANGES)))
def test_a_problem_names_host_and_path(sweep, says, change):
    check = MachineCheck.for_manifest(sweep)
    assert set(check.files) >= {str(tokens(sweep))} and check.problem() is None
    change(sweep)
    expected = says.format(out=sweep.out, tokens=tokens(sweep))
    assert check.problem().startswith(f"{socket.gethostname()} {expected}: ") and "\n" not in check.problem()


@pytest.mark.slow
def test_a_worker_of_a_replaced_driver_trains_nothing(sweep):
    (left,) = {h for e in sweep.cells for h in e.lanes} - sweep.finished()
    index = next(i for i, e in enumerate(sweep.cells) if left in e.lanes)
    trial = {"id": "0000", "cell": index, "lanes": [left], "pack": 1}
    settings = Settings(session=sweep.session())
    sweep.session_path.write_text(json.dumps({"time": 0.0, "host": "the next driver's"}) + "\n")
    for mine, number in ((settings, 0), (replace(settings, session=sweep.session()), 1)):
        worker = Process(sweep.out, mine, number)
        try:
            if mine is settings:
                with pytest.raises(WorkerDied):
                    worker.call("run_trial", trial)
                assert left not in sweep.finished()
            else:  # control: a worker of the next driver
                assert worker.call("run_trial", trial)["host"] == socket.gethostname()
                assert left in sweep.finished()
        finally:
            worker.end()
