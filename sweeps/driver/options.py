"""Options of a driver."""

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
    """How a sweep runs. No option is part of a lane's hash. Raises InputError for an unusable value, or if no Ray
    cluster answers at `ray_address`.

    More than one host is experimental: it was tested on CPU processes only.
    """

    executor: str = "ray"  # ray or local
    ray_address: str | None = None  # address of a running cluster; "auto" is the cluster of this machine
    pack: int | None = None  # lanes per program; None: measured on accelerators, 1 on CPU
    threads: int | None = None  # cores per worker on CPU; None: measured, or 1 if `pack` is given
    checkpoint_seconds: float = 30.0  # minimum time between checkpoints
    mesh: str | None = None  # sizes such as "fsdp=8"; None keeps the sweep's mesh, "none" removes it
    hosts: int = 1  # machines of a Ray cluster that share the mesh
    allow_other_version: bool = False  # whether the environment may differ from that of the sweep's first session
    track: str | None = None  # a key of `sweeps.reporting.tracking.TRACKERS`; None feeds no tool

    def __post_init__(self):
        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)
        for name in ("pack", "threads", "hosts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.threads and not self.ray_address and self.threads > cores():
            raise InputError(f"threads={self.threads} must be at most {cores()}, the cores of this machine")
        if self.ray_address and self.executor != "ray":
            raise InputError(f"--ray-address needs --executor ray, got {self.executor}")
        if self.mesh not in (None, NO_MESH):
            named_sizes(self.mesh)
        if self.hosts > 1 and not (self.mesh and self.ray_address):
            raise InputError(f"hosts={self.hosts} needs --mesh, and --ray-address of a cluster with as many machines")
        if self.mesh not in (None, NO_MESH) and (self.pack or 1) > 1:
            raise InputError(f"pack={self.pack}: a mesh trains one lane at a time; omit --pack")
        if self.track is not None:
            tracking.tracker_named(self.track)
        if self.ray_address:
            _check_answers(self.ray_address)

    def resume_options(self) -> list[str]:
        """Returns the command-line options that a resume command needs: executor or cluster address, version check and
        tracker."""
        address = ["--ray-address", self.ray_address] if self.ray_address else []
        words = address or ([] if self.executor == "ray" else ["--executor", self.executor])
        words += ["--allow-other-version"] if self.allow_other_version else []
        return words + (["--track", self.track] if self.track else [])


def head_of(address: str) -> tuple[str, int] | None:
    """Host and port of a Ray cluster's address; None for "auto" and other addresses that only Ray resolves."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    return (host.strip("[]"), int(port)) if colon and port.isdigit() else None


def _check_answers(address: str) -> None:
    """Raises InputError if nothing listens at HOST:PORT. Ray would retry for minutes."""
    try:
        if head := head_of(address):
            socket.create_connection(head, timeout=5).close()
    except OSError as error:
        raise InputError(
            f"no Ray cluster answers at {address}: {error.strerror or error}; check --ray-address"
        ) from None


DEFAULTS = Options()
