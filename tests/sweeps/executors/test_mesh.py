"""Sweeps on a mesh of one machine's devices. tests/faults/test_gangs.py tests several machines."""

import dataclasses
import shutil

import pytest

from lvp.training import records
from sweeps.driver.manifest import Manifest
from tests.sweeps.mesh_sweeps import FEW, RUN, assert_same_training


@pytest.mark.slow
def test_lanes_on_a_mesh_of_two_devices_equal_lanes_on_one_device(finished, command, monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    out = tmp_path / "out"
    done = command(*RUN, "--executor", "local", "--mesh", "fsdp=2", "--out", out, **FEW)
    assert done.returncode == 0, done.stderr
    assert_same_training(out, finished[0])
    provenance = records.read(out / "records")[0]["provenance"]
    assert provenance["mesh"] == {"data": 1, "fsdp": 2, "model": 1} and provenance["hosts"] == 1


@pytest.mark.parametrize(
    "words, says",
    [
        (("--mesh", "fsdp=3"), "3 devices, but there are 1"),
        (("--mesh", "fsdp=1", "--pack", "2"), "one lane at a time"),
        (("--mesh", "fdsp=1"), "did you mean fsdp"),
        (("--hosts", "2"), "hosts=2 needs --mesh"),
    ],
)
def test_an_impossible_mesh_gives_a_one_line_error(command_here, tmp_path, words, says):
    done = command_here(*RUN, "--executor", "local", *words, "--out", tmp_path / "out", **FEW)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr
    assert not (tmp_path / "out" / "records").exists()


@pytest.mark.slow
def test_a_sweep_over_two_machines_is_refused_on_one_machine(finished, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    next((out / "records").iterdir()).unlink()
    manifest = Manifest.read(out)
    packing = manifest.packing | {"mesh": {"data": 1, "fsdp": 2, "model": 1}, "hosts": 2}
    dataclasses.replace(manifest, packing=packing).write()
    done = command("resume", out, "--executor", "local", "--quiet")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "hosts=2 is more than the available machines (1); give --ray-address" in done.stderr
    again = command("resume", out, "--executor", "local", "--quiet", "--mesh", "fsdp=1")
    assert again.returncode == 0, again.stderr
