"""Rows and random windows of a token file larger than memory, which can be resumed at any step."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

from lvp.errors import InputError

_COUNTED = 1 << 24  # tokens counted at a time


class _HostBatches:
    """Batches of rows that the host reads from a token array by training step.

    A row is `context` inputs and the token after them.

    Args:
      tokens: int [N], in memory or memory-mapped; positions have 64 bits.
      batch: number of rows in a step.

    Raises:
      InputError: the array is shorter than one row.
    """

    def __init__(self, tokens: np.ndarray, *, context: int, batch: int, seed: int):
        self.tokens, self.context, self.batch, self.seed = tokens, context, batch, seed
        if len(tokens) <= context:
            raise InputError(f"{len(tokens)} tokens are too few for a context of {context}: at least {context + 1}")

    def starts(self, step: int, first: int, last: int) -> np.ndarray:
        """The positions at which rows first to last − 1 of a step's batch start, int64 [last − first]."""
        raise NotImplementedError

    def at(self, step: int, first: int, last: int) -> np.ndarray:
        """int32 [last − first, context + 1]: rows first to last − 1 of a step's batch; equal on all processes."""
        positions = self.starts(step, first, last)[:, None] + np.arange(self.context + 1)
        return self.tokens[positions].astype(np.int32, copy=False)


class Rows(_HostBatches):
    """The rows of a token array, each once per epoch.

    Row r starts at token r · context. Every token of the whole rows except the first token is a target once per epoch.
    The incomplete last row is not used. Each epoch is a new permutation of the rows, a pure function of (seed, epoch).
    A step may contain rows of several epochs.
    """

    def __init__(self, tokens: np.ndarray, *, context: int, batch: int, seed: int):
        super().__init__(tokens, context=context, batch=batch, seed=seed)
        self.count = (len(tokens) - 1) // context
        self._order = lru_cache(maxsize=2)(lambda epoch: np.random.default_rng([seed, epoch]).permutation(self.count))

    def starts(self, step: int, first: int, last: int) -> np.ndarray:
        epochs, places = divmod(np.arange(step * self.batch + first, step * self.batch + last), self.count)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs):
            rows[epochs == epoch] = self._order(int(epoch))[places[epochs == epoch]]
        return rows * self.context


class Windows(_HostBatches):
    """Uniformly random windows of a token array, with replacement, a pure function of (seed, step).

    Every start from 0 to N − context − 1 is equally likely, as in `lvp.data.tokens.batches.random_windows`.
    """

    def starts(self, step: int, first: int, last: int) -> np.ndarray:
        return np.random.default_rng([self.seed, step]).integers(len(self.tokens) - self.context, size=self.batch)[
            first:last
        ]


def frequencies(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """Unigram frequencies of a token array that may be larger than memory, float64 [vocab], with sum 1.

    The result is longer if there are tokens outside of the vocabulary.
    """
    counts = np.zeros(vocab, np.int64)
    for start in range(0, len(tokens), _COUNTED):
        part = np.bincount(tokens[start : start + _COUNTED], minlength=vocab)
        counts = np.pad(counts, (0, max(0, part.size - counts.size)))
        counts[: part.size] += part
    return counts / len(tokens)


def prefetched(feed: Callable[[int], tuple[int, Any]]) -> Callable[[int], tuple[int, Any]]:
    """The same feed, but a thread reads the next data while the caller uses the present data.

    Args:
      feed: step → (stop, the data of the steps from step to stop − 1).
    """
    pool = ThreadPoolExecutor(1)
    ahead: dict[int, Future] = {}

    def next_(step: int) -> tuple[int, Any]:
        future = ahead.pop(step, None) or pool.submit(feed, step)
        ahead.clear()
        stop, data = future.result()
        ahead[stop] = pool.submit(feed, stop)
        return stop, data

    return next_
