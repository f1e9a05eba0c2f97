"""Starts a Ray cluster of several nodes on this machine, and kills its nodes."""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

RAY = Path(sys.executable).with_name("ray")
START = 120.0  # seconds that a node may need to start on a busy machine


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def kill_all(process: subprocess.Popen) -> None:
    """Sends SIGKILL to a process and all its descendants, like a power failure."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(process.pid)
        for each in [first, *first.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait()


class Node:
    """A `ray start` with all its processes. `variables`: NAME=VALUE of its environment."""

    def __init__(self, words: list[str], cwd: Path, variables: tuple[str, ...] = (), cores: int = 1):
        command = [
            "env",
            *variables,
            str(RAY),
            "start",
            *words,
            f"--num-cpus={cores}",
            "--object-store-memory=100000000",
            "--block",
        ]
        # In its own session, because pytest owns the terminal's Ctrl-C.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        self.process = subprocess.Popen(command, cwd=cwd, **quiet)

    def found(self, name: str) -> list[psutil.Process]:
        """The node's processes whose command line contains `name`."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [p for p in psutil.Process(self.process.pid).children(recursive=True) if name in _line(p)]
        return []

    def kill(self) -> None:
        kill_all(self.process)


def _line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join([process.name(), *process.cmdline()])
    return ""


class Cluster:
    """A head and the nodes added to it, which end with the `with` block. A lost head can be started again.

    The nodes have one core each, and the head has `head_cores`.
    """

    def __init__(self, cwd: Path, head_cores: int = 1):
        self.cwd, self.port, self.head_cores = cwd, free_port(), head_cores
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: list[Node] = []
        self.folders: list[str] = []

    def start_head(self) -> Node:
        self.folders.append(tempfile.mkdtemp(prefix="lvp-"))  # short: Unix sockets allow 107 bytes
        words = ["--head", f"--port={self.port}", f"--temp-dir={self.folders[-1]}", "--include-dashboard=false"]
        return self._up(words, cores=self.head_cores)

    def add(self, *variables: str) -> Node:
        return self._up([f"--address={self.address}"], variables)

    def _up(self, words: list[str], variables: tuple[str, ...] = (), cores: int = 1) -> Node:
        node = Node(words, self.cwd, variables, cores)
        self.nodes.append(node)
        deadline = time.monotonic() + START
        while not node.found("raylet"):
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
