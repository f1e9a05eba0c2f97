"""Checks of a Ray cluster: whether each machine sees the sweep's files, and whether Ray answers."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lvp.errors import InputError
from sweeps.driver.options import head_of
from sweeps.executors.machine_check import MachineCheck
from sweeps.worker.stop import Reason, end

PATIENCE = 30.0  # seconds without an answer after which the driver ends; Ray would end it after 60
JOIN_PATIENCE = 2.0  # seconds of refused connections; Ray would print warnings after 5 and try for 14 minutes
# Prints its argument after the end of standard input, unless something was written to it.
WITNESS = "import sys; sys.stdin.read() or sys.stderr.write(sys.argv[1] + chr(10))"
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
        others = len(problems) - 1
        more = f" (and {others} more machine{'s' * (others > 1)})" if others else ""
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
    """Ends this process with a one-line message when Ray has not answered for `PATIENCE` seconds, or has refused
    connections for `JOIN_PATIENCE` seconds while `ray.init` joins a cluster.

    Without it, a call of Ray in the main thread would block until Ray ends the process without a message about the
    sweep. If the head dies while this process registers, Ray ends the process at once. Another process, the witness,
    therefore prints the message if this process ends before `end_witness` is called.

    Args:
      address: HOST:PORT of a cluster, or None for Ray on this machine. A Ray client (ray://) is watched only while it
        joins.
      advice: the end of the message.
    """

    def __init__(self, address: str | None, advice: str):
        super().__init__(daemon=True)
        name = f"the Ray cluster at {address}" if address else "Ray on this machine"
        self.message = f"sweeps: {name} no longer answers; {advice}"
        self.head = head_of(address) if address else None
        self.closed = threading.Event()
        self.witness = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WITNESS, self.message],
            stdin=subprocess.PIPE,
            start_new_session=True,  # without the terminal's Ctrl-C
        )

    def end_witness(self) -> None:
        """Ends the witness without a message. Call it after `ray.init`. Further calls have no effect."""
        assert self.witness.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended; the pipe is closed
            self.witness.stdin.write(b"joined")
            self.witness.stdin.close()
        self.witness.wait()

    def run(self) -> None:
        answered, node, joined = time.monotonic(), None, False
        while not self.closed.wait(5.0 if joined else 0.5):
            joined = joined or ray.is_initialized()
            node = node or ray._private.worker._global_node
            if joined and node is None:  # a Ray client
                return
            problem = self._problem(node)
            refused = isinstance(problem, ConnectionRefusedError)  # a slow network gives a timeout
            if problem is None or not (joined or self.head):  # Ray on this machine may still start
                answered = time.monotonic()
            elif time.monotonic() - answered > (JOIN_PATIENCE if refused and not joined else PATIENCE):
                self.end_witness()
                print(self.message, file=sys.stderr)
                sys.stdout.flush()
                end(Reason.RAY_LOST)

    def _problem(self, node: Any) -> OSError | None:
        """The error of a connection to the head or, after `ray.init` has chosen this machine's raylet, to the raylet.

        The head alone is not enough: a new cluster may have started at the same address.
        """
        head = head_of(node.gcs_address) if node else self.head
        try:
            if head:
                socket.create_connection(head, timeout=5).close()
            if node:
                with socket.socket(socket.AF_UNIX) as raylet:
                    raylet.settimeout(5)
                    raylet.connect(node.raylet_socket_name)
        except OSError as error:
            return error
        return None

    def close(self) -> None:
        self.closed.set()
        self.end_witness()
