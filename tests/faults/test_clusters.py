"""Ray clusters that lose nodes, gain nodes, lose their head, or have machines with a wrong clock or without the sweep's
directory."""

import contextlib
import functools
import json
import os
import random
import re
import shutil
import subprocess
import time

import libfaketime
import psutil
import pytest
from sweeps.driver.manifest import Manifest

from lvp.training import checkpoints, records
from tests.faults import ledger
from tests.faults.clusters import OPTIONS, RUN, Node, without_faults
from tests.faults.watching import Watched, at_work, until

LONG = {"steps": "40000"}  # a lane takes long enough to be hit by a fault
SHORT = {"steps": "4000"}
KILLS = 5
HEAD_KILLS = 20
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    """Returns the directory of the sweep of twelve lanes without faults."""
    return without_faults(command, tmp_path_factory.mktemp("undisturbed") / "out", **LONG)


def start(command, cluster, out, steps=LONG):
    return command(*RUN, *OPTIONS, "--ray-address", cluster.address, "--out", out, start=True, **steps)


def has_saved(out, node) -> bool:
    """Returns whether a worker of a node trains a lane that has a checkpoint."""
    lanes = []
    for process in node.processes():
        for path in out.glob(f"progress/*-{process.pid}.json"):
            with contextlib.suppress(OSError, ValueError):  # the worker replaces and removes the file
                lanes += json.loads(path.read_text())["lanes"]
    return any(checkpoints.steps(out / "checkpoints" / lane) for lane in lanes)


@pytest.mark.parametrize(
    "fault, kill", [("Ray node process killed", Node.kill_raylet), ("whole Ray node killed", Node.kill)]
)
def test_killed_nodes_only_delay_a_sweep(undisturbed, command, cluster, tmp_path, fault, kill):
    """Kills a node five times, at moments drawn from a seed. Some kills come before the new node has any work. The last
    kill comes when it has saved a checkpoint."""
    moments, out = random.Random(fault), tmp_path / "out"
    node, watched, injected = cluster.add(), Watched(out), 0
    process = start(command, cluster, out)
    until(lambda: at_work(out) == 2, process)
    for left in reversed(range(KILLS)):
        time.sleep(moments.uniform(0.0, 12.0))
        if not left:
            until(functools.partial(has_saved, out, node), process)
        watched.look()
        assert process.poll() is None, process.communicate()  # the sweep must still run when a node is killed
        kill(node)
        injected += 1
        node = cluster.add()
    _, stderr = process.communicate(timeout=900)
    assert "Traceback" not in stderr
    if process.returncode != 0:  # all kills hit the same trial
        done = command("resume", out, *OPTIONS, "--ray-address", cluster.address)
        assert done.returncode == 0, stderr + done.stderr
    watched.assert_whole(fault, injected, undisturbed)
    assert any(r["provenance"]["resumed_at_step"] > 0 for r in records.read(out / "records"))


def test_a_new_node_is_used_and_a_lost_head_ends_the_driver_with_one_line(undisturbed, command, cluster, tmp_path):
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a host name of its own takes root and unshare")
    out, within = tmp_path / "out", ("unshare", "--uts", "sh", "-c", 'hostname joined && exec "$@"', "sh")
    watched = Watched(out)
    process = start(command, cluster, out)
    until(lambda: watched.look(), process)
    cluster.add(*within)

    def hosts():
        path = out / "trials.jsonl"
        return {json.loads(line)["host"] for line in path.read_text().splitlines()} if path.exists() else set()

    until(lambda: "joined" in hosts(), process)
    assert len(hosts()) == 2
    watched.look()
    cluster.nodes[0].kill()
    killed = time.monotonic()
    _, stderr = process.communicate(timeout=120)
    assert time.monotonic() - killed < 60
    assert process.returncode == 1 and stderr.count("\n") == 1, stderr
    assert (
        f"no longer answers; `python -m sweeps resume {out} --ray-address {cluster.address}` continues from here"
        in stderr
    )
    # The head restarts at once at the same address, while the joined node still trains for the ended driver.
    cluster.start_head()
    cluster.add()
    assert watched.look() < 12
    process = command("resume", out, *OPTIONS, "--ray-address", cluster.address, start=True)
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 0, stderr
    watched.assert_whole("head killed, and a joined machine still trains", 1, undisturbed)


def without_ray(stderr: str) -> list[str]:
    """The lines of a driver's messages without the log lines of Ray's own code: "[2026-01-31 12:00:00,123 E 1 2] …"."""
    return [line for line in stderr.splitlines() if not re.match(r"\[[-0-9]+ [0-9:,]+ [A-Z] \d+ \d+\] ", line)]


def ends_within(process, seconds) -> bool:
    """Returns whether a process ends within some seconds."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def test_a_head_that_is_killed_20_times_only_delays_sweeps(undisturbed, command, cluster, tmp_path):
    """The head is killed at moments drawn from a seed: while a driver connects, starts workers or trains. `run`
    continues the sweep. A finished sweep is compared, and the next sweep begins."""
    moments, killed = random.Random("head"), 0
    while killed < HEAD_KILLS:
        out, before = tmp_path / str(killed), killed
        watched, process = Watched(out), start(command, cluster, out)
        while killed < HEAD_KILLS and not ends_within(process, moments.uniform(2.0, 25.0)):
            watched.look()
            cluster.nodes[-1].kill()
            killed += 1
            _, stderr = process.communicate(timeout=120)
            assert process.returncode in (1, 2) and len(without_ray(stderr)) == 1, stderr
            cluster.start_head()
            process = start(command, cluster, out)
        _, stderr = process.communicate(timeout=900)
        assert process.returncode == 0, stderr
        watched.assert_whole("head of the cluster killed", killed - before, undisturbed)
    ledger.record("head of the cluster killed", HEAD_KILLS, lost=0, repeated=0, wrong=0)  # of all sweeps together


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_machine_whose_clock_is_wrong_by_an_hour_changes_nothing(command, cluster, tmp_path, hours):
    variables = libfaketime.get_reload_information()[1] | {"FAKETIME": f"{hours:+d}h"}
    cluster.add("env", *(f"{name}={value}" for name, value in variables.items()))
    out = tmp_path / "out"
    watched, process, ahead = Watched(out), start(command, cluster, out, SHORT), set()

    def look() -> bool:
        for progress in Manifest.read(out).read_progress() if at_work(out) else ():
            ahead.add(round((progress["time"] - time.time()) / 3600))
        watched.look()
        return process.poll() is not None

    while not look():
        time.sleep(0.1)
    _, stderr = process.communicate()
    assert process.returncode == 0 and not stderr, stderr
    assert ahead == {0, hours}  # control: both machines trained, and the clock of the second was wrong
    which = "an hour behind" if hours < 0 else "an hour ahead"  # slugs of the ledger have no signs
    watched.assert_whole(f"clock of a machine {which}", 1, without_faults(command, tmp_path / "whole", **SHORT))


@pytest.fixture
def blind(tmp_path):
    """blind(path) returns words before a command that hide the directory `path` from it and name its machine
    `blind`."""
    if os.geteuid() or subprocess.run(["unshare", "--mount", "--uts", "true"], check=False).returncode:
        pytest.skip("hiding a directory from a process takes root and unshare")
    return lambda path: (
        *("unshare", "--mount", "--uts", "sh", "-c"),
        'hostname blind && mount -t tmpfs none "$0" && exec "$@"',
        str(path),
    )


def test_a_machine_that_cannot_read_the_sweep_is_named_before_the_start(command, cluster, blind, cache, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    for hidden, path in ((shared, shared / "out" / "manifest.json"), (cache, cache / "data")):
        node = cluster.add(*blind(hidden))
        done = command(*RUN, *OPTIONS, "--ray-address", cluster.address, "--out", shared / "out")
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert f"blind does not see {path}" in done.stderr and "all machines share" in done.stderr
        assert not (shared / "out" / "records").exists()
        node.kill()
    # Control: the machine that reads everything runs the sweep.
    until_gone = time.monotonic() + 60
    while (done := command(*RUN, *OPTIONS, "--ray-address", cluster.address, "--out", shared / "out")).returncode == 2:
        assert time.monotonic() < until_gone, done.stderr  # Ray has not noticed yet that the node is dead
    assert done.returncode == 0, done.stderr


def test_a_blind_machine_that_joins_is_named_and_does_not_affect_the_sweep(
    undisturbed, command, cluster, blind, tmp_path
):
    shared = tmp_path / "shared"
    shared.mkdir()
    out, watched = shared / "out", Watched(shared / "out")
    process = start(command, cluster, out)
    until(lambda: watched.look(), process)
    cluster.add(*blind(shared))
    failures = out / "failures.jsonl"
    until(lambda: failures.exists() and failures.read_text(), process)
    assert watched.look() < 12
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 0 and not stderr, stderr
    reasons = {json.loads(line)["reason"] for line in failures.read_text().splitlines()}
    assert len(reasons) == 1 and f"blind does not see {out / 'manifest.json'}" in reasons.pop()
    assert "blind" not in (out / "trials.jsonl").read_text()
    watched.assert_whole("machine without the shared file system joined", 1, undisturbed)


def test_a_machine_without_memory_is_named_and_loses_no_lane(finished, command, monkeypatch, tmp_path):
    """Ray kills every worker repeatedly, before the worker reports anything."""
    out, before = tmp_path / "out", finished[0]
    shutil.copytree(before, out)
    watched, gone = Watched(out), sorted(out.glob("records/*"))[:2]
    for path in gone:
        path.unlink()
    watched.look()
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")
    done = command("resume", out, "--quiet")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "low on memory" in done.stderr and len(done.stderr) < 600
    assert len((out / "failures.jsonl").read_text().splitlines()) == 2 and watched.look() == 10
    monkeypatch.delenv("RAY_memory_usage_threshold")
    done = command("resume", out, "--quiet")
    assert done.returncode == 0 and not done.stderr, done.stderr
    watched.assert_whole("machine without memory under Ray", 2, before)


def test_killed_nodes_leave_no_processes(cluster):
    """Control for the tests above: all processes of a killed node have ended, its workers included."""
    node = cluster.add()
    processes = node.processes()
    assert len(processes) > 2
    node.kill()
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
