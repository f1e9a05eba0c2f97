"""Runs on a mesh of the devices of one machine."""

import numpy as np
import pytest

from lvp.training import records

RUN = ("run", "width_vocab", "--preset", "smoke", "--quiet", "--executor", "local")
FEW = {"widths": "16", "seeds": "0"}  # three runs of the finished sweep
TOLERANCE = 1e-5  # nats


@pytest.mark.slow
def test_runs_on_a_mesh_of_two_devices_equal_runs_on_one_device(finished, command, monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    out = tmp_path / "out"
    done = command(*RUN, "--mesh", "fsdp=2", "--out", out, **FEW)
    assert done.returncode == 0, done.stderr
    on_mesh, alone = ({r["hash"]: r for r in records.read(folder / "records")} for folder in (out, finished[0]))
    assert len(on_mesh) == 3
    for run, record in on_mesh.items():
        ours, theirs = (np.array(r["outcome"]["curve_losses"]) for r in (record, alone[run]))
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)
        others = (np.array(alone[other]["outcome"]["curve_losses"]) for other in alone if other != run)
        assert min(np.abs(ours - other).max() for other in others if other.shape == ours.shape) > 100 * TOLERANCE
        assert record["provenance"]["mesh"] == {"data": 1, "fsdp": 2, "model": 1}
        assert record["provenance"]["environments"][0]["devices"] == 2
    lost = next((out / "records").iterdir())
    before = records.read(lost)[0]["outcome"]
    lost.unlink()
    done = command("resume", out, "--executor", "local")  # the mesh is that of the sweep
    assert done.returncode == 0 and records.read(lost)[0]["outcome"] == before, done.stderr
