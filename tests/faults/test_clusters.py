"""Ray clusters that lose actors, nodes or their head, have no memory, or have a machine with a wrong clock."""

import contextlib
import re
import shutil
import time

import libfaketime
import psutil
import pytest

from lvp.training import records
from tests.faults.clusters import Cluster, Node
from tests.faults.conftest import RUN, SIX
from tests.faults.ledger import Watched
from tests.faults.test_kills import ends_before_a_save
from tests.sweeps.running import outcomes

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(monkeypatch, tmp_path, request):
    # If an earlier Ray left a token, `ray start` would require it, and a driver with an address would not send it.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Cluster(elsewhere, head_cores=getattr(request, "param", 1)) as made:
        yield made


def start(command, cluster, out, **settings):
    return command(*RUN, "--ray-address", cluster.address, "--out", out, start=True, **(SIX | settings))


def without_ray(stderr: str) -> list[str]:
    """The lines of a driver's messages without the log lines of Ray's own code: "[2026-01-31 12:00:00,123 E 1 2] …"."""
    return [line for line in stderr.splitlines() if not re.match(r"\[[-0-9]+ [0-9:,]+ [A-Z] \d+ \d+\] ", line)]


def kill_actor(node: Node) -> None:
    while not (actors := node.found("ray::ResourceTrainable")):
        time.sleep(0.1)
    actors[0].kill()


def kill_raylet(node: Node) -> None:
    """The raylet is the node as Ray sees it. The node's other processes notice it themselves."""
    for process in node.found("raylet")[:1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.parametrize("cluster", [0], indirect=True, ids=[""])  # so that every save is the node's
@pytest.mark.parametrize("fault, kill", [("actor", kill_actor), ("raylet", kill_raylet), ("node", Node.kill)])
def test_a_killed_part_of_a_cluster_only_delays_a_sweep(six_runs, command, cluster, tmp_path, fault, kill):
    """Three times after a save. The node is replaced."""
    out, node = tmp_path / "out", cluster.add()
    watched, process = Watched(out), start(command, cluster, out)
    for _ in range(3):
        assert not ends_before_a_save(process, watched.store), process.communicate()
        watched.look()
        kill(node)
        if fault != "actor":
            node = cluster.add()
    _, stderr = process.communicate(timeout=900)
    assert "Traceback" not in stderr
    if process.returncode != 0:  # all kills hit the same runs
        process = start(command, cluster, out)
        _, stderr = process.communicate(timeout=900)
        assert process.returncode == 0, stderr
    watched.assert_whole(f"{fault} of a Ray cluster is killed", 3, six_runs)
    assert any(r["provenance"]["resumed_at_step"] > 0 for r in records.read(out / "records"))


def test_a_killed_head_ends_the_driver_with_one_line(six_runs, command, cluster, tmp_path):
    """While the driver trains, connects, or starts its workers. Ray may end the process with its own message. The same
    command continues the sweep."""
    watched = Watched(out := tmp_path / "out")
    for seconds in (None, 3, 10):
        process = start(command, cluster, out)
        if seconds is None:
            assert not ends_before_a_save(process, watched.store), process.communicate()
        else:
            time.sleep(seconds)
        watched.look()
        cluster.nodes[-1].kill()
        _, stderr = process.communicate(timeout=200)
        assert process.returncode in (1, 2) and stderr and len(without_ray(stderr)) <= 1, stderr
        assert "Traceback" not in stderr
        cluster.start_head()
    process = start(command, cluster, out)
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 0, stderr
    watched.assert_whole("head of a Ray cluster is killed", 3, six_runs)


def test_a_clock_that_is_wrong_changes_nothing(six_runs, command, cluster, tmp_path):
    variables = libfaketime.get_reload_information()[1] | {"FAKETIME": "-1h"}
    cluster.add(*(f"{name}={value}" for name, value in variables.items()))
    watched = Watched(out := tmp_path / "out")
    process = start(command, cluster, out)
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 0 and not stderr, stderr
    watched.assert_whole("clock of a machine an hour behind", 1, six_runs)
    behind = [row["provenance"]["ended"] < time.time() - 1800 for row in records.read(out / "records")]
    assert True in behind  # control: the second machine has trained


def test_a_machine_without_memory_is_named_and_loses_no_run(finished, command, monkeypatch, tmp_path):
    """Ray kills every worker before the worker reports anything."""
    out = shutil.copytree(finished[0], tmp_path / "out")
    for path in sorted(out.glob("records/*"))[:2]:
        path.unlink()
    watched = Watched(out)
    watched.look()
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")
    done = command("resume", out, "--quiet")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "low on memory" in done.stderr and len(done.stderr) < 600
    # The reason of a run has the memory at that moment, so the reasons may differ.
    failed = re.findall(r"failed: (\d+) run", status := command("status", out).stdout)
    assert sum(map(int, failed)) == 2, status
    monkeypatch.delenv("RAY_memory_usage_threshold")
    done = command("resume", out, "--quiet")
    assert done.returncode == 0 and not done.stderr, done.stderr
    watched.assert_whole("machine without memory under Ray", 2, outcomes(finished[0]))


def test_killed_nodes_leave_no_processes(cluster):
    """Control for the tests above: all processes of a killed node have ended, its workers included."""
    node = cluster.add()
    while len(processes := node.found("")) <= 2:
        time.sleep(0.1)
    node.kill()
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
