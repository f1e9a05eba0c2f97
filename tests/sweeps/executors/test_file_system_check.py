"""What machines of a cluster must see alike, and who works for a driver that is no more."""

import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.driver.manifest import Manifest
from sweeps.executors.file_system_check import FileSystemCheck
from sweeps.executors.local import Process, WorkerDied
from sweeps.worker.worker import Settings


@pytest.fixture
def sweep(finished, tmp_path) -> Manifest:
    """A copy of the finished sweep, with its tokens beside it and a lane that is left."""
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
    "sees another {out} than the driver": lambda m: m.session_path.write_text('{"time": 0.0, "host": "other"}\n'),
    "does not see {tokens} (No such file or directory)": lambda m: tokens(m).unlink(),
    "sees another {tokens} than the driver": lambda m: tokens(m).write_bytes(tokens(m).read_bytes()[:-2]),
}


@pytest.mark.parametrize("says, change", CHANGES.items(), ids=range(len(CHANGES)))
def test_what_a_machine_does_not_see_is_named_with_host_and_path(sweep, says, change):
    check = FileSystemCheck.for_manifest(sweep)
    assert set(check.files) >= {str(tokens(sweep))} and check.problem() is None
    change(sweep)
    said = says.format(out=sweep.out, tokens=tokens(sweep))
    assert check.problem().startswith(f"{socket.gethostname()} {said}: ") and "\n" not in check.problem()


@pytest.mark.slow
def test_a_worker_whose_driver_is_no_more_leaves_the_lane_to_the_next_ones(sweep):
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
            else:  # the control: one that the next driver has started
                assert worker.call("run_trial", trial)["host"] == socket.gethostname()
                assert left in sweep.finished()
        finally:
            worker.end()
