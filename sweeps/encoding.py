"""Shards of tokens made by tasks on a Ray cluster. Ray repeats the tasks of a lost machine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import ray

from lvp.data.tokens.encoding import Make, Mapped, in_order
from lvp.data.tokens.shards import Shard
from lvp.errors import InputError
from lvp.sweeps.ray_tune import RayTune


@contextmanager
def on_cluster(address: str, workers: int | None = None) -> Iterator[Mapped]:
    """A `map` with tasks of one core each on the Ray cluster at `address`.

    All machines must see the output at the same path, or it is in a bucket. This process reads the text.

    Args:
      workers: the largest number of tasks at the same time; None is the cluster's number of cores.

    Raises:
      InputError: the cluster cannot be joined or has no cores.
    """
    cluster = RayTune(address)
    try:
        most = workers or int(ray.cluster_resources().get("CPU", 0))
        if not most:
            raise InputError(f"--ray-address {address}: the Ray cluster has no CPUs; start Ray on a machine with CPUs")
        task: Any = ray.remote(num_cpus=1)(_here)

        yield lambda make, shards: in_order(partial(task.remote, make), ray.get, shards, most)
    finally:
        cluster.close()


def _here(make: Make, shard: Shard) -> dict[str, Any]:
    try:
        return make(shard)
    except (InputError, OSError) as error:
        raise InputError(f"{error} (on the machine {socket.gethostname()})") from None
