"""A Ray that a sweep starts for itself is nobody else's: it listens on this machine alone, and has no dashboard."""

import contextlib
import ipaddress
import subprocess
import sys
import time

import psutil
import pytest

from tests.sweeps.running import ROOT

DRIVER = """
import sys
from pathlib import Path
import ray
from sweeps.executors.ray_tune import RayExecutor
executor = RayExecutor(Path(sys.argv[1]))
ray.get(ray.remote(lambda: None).remote())  # so that there is a worker too
print("dashboard:", ray._private.worker.get_dashboard_url() or None, flush=True)
sys.stdin.read()
executor.close()
"""
LISTENERS = {"gcs_server", "raylet", "ray::RuntimeEnvAgent", "ray::IDLE"}


def listening(pid: int) -> dict[str, set[str]]:
    """The addresses on which a process and its descendants listen, by their names."""
    first, found = psutil.Process(pid), {}
    for process in (first, *first.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            sockets = process.net_connections("inet")
            ips = {c.laddr.ip for c in sockets if c.status == psutil.CONN_LISTEN}
            found[process.name()] = found.get(process.name(), set()) | ips
    return found


def is_loopback(ip: str) -> bool:
    """An IPv4 address that a socket of both kinds is bound to reads ::ffff:127.0.0.1."""
    address = ipaddress.ip_address(ip)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@pytest.mark.parametrize(
    "ip, true", [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("::", False), ("0.0.0.0", False)]
)
def test_what_counts_as_loopback(ip, true):
    assert is_loopback(ip) == true


@pytest.mark.slow
def test_every_port_of_our_own_ray_is_on_loopback_and_there_is_no_dashboard(tmp_path):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout.readline() == "dashboard: None\n"
        deadline = time.monotonic() + 60
        while not all((found := listening(driver.pid)).get(name) for name in LISTENERS):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)
        assert all(is_loopback(ip) for ips in found.values() for ip in ips), found
        assert not found.get("ray::DashboardAgent")  # Ray's agent of a machine: it runs, and listens to nobody
    finally:
        driver.communicate("", timeout=60)
    assert driver.returncode == 0
