"""How a sweep is to be run."""

import socket
from dataclasses import dataclass

from lvp.errors import InputError, unknown
from lvp.parallel.hardware import cores
from lvp.parallel.sharding import named_sizes
from sweeps.reporting import tracking

EXECUTORS = ("ray", "local")
NO_MESH = "none"


@dataclass(frozen=True)
class Options:
    """How to run, as opposed to what: nothing here is part of a lane's hash.

    executor: ray | local. ray_address: of a running cluster ("auto" for this machine's). pack, threads: lanes per
    program and cores per worker on CPU, instead of measuring them. checkpoint_seconds: least time between checkpoints.
    mesh: sizes ("fsdp=8", see `lvp.parallel.sharding.mesh_sizes`) of a mesh that trains each lane, on all the devices
    of so many `hosts` of a Ray cluster; None keeps what the sweep began with (at first one device a lane), "none"
    undoes it.
    track: a tool for which the lanes' curves and settings are written as they finish (see
    `sweeps.reporting.tracking.TRACKERS`).
    """

    executor: str = "ray"
    ray_address: str | None = None
    pack: int | None = None
    threads: int | None = None
    checkpoint_seconds: float = 30.0
    mesh: str | None = None
    hosts: int = 1
    track: str | None = None

    def __post_init__(self):
        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)
        for name in ("pack", "threads", "hosts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.threads and not self.ray_address and self.threads > cores():
            raise InputError(f"threads={self.threads}: this machine has {cores()} cores")
        if self.ray_address and self.executor != "ray":
            raise InputError("--ray-address needs --executor ray")
        if self.mesh not in (None, NO_MESH):
            named_sizes(self.mesh)
        if self.hosts > 1 and not (self.mesh and self.ray_address):
            raise InputError(f"hosts={self.hosts} needs --mesh, and --ray-address of a cluster of that many machines")
        if self.mesh not in (None, NO_MESH) and (self.pack or 1) > 1:
            raise InputError("a mesh trains one lane at a time: leave --pack out")
        if self.track is not None:
            tracking.of(self.track)
        if self.ray_address:
            _check_answers(self.ray_address)

    def where(self) -> list[str]:
        """The words of a command that say where these options run, and who is shown."""
        address = ["--ray-address", self.ray_address] if self.ray_address else []
        where = address or ([] if self.executor == "ray" else ["--executor", self.executor])
        return where + (["--track", self.track] if self.track else [])


def _check_answers(address: str) -> None:
    """InputError at once where nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # auto, or a name that Ray knows how to resolve
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise InputError(f"no Ray cluster answers at {address}: {error.strerror or error}") from None


DEFAULTS = Options()
