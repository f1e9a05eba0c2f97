"""The machines of a Ray cluster: what each of them sees, and whether Ray still answers."""

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
from sweeps.executors.file_system_check import Shared
from sweeps.worker.stop import Reason, end

PATIENCE = 30.0  # seconds without an answer after which Ray counts as lost; it would itself end this process after 60
START = 300.0  # seconds in which a machine must have made a worker, to which the packages are shipped first


class Refused(RuntimeError):
    """A machine cannot take part: `node` is Ray's name of it, the message says why."""

    def __init__(self, node: str, why: str):
        super().__init__(why)
        self.node = node


def look(shared: Shared) -> tuple[str, str | None]:
    """Ray's name of this machine, and why it cannot take part, if so."""
    return ray.get_runtime_context().get_node_id(), shared.unseen()


def check(shared: Shared, nodes: Sequence[Mapping]) -> None:
    """Has each of the machines (as `ray.nodes()` has them) look; InputError for the first that cannot take part."""
    strategies = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    asked = [ray.remote(look).options(num_cpus=0, scheduling_strategy=s).remote(shared) for s in strategies]
    ray.wait(asked, num_returns=len(asked), timeout=START)
    problems = [problem for node, answer in zip(nodes, asked, strict=True) if (problem := _answer(node, answer))]
    if problems:
        more = f" (and {len(problems) - 1} more machines)" if problems[1:] else ""
        raise InputError(problems[0] + more)


def _answer(node: Mapping, answer) -> str | None:
    """Why a machine that was asked cannot take part. One that is gone in the meantime takes no part anyway."""
    try:
        return ray.get(answer, timeout=0)[1]
    except (ray.exceptions.RayError, TimeoutError) as error:
        if not any(n["Alive"] for n in ray.nodes() if n["NodeID"] == node["NodeID"]):
            return None
        late = isinstance(error, ray.exceptions.GetTimeoutError | TimeoutError)
        reason = f"none within {START:.0f} s" if late else why(error)
        return f"{node['NodeManagerHostname']} cannot run a worker: {reason}"


def why(error: Exception) -> str:
    """What Ray says of a task or actor that failed, in one line: the last one, after what it was and where it was; for
    one that had no memory the first of those, since advice comes last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "low on memory" in line), lines[-1] if lines else type(error).__name__)


class Watch(threading.Thread):
    """Ends this process, with one line and exit code 1, once Ray has not answered for a while: the main thread would
    hang in a call that no exception reaches, until Ray ends the process without a word of the sweep."""

    def __init__(self, out: Path, address: str | None):
        super().__init__(daemon=True)
        self.again = f"python -m sweeps resume {out}" + (f" --ray-address {address}" if address else "")
        self.closed = threading.Event()
        self.node: Any = ray._private.worker._global_node  # None of a client, which does without

    def run(self) -> None:
        heard = time.monotonic()
        while self.node is not None and not self.closed.wait(5.0):
            if self._answers():
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE:
                where = f"the Ray cluster at {self.node.gcs_address} no longer answers"
                print(f"sweeps: {where}; `{self.again}` goes on from here", file=sys.stderr)
                sys.stdout.flush()
                end(Reason.RAY_LOST)

    def _answers(self) -> bool:
        """Whether somebody listens at the head, and at this machine's part of the cluster: a new head at the same
        address is another cluster."""
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
