"""A Ray that a sweep starts listens on loopback addresses only and has no dashboard."""

import contextlib
import ipaddress
import subprocess
import sys
import time

import psutil
import pytest

from lvp.errors import InputError
from sweeps.executors import ray_tune
from tests.sweeps.running import ROOT

DRIVER = """
import sys
from pathlib import Path
import ray
from sweeps.driver.options import Options
from sweeps.executors.ray_tune import RayExecutor
executor = RayExecutor(Path(sys.argv[1]), Options())
ray.get(ray.remote(lambda: None).remote())  # starts a worker
print("dashboard:", ray._private.worker.get_dashboard_url() or None, flush=True)
sys.stdin.read()
executor.close()
"""
LISTENERS = {"gcs_server", "raylet", "ray::RuntimeEnvAgent", "ray::IDLE"}


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
def test_ray_listens_on_loopback_only_and_has_no_dashboard(tmp_path):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout.readline() == "dashboard: None\n"
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
        (Exception("The current node timed out during startup.\nDetails"), "The current node timed out"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_a_failed_start_of_ray_gives_a_one_line_error(monkeypatch, error, reason):
    def fail(**_):
        raise error

    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(InputError, match=f"cannot start Ray on this machine: {reason}.*--executor local") as raised:
        ray_tune._start_ray({})
    assert "\n" not in str(raised.value)
