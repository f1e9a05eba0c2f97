"""Lanes that two machines of a Ray cluster train together, one process on each, and the loss of one process."""

import contextlib
import functools
import inspect
import time

import jax
import psutil
import pytest

from lvp.training import records
from tests.faults.watching import Watched, at_work, until
from tests.sweeps.mesh_sweeps import FEW, RUN, assert_same_training

GANG = ("--mesh", "fsdp=2", "--hosts", "2")
LONGER = {"steps": "3000"}  # a lane takes long enough to be hit by a fault
HEARTBEAT = inspect.signature(jax.distributed.initialize).parameters["heartbeat_timeout_seconds"].default
pytestmark = pytest.mark.slow


@pytest.fixture
def pair(cluster):
    """Returns a cluster of two nodes of one core each."""
    cluster.add()
    return cluster


def run(command, cluster, out, *words, **settings):
    return command(*RUN, "--ray-address", cluster.address, *GANG, "--out", out, *words, start=True, **FEW, **settings)


def follower(cluster) -> psutil.Process | None:
    """Returns the process of a gang that is not the Tune trial itself."""
    for node in cluster.nodes:
        for process in node.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "ray::Worker" in " ".join(process.cmdline()):
                    return process
    return None


def replaced(cluster, lost: psutil.Process) -> bool:
    new = follower(cluster)
    return new is not None and new.pid != lost.pid


def test_two_machines_equal_one_machine(finished, command, pair, tmp_path):
    out = tmp_path / "out"
    process = run(command, pair, out)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    assert_same_training(out, finished[0])
    assert all(r["provenance"]["hosts"] == 2 for r in records.read(out / "records"))


def test_a_gang_that_loses_a_process_restarts_bit_exactly(command, pair, tmp_path):
    """SIGTERM ends one of the two processes after both have saved. SIGKILL then ends one process, and the other process
    ends too. After each loss, a new gang continues from the checkpoint."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    process = run(command, pair, whole, **LONGER)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    watched, injected = Watched(out), 0
    process = run(command, pair, out, "--checkpoint-seconds", "0.5", **LONGER)
    for lose in (psutil.Process.terminate, psutil.Process.kill):
        until(lambda: at_work(out) == 1 and follower(pair), process)
        time.sleep(2.0)
        lost = follower(pair)
        lose(lost)
        injected, began = injected + 1, time.monotonic()
        watched.look()
        until(functools.partial(replaced, pair, lost), process)
        seconds = time.monotonic() - began
        print(f"{lose.__name__}: a new process after {seconds:.0f} s")
        assert seconds < HEARTBEAT
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 0 and not stderr, stderr
    watched.assert_whole("one of two processes that train a lane together ends", injected, whole, lanes=3)
    assert any(r["provenance"]["resumed_at_step"] > 0 for r in records.read(out / "records"))
