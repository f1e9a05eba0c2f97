"""Shards of tokens made by tasks on a Ray cluster. Ray repeats the tasks of a lost machine."""

import socket
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from lvp.data.tokens.encoding import Make, Mapped
from lvp.data.tokens.shards import Shard
from lvp.errors import InputError
from sweeps.ray_tune import RayTune


@contextmanager
def on_cluster(address: str, workers: int | None = None) -> Iterator[Mapped]:
    """A `map` with tasks of one core each on the Ray cluster at `address`.

    All machines must see the text and the output at the same paths, or use buckets.

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

        def mapped(make: Make, shards: Iterable[Shard]) -> Iterator[dict[str, Any]]:
            waiting: deque = deque()
            for shard in shards:
                waiting.append(task.remote(make, shard))
                while len(waiting) >= most:
                    yield ray.get(waiting.popleft())
            yield from map(ray.get, waiting)

        yield mapped
    finally:
        cluster.close()


def _here(make: Make, shard: Shard) -> dict[str, Any]:
    try:
        return make(shard)
    except (InputError, OSError) as error:
        raise InputError(
            f"{error} (on the machine {socket.gethostname()}; all machines must be able to read the text)"
        ) from None
