"""Processes that make shards. `lvp.sweeps.encoding` uses a Ray cluster instead."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from signal import SIG_IGN, SIGINT, signal
from threading import Thread
from typing import Any

from lvp.data.tokens.shards import Shard
from lvp.errors import InputError, printable
from lvp.parallel.hardware import cores

Make = Callable[[Shard], dict[str, Any]]
Mapped = Callable[[Make, Iterable[Shard]], Iterator[dict[str, Any]]]  # does what `map` does, in other processes


def in_order(
    submit: Callable[[Shard], Any], result: Callable[[Any], dict[str, Any]], shards: Iterable[Shard], most: int
) -> Iterator[dict[str, Any]]:
    """The results of shards in their order; at most `most` shards, which hold their text, are read ahead."""
    waiting: deque = deque()
    for shard in shards:
        waiting.append(submit(shard))
        if len(waiting) >= most:
            yield result(waiting.popleft())
    yield from map(result, waiting)


@contextmanager
def in_processes(workers: int | None = None) -> Iterator[Mapped]:
    """A `map` that uses processes of this machine.

    Args:
      workers: number of processes; None is the number of cores. 1 uses the present process.
    """
    workers = workers or cores()
    if workers == 1:
        yield map
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin)
    try:
        yield lambda make, shards: in_order(lambda shard: pool.submit(make, shard), Future.result, shards, workers + 1)
    finally:
        pool.shutdown(cancel_futures=True)


def explained(error: Exception) -> Exception:
    """The error of a shard as one line: the InputError or OSError itself, and a RuntimeError for another failure."""
    cause = getattr(error, "cause", error)  # Ray wraps a task's error
    if isinstance(cause, InputError | OSError):
        return cause
    line = printable((str(cause).strip().splitlines() or [""])[0])
    problem = f"a worker failed ({type(cause).__name__}: {line})"
    return RuntimeError(f"{problem}; the same command continues, with fewer --workers if memory is short")


def _begin() -> None:
    signal(SIGINT, SIG_IGN)  # the parent process handles it
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # a pool's worker has a parent
    parent.join()  # a pool does not notice that its parent was killed
    os._exit(1)
