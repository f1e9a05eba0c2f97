"""Ray clusters on networks that delay and lose packets, and whose machines or head are unreachable for some time.

The sweep's directory remains readable on each machine. This is the harder case: an unreachable machine continues to
write, while Ray may give its trial to another machine.
"""

import json
import time

import pytest

from tests.faults import network
from tests.faults.clusters import LONG, OPTIONS, RUN, Cluster, without_faults
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


def start(command, cluster, out, machine, settings=LONG):
    """Starts the sweep with its driver on `machine`."""
    words = (*RUN, *OPTIONS, "--ray-address", cluster.address, "--out", out)
    return command(*words, start=True, within=machine.within(ROOT), **settings)


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


def sweep_on_bad_network(command, made, out, settings=LONG, loss=0.0, delay=0.0) -> Watched:
    """Runs the sweep while the second machine's network loses or delays packets. Returns the watched records."""
    machines, cluster = made
    head, worker = machines.machines
    worker.loss, worker.delay = loss, delay
    watched, process = Watched(out), start(command, cluster, out, head, settings)
    until(lambda: at_work(out) == 2, process)
    if continues(process):
        resume(command, cluster, out, head)
    assert (machines.lost > 0) == (loss > 0)
    return watched


@pytest.mark.parametrize("percent", [1, 10])
def test_lost_packets_only_delay_a_sweep(six_lanes, command, made, tmp_path, percent):
    watched = sweep_on_bad_network(command, made, tmp_path / "out", loss=percent / 100)
    watched.assert_whole(f"network loses {percent} % of the packets", 1, six_lanes, LANES)


def test_late_packets_only_delay_a_sweep(command, made, tmp_path):
    """The lanes are longer, because the second machine starts more than ten seconds after the first."""
    longer = LONG | {"steps": "100000"}
    undisturbed = without_faults(command, tmp_path / "undisturbed", **longer)
    watched = sweep_on_bad_network(command, made, tmp_path / "out", longer, delay=0.2)
    watched.assert_whole("network delays packets by 200 ms", 1, undisturbed, LANES)


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
