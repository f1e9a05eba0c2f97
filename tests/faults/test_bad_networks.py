"""Ray clusters on networks that delay and lose packets, and whose machines or head are unreachable for some time.

The sweep's directory remains readable on each machine. This is the harder case: an unreachable machine continues to
write, while Ray may give its trial to another machine.
"""

import json
import time

import pytest

from tests.faults import network
from tests.faults.clusters import LONG, OPTIONS, RUN, Cluster
from tests.faults.network import Network
from tests.faults.watching import Watched, at_work, until
from tests.sweeps.running import ROOT, outcomes

LANES = 6
pytestmark = pytest.mark.slow


@pytest.fixture
def made(monkeypatch, tmp_path, request):
    """Returns a network of two machines, or of a given number, and a cluster whose head is on the first."""
    if reason := network.problem():
        pytest.skip(reason)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = ("first", "second", "third")[: getattr(request, "param", 2)]
    with Network(*names) as machines, Cluster(elsewhere, machines.machines[0]) as cluster:
        for machine in machines.machines[1:]:
            cluster.add(*machine.within(elsewhere))
        yield machines, cluster


def start(command, cluster, out, machine):
    """Starts the sweep with its driver on `machine`."""
    words = (*RUN, *OPTIONS, "--ray-address", cluster.address, "--out", out)
    return command(*words, start=True, within=machine.within(ROOT), **LONG)


def continues(process) -> bool:
    """Waits for the driver. Returns whether it ended with one line, so that `resume` continues the sweep."""
    _, stderr = process.communicate(timeout=900)
    lines = {0: 0, 1: 1}  # of standard error, by exit code
    assert lines.get(process.returncode) == stderr.count("\n"), stderr
    return process.returncode == 1


def resume(command, cluster, out, machine) -> None:
    """Finishes the sweep with a driver on `machine`."""
    words = ("resume", out, *OPTIONS, "--ray-address", cluster.address)
    assert not continues(command(*words, start=True, within=machine.within(ROOT)))


def cut(machine, seconds, watched) -> None:
    """Makes a machine unreachable, and looks at the records meanwhile."""
    machine.cut, ending = True, time.monotonic() + seconds
    while time.monotonic() < ending:
        watched.look()
        time.sleep(0.1)
    machine.cut = False


def test_control_a_sweep_on_a_network_without_faults(six_lanes, command, made, tmp_path):
    (machines, cluster), out = made, tmp_path / "out"
    assert not continues(start(command, cluster, out, machines.machines[0]))
    assert outcomes(out) == outcomes(six_lanes) and machines.lost == 0
    hosts = {json.loads(line)["host"] for line in (out / "trials.jsonl").read_text().splitlines()}
    assert hosts == {"first", "second"}


@pytest.mark.parametrize(
    "fault, loss, delay",
    [
        ("network loses 1 % of the packets", 0.01, 0.0),
        ("network loses 10 % of the packets", 0.1, 0.0),
        ("network delays packets by 200 ms", 0.0, 0.2),
    ],
    ids=["loss-1", "loss-10", "delay-200"],
)
def test_a_bad_network_only_delays_a_sweep(six_lanes, command, made, tmp_path, fault, loss, delay):
    (machines, cluster), out = made, tmp_path / "out"
    head, worker = machines.machines
    worker.loss, worker.delay = loss, delay
    watched, process = Watched(out), start(command, cluster, out, head)
    until(lambda: at_work(out) == 2, process)
    if continues(process):
        resume(command, cluster, out, head)
    assert (machines.lost > 0) == (loss > 0)
    watched.assert_whole(fault, 1, six_lanes, LANES)


@pytest.mark.parametrize("made, seconds", [(2, 5), (2, 30), (2, 120), (3, 30)], indirect=["made"])
def test_an_unreachable_machine_only_delays_a_sweep(six_lanes, command, made, tmp_path, seconds):
    (machines, cluster), out = made, tmp_path / "out"
    head, worker, *others = machines.machines
    watched, process = Watched(out), start(command, cluster, out, head)
    until(lambda: at_work(out) == 2 + len(others), process)
    cut(worker, seconds, watched)
    if continues(process):
        resume(command, cluster, out, head)
    fault = f"machine{' of three' * len(others)} unreachable for {seconds} s"
    watched.assert_whole(fault, 1, six_lanes, LANES)


@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_head_ends_the_driver_with_one_line(six_lanes, command, made, tmp_path, killed):
    """The driver is on the other machine. No connection is closed, because the head's machine sends nothing."""
    (machines, cluster), out = made, tmp_path / "out"
    head, worker = machines.machines
    watched, process = Watched(out), start(command, cluster, out, worker)
    until(lambda: at_work(out) == 2, process)
    head.cut = True
    if killed:
        cluster.nodes[0].kill()
    watched.look()
    assert continues(process)
    watched.look()
    head.cut = False
    if killed:
        cluster.start_head()
        cluster.add(*worker.within(cluster.cwd))
    resume(command, cluster, out, head)
    fault = "machine of the head loses power" if killed else "head unreachable until the driver ends"
    watched.assert_whole(fault, 1, six_lanes, LANES)
