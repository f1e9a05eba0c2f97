"""Encoding of a text's ranges in parallel processes. `sweeps.executors.encoding` uses a Ray cluster instead.

The pools schedule. This module bounds the number of ranges in progress and returns the tokens in the order of the text.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context, parent_process
from signal import SIG_IGN, SIGINT, signal
from threading import Thread
from typing import NamedTuple

import numpy as np

from lvp.data.text.documents import Documents
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError, printable
from lvp.parallel.hardware import cores


class Encoded(NamedTuple):
    """The tokens of a range."""

    ids: np.ndarray  # integers [number of tokens] of the requested dtype
    num_bytes: int  # bytes of text, with added line ends


class Encoder(NamedTuple):
    """Workers that encode."""

    submit: Callable[[bytes, np.dtype, Documents], "Future[Encoded]"]  # starts `encode` with these arguments
    workers: int  # number of ranges that are encoded at the same time

    def __call__(
        self, tokenizer: Tokenizer, dtype: np.dtype, ranges: Iterable[Documents]
    ) -> Iterator[tuple[Documents, Encoded]]:
        """The ranges with their tokens, in order. At most 2 · workers + 1 ranges are in progress or wait in memory.

        Raises the InputError or OSError of a failed range, and RuntimeError for other failures.
        """
        waiting: deque[tuple[Documents, Future[Encoded]]] = deque()
        for part in ranges:
            waiting.append((part, self.submit(tokenizer.model, dtype, part)))
            while len(waiting) > 2 * self.workers or (waiting and waiting[0][1].done()):
                yield _result(*waiting.popleft())
        while waiting:
            yield _result(*waiting.popleft())


def _result(part: Documents, future: "Future[Encoded]") -> tuple[Documents, Encoded]:
    try:
        return part, future.result()
    except Exception as error:
        cause = getattr(error, "cause", error)  # Ray wraps a task's error
        if isinstance(cause, InputError | OSError):
            raise cause from None
        line = printable((str(cause).strip().splitlines() or [""])[0])
        problem = f"a worker failed ({type(cause).__name__}: {line})"
        raise RuntimeError(f"{problem}; the same command continues, with fewer --workers if memory is short") from error


@lru_cache(maxsize=1)
def _tokenizer(model: bytes) -> Tokenizer:
    return Tokenizer(model)


def encode(model: bytes, dtype: np.dtype, part: Documents) -> Encoded:
    """The tokens of a range under a tokenizer (`Tokenizer.model`)."""
    text = b"".join(part.blocks())
    return Encoded(_tokenizer(model).encode(text).astype(dtype), len(text))


@contextmanager
def in_processes(workers: int | None = None) -> Iterator[Encoder]:
    """An encoder on this machine.

    workers: number of processes; None is the number of cores. 1 encodes in this process.
    """
    workers = workers or cores()
    if workers == 1:
        yield Encoder(_encode_here, 1)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin)
    try:
        yield Encoder(lambda model, dtype, part: pool.submit(encode, model, dtype, part), workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _encode_here(model: bytes, dtype: np.dtype, part: Documents) -> "Future[Encoded]":
    future: Future[Encoded] = Future()
    try:
        future.set_result(encode(model, dtype, part))
    except Exception as error:
        future.set_exception(error)
    return future


def _begin() -> None:
    signal(SIGINT, SIG_IGN)  # the parent process handles it
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # a pool's worker has a parent
    parent.join()  # a pool does not notice that its parent was killed
    os._exit(1)
