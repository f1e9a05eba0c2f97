"""Starts Ray clusters of several nodes, on this machine or on machines of a network, and kills their nodes."""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.faults.network import Machine

RAY = Path(sys.executable).with_name("ray")
START = 120.0  # seconds that a node may need to start on a busy machine
RUN = ("run", "width_vocab", "--preset", "smoke")  # the sweep of the clusters' tests
LONG = {"widths": "16", "steps": "20000"}  # six lanes, which take long enough to be hit by a fault
OPTIONS = ("--threads", "1", "--checkpoint-seconds", "0.5", "--quiet")


def without_faults(command, out: Path, **settings: str) -> Path:
    """Runs the sweep without Ray and without faults, and returns its directory."""
    done = command(*RUN, *OPTIONS, "--executor", "local", "--out", out, start=True, **settings)
    _, stderr = done.communicate(timeout=1200)
    assert done.returncode == 0, stderr
    return out


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Node:
    """A `ray start` of one core, with all its processes. `within`: words before the command, for example `unshare`."""

    def __init__(self, words: list[str], cwd: Path, within: tuple[str, ...] = ()):
        command = [*within, str(RAY), "start", *words, "--num-cpus=1", "--object-store-memory=100000000", "--block"]
        # In its own session, because pytest owns the terminal's Ctrl-C.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self.process = subprocess.Popen(command, cwd=cwd, **quiet)

    def processes(self) -> list[psutil.Process]:
        try:
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def raylet(self) -> psutil.Process | None:
        with contextlib.suppress(psutil.NoSuchProcess):
            return next((p for p in self.processes() if p.name() == "raylet"), None)

    def kill_raylet(self) -> None:
        """Sends SIGKILL to the raylet, which is the node as Ray sees it. The node's other processes notice it
        themselves."""
        self.raylet().kill()

    def kill(self) -> None:
        """Sends SIGKILL to all processes of the node, like a power failure."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


class Cluster:
    """A head and the nodes added to it, which end with the `with` block. A lost head can be started again.

    machine: the head's machine in a network; None for this machine.
    """

    def __init__(self, cwd: Path, machine: Machine | None = None):
        self.cwd, self.port, self.nodes, self.machine = cwd, free_port(), [], machine
        self.folders: list[Path] = []

    @property
    def address(self) -> str:
        return f"{self.machine.address if self.machine else '127.0.0.1'}:{self.port}"

    def start_head(self) -> Node:
        # Short, because Unix sockets allow 107 bytes. Each machine of a network has its own /run.
        folder = f"/run/lvp-{len(self.folders)}" if self.machine else tempfile.mkdtemp(prefix="lvp-")
        self.folders.append(Path(folder))
        words = ["--head", f"--port={self.port}", f"--temp-dir={self.folders[-1]}", "--include-dashboard=false"]
        return self._up(Node(words, self.cwd, self.machine.within(self.cwd) if self.machine else ()))

    def add(self, *within: str) -> Node:
        return self._up(Node([f"--address={self.address}"], self.cwd, within))

    def _up(self, node: Node) -> Node:
        self.nodes.append(node)
        deadline = time.monotonic() + START
        while node.raylet() is None:
            assert time.monotonic() < deadline and node.process.poll() is None, "a Ray node did not start"
            time.sleep(0.2)
        return node

    def __enter__(self) -> "Cluster":
        self.start_head()
        return self

    def __exit__(self, *_) -> None:
        for node in reversed(self.nodes):
            node.kill()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
