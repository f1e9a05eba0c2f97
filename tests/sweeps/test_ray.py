"""Ray as the default executor: which Ray is used, on which addresses it listens, and what is said if it is missing."""

import contextlib
import ipaddress
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from lvp.errors import InputError
from lvp.sweeps import ray_tune
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.own_files import TRAINED, written
from tests.sweeps.running import ROOT, outcomes

LISTENERS = {"gcs_server", "raylet", "ray::RuntimeEnvAgent", "ray::IDLE"}
# The executor that a command takes, until standard input ends.
DRIVER = """
import sys
from lvp.sweeps import driver
executor = driver._executor(driver.Options())
import ray
ray.get(ray.remote(lambda: None).remote())  # starts a worker
print(executor.machines().platform, flush=True)
sys.stdin.read()
executor.close()
"""


def listening(pid: int) -> dict[str, set[str]]:
    """The addresses on which a process and its descendants listen, by name of the process."""
    first, addresses = psutil.Process(pid), {}
    for process in (first, *first.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            sockets = process.net_connections("inet")
            ips = {c.laddr.ip for c in sockets if c.status == psutil.CONN_LISTEN}
            addresses[process.name()] = addresses.get(process.name(), set()) | ips
    return addresses


def is_loopback(ip: str) -> bool:
    """Whether the address is a loopback address. A dual-stack socket shows 127.0.0.1 as ::ffff:127.0.0.1."""
    address = ipaddress.ip_address(ip)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@pytest.mark.parametrize(
    "ip, true", [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("::", False), ("0.0.0.0", False)]
)
def test_loopback_addresses(ip, true):
    assert is_loopback(ip) == true


@pytest.mark.slow
def test_ray_starts_with_the_long_tmpdir_of_a_batch_system(command, tmp_path, monkeypatch):
    """Linux takes 107 characters in the path of a socket."""
    long = tmp_path / "slurm_jobdir" / "1355700" / "scratch" / "tmp.t0016"
    long.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(long))
    done = command("run", "width_vocab", "--preset", "smoke", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_ray_listens_on_loopback_only_and_has_no_dashboard():
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout.readline() == "cpu\n"
        deadline = time.monotonic() + 60
        while not all((addresses := listening(driver.pid)).get(name) for name in LISTENERS):
            assert time.monotonic() < deadline, addresses
            time.sleep(0.5)
        assert all(is_loopback(ip) for ips in addresses.values() for ip in ips), addresses
        assert not addresses.get("ray::DashboardAgent")  # this process runs but does not listen
    finally:
        driver.communicate("", timeout=60)
    assert driver.returncode == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Exception("The current node timed out during startup.\nDetails"), "Details"),
        (Exception("A\nworkers were killed: the node is low on memory.\nB"), "the node is low on memory"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_a_failed_start_of_ray_gives_a_one_line_error(monkeypatch, error, reason):
    def fail(**_):
        raise error

    monkeypatch.setattr("ray.init", fail)
    monkeypatch.setenv("JAX_DEBUG_NANS", "1")
    with pytest.raises(InputError, match=f"cannot start Ray on this machine: .*{reason}.*--executor local") as raised:
        ray_tune.RayTune(None)
    assert "\n" not in str(raised.value) and os.environ["JAX_DEBUG_NANS"] == "1"


@pytest.mark.parametrize("address", ["127.0.0.1:9", "[::1]:9", "127.0.0.1:99999"])
def test_an_address_without_an_answer_is_one_line(small, command_here, tmp_path, address):
    began = time.monotonic()
    words = ("run", small.path, "--preset", "smoke", "--quiet", "--ray-address", address, "--out", tmp_path / "out")
    done = command_here(*words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"--ray-address {address}: no Ray answers (" in done.stderr
    assert time.monotonic() - began < 30 and not (tmp_path / "out").exists()


def test_tokenize_without_a_cluster_is_one_line(command_here, tmp_path):
    (tmp_path / "t.txt").write_text(some_text(500))
    words = ("tokenize", f"text:{tmp_path / 't.txt'}", "--vocab", 260, "--out", tmp_path / "out")
    done = command_here(*words, "--ray-address", "127.0.0.1:9")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no Ray answers" in done.stderr
    assert not (tmp_path / "out").exists()


# A program that has its own Ray, as a notebook may.
OWN_RAY = """
import json, sys, ray
from lvp import sweeps
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
table = sweeps.run(sys.argv[1], "smoke", out=sys.argv[2], quiet=True)
try:
    sweeps.run(sys.argv[1], "smoke", out=sys.argv[3], quiet=True, ray_address="127.0.0.1:1")
except Exception as error:
    print(json.dumps([ray.is_initialized(), len(table), str(error)]))
"""


@pytest.mark.slow
def test_a_ray_of_the_process_is_used_and_left_running(cache, tmp_path):
    path = written(tmp_path, text=TRAINED)
    environment = os.environ | {"LVP_CACHE": str(cache), "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", OWN_RAY, path, tmp_path / "out", tmp_path / "other"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    running, rows, error = json.loads(done.stdout.splitlines()[-1])
    assert running and rows == len(outcomes(tmp_path / "out")) == 4
    assert error.startswith("--ray-address 127.0.0.1:1: this process already uses a Ray")
