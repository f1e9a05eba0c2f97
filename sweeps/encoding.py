"""Encoding of a text's ranges by tasks on a Ray cluster. Ray repeats the tasks of a lost machine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import ray

from lvp.data.text.documents import Documents
from lvp.data.tokens.encoding import Encoded, Encoder, encode
from lvp.errors import InputError
from sweeps.ray_tune import RayTune


@contextmanager
def on_cluster(address: str, workers: int | None = None) -> Iterator[Encoder]:
    """An encoder with tasks of one core each on the Ray cluster at `address`.

    All machines must see the text at the same path, or read it from a bucket.

    Args:
      workers: the largest number of tasks at the same time; None is the cluster's number of cores.

    Raises:
      InputError: the cluster cannot be joined or has no cores.
    """
    cluster = RayTune(address)
    try:
        workers = workers or int(ray.cluster_resources().get("CPU", 0))
        if not workers:
            raise InputError(f"--ray-address {address}: the Ray cluster has no CPUs; start Ray on a machine with CPUs")
        task: Any = ray.remote(num_cpus=1)(_encode)
        shared = lru_cache(maxsize=1)(ray.put)  # sends the tokenizer once
        yield Encoder(lambda model, dtype, part: task.remote(shared(model), dtype, part).future(), workers)
    finally:
        cluster.close()


def _encode(model: bytes, dtype: np.dtype, part: Documents) -> Encoded:
    try:
        return encode(model, dtype, part)
    except (InputError, OSError) as error:
        raise InputError(
            f"{error} (on the machine {socket.gethostname()}; all machines must be able to read the text)"
        ) from None
