"""The options of a driver."""

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

    `mesh` over several `hosts` is experimental: it has run on CPU processes only.
    """

    executor: str = "ray"  # ray or local
    ray_address: str | None = None  # of a running cluster; "auto" for the cluster of this machine
    pack: int | None = None  # lanes per program; None measures it
    threads: int | None = None  # cores per worker on CPU; None measures it
    checkpoint_seconds: float = 30.0  # least time between checkpoints
    mesh: str | None = None  # "fsdp=8" (`lvp.parallel.sharding.mesh_sizes`); None keeps the sweep's, "none" removes it
    hosts: int = 1  # machines of a Ray cluster that share the mesh
    allow_other_version: bool = False  # whether lanes may be trained in another environment than the sweep began with
    track: str | None = None  # a tool of `sweeps.reporting.tracking.TRACKERS`, whose files are written as lanes finish

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
            tracking.tracker_named(self.track)
        if self.ray_address:
            _check_answers(self.ray_address)

    def where(self) -> list[str]:
        """The words of a command line for executor, cluster, version and tracker."""
        address = ["--ray-address", self.ray_address] if self.ray_address else []
        where = address or ([] if self.executor == "ray" else ["--executor", self.executor])
        where += ["--allow-other-version"] if self.allow_other_version else []
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
