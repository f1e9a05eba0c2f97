"""Checks of a Ray cluster: whether each machine sees the sweep's files, and whether Ray answers."""

import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lvp.errors import InputError
from sweeps.driver.manifest import resume_command
from sweeps.executors.machine_check import MachineCheck
from sweeps.worker.stop import Reason, end

PATIENCE = 30.0  # seconds without an answer after which the driver ends; Ray would end it after 60
START = 300.0  # seconds in which a machine must receive the packages and start a worker


class Refused(RuntimeError):
    """A machine cannot run trials of the sweep. `node` is its name in Ray."""

    def __init__(self, node: str, why: str):
        super().__init__(why)
        self.node = node


def node_id() -> str:
    """This machine's name in Ray."""
    return ray.get_runtime_context().get_node_id()


def checked(check: MachineCheck) -> tuple[str, str | None]:
    """This machine's name in Ray, and its problem with the sweep or None."""
    return node_id(), check.problem()


def check_machines(check: MachineCheck, nodes: Sequence[Mapping]) -> None:
    """Raises InputError if some of the machines (entries of `ray.nodes()`) cannot run trials of the sweep. The message
    describes the first problem."""
    strategies = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    answers = [ray.remote(checked).options(num_cpus=0, scheduling_strategy=s).remote(check) for s in strategies]
    ray.wait(answers, num_returns=len(answers), timeout=START)
    problems = [problem for node, answer in zip(nodes, answers, strict=True) if (problem := _answer(node, answer))]
    if problems:
        more = f" (and {len(problems) - 1} more machines)" if problems[1:] else ""
        raise InputError(problems[0] + more)


def _answer(node: Mapping, answer) -> str | None:
    """The reason why a machine cannot run trials. None if it can, or if it has left the cluster."""
    try:
        return ray.get(answer, timeout=0)[1]
    except (ray.exceptions.RayError, TimeoutError) as error:
        if not any(n["Alive"] for n in ray.nodes() if n["NodeID"] == node["NodeID"]):
            return None
        late = isinstance(error, ray.exceptions.GetTimeoutError | TimeoutError)
        reason = f"no answer within {START:.0f} s" if late else why(error)
        return f"{node['NodeManagerHostname']} cannot run a worker: {reason}"


def why(error: Exception) -> str:
    """Ray's error of a task or actor in one line: a line about memory if there is one, else the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "low on memory" in line), lines[-1] if lines else type(error).__name__)


class Watch(threading.Thread):
    """Ends the driver with a one-line message when Ray has not answered for `PATIENCE` seconds.

    Without it, a call of Ray in the main thread would block until Ray ends the process without a message about the
    sweep.
    """

    def __init__(self, out: Path, address: str | None):
        super().__init__(daemon=True)
        self.again = resume_command(out, *(["--ray-address", address] if address else []))
        self.local = address is None
        self.closed = threading.Event()
        self.node: Any = ray._private.worker._global_node  # None for a Ray client, which is not watched

    def run(self) -> None:
        answered = time.monotonic()
        while self.node is not None and not self.closed.wait(5.0):
            if self._answers():
                answered = time.monotonic()
            elif time.monotonic() - answered > PATIENCE:
                name = "Ray on this machine" if self.local else f"the Ray cluster at {self.node.gcs_address}"
                print(f"sweeps: {name} no longer answers; `{self.again}` continues from here", file=sys.stderr)
                sys.stdout.flush()
                end(Reason.RAY_LOST)

    def _answers(self) -> bool:
        """Whether the head and this machine's raylet accept connections.

        The head alone is not enough: a new cluster may have started at the same address.
        """
        host, _, port = self.node.gcs_address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            with socket.socket(socket.AF_UNIX) as raylet:
                raylet.settimeout(5)
                raylet.connect(self.node.raylet_socket_name)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.closed.set()
