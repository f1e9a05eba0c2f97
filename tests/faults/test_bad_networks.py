"""Ray clusters on networks that delay and lose packets, and whose machines or head are unreachable for some time.

The sweep's directory remains readable on each machine. This is the harder case: an unreachable machine continues to
write, while Ray may give its trial to another machine.
"""

import json
import time

import pytest

from tests.faults import network
from tests.faults.clusters import Cluster
from tests.faults.network import Network
from tests.faults.watching import Watched, at_work, until
from tests.sweeps.running import ROOT, outcomes

RUN = ("run", "width_vocab", "--tier", "smoke")
OPTIONS = ("--threads", "1", "--checkpoint-seconds", "0.5", "--quiet")
LANES = 6
LONG = {"widths": "16", "steps": "10000"}  # a lane takes long enough to be hit by a fault
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    """Returns the directory of the sweep without Ray and without faults."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    done = command(*RUN, *OPTIONS, "--executor", "local", "--out", out, start=True, **LONG)
    _, stderr = done.communicate(timeout=1200)
    assert done.returncode == 0, stderr
    return out


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Returns a network of two machines, and a cluster whose head is on the first."""
    if reason := network.problem():
        pytest.skip(reason)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Network("first", "second") as machines, Cluster(elsewhere, machines.machines[0]) as cluster:
        cluster.add(*machines.machines[1].within(elsewhere))
        yield machines, cluster


def start(command, cluster, out, machine):
    """Starts the sweep with its driver on `machine`."""
    words = (*RUN, *OPTIONS, "--ray-address", cluster.address, "--out", out)
    return command(*words, start=True, within=machine.within(ROOT), **LONG)


def end(command, process, cluster, out, machine) -> None:
    """Waits for the driver. Resumes a sweep whose driver has ended with one line."""
    _, stderr = process.communicate(timeout=900)
    if process.returncode != 0:
        assert process.returncode == 1 and stderr.count("\n") == 1, stderr
        words = ("resume", out, *OPTIONS, "--ray-address", cluster.address)
        process = command(*words, start=True, within=machine.within(ROOT))
        _, stderr = process.communicate(timeout=900)
    assert process.returncode == 0 and not stderr, stderr


def cut(machine, seconds, watched) -> None:
    """Makes a machine unreachable, and looks at the records meanwhile."""
    machine.cut, ending = True, time.monotonic() + seconds
    while time.monotonic() < ending:
        watched.look()
        time.sleep(0.1)
    machine.cut = False


def test_control_a_sweep_on_a_network_without_faults(undisturbed, command, made, tmp_path):
    (machines, cluster), out = made, tmp_path / "out"
    end(command, start(command, cluster, out, machines.machines[0]), cluster, out, machines.machines[0])
    assert outcomes(out) == outcomes(undisturbed) and machines.lost == 0
    hosts = {json.loads(line)["host"] for line in (out / "trials.jsonl").read_text().splitlines()}
    assert hosts == {"first", "second"}


@pytest.mark.parametrize(
    "fault, loss, delay",
    [
        ("network loses 1 % of the packets", 0.01, 0.0),
        ("network loses 10 % of the packets", 0.1, 0.0),
        ("network delays packets by 200 ms", 0.0, 0.2),
    ],
    ids=["1%", "10%", "200ms"],
)
def test_a_bad_network_only_delays_a_sweep(undisturbed, command, made, tmp_path, fault, loss, delay):
    (machines, cluster), out = made, tmp_path / "out"
    head, worker = machines.machines
    worker.loss, worker.delay = loss, delay
    watched, process = Watched(out), start(command, cluster, out, head)
    until(lambda: at_work(out) == 2, process)
    end(command, process, cluster, out, head)
    assert (machines.lost > 0) == (loss > 0)
    watched.assert_whole(fault, 1, undisturbed, LANES)


@pytest.mark.parametrize("seconds", [5, 30, 120])
def test_an_unreachable_machine_only_delays_a_sweep(undisturbed, command, made, tmp_path, seconds):
    (machines, cluster), out = made, tmp_path / "out"
    head, worker = machines.machines
    watched, process = Watched(out), start(command, cluster, out, head)
    until(lambda: at_work(out) == 2, process)
    cut(worker, seconds, watched)
    end(command, process, cluster, out, head)
    watched.assert_whole(f"machine unreachable for {seconds} s", 1, undisturbed, LANES)
