"""Rows of a token file larger than memory, each once per epoch, in an order that can be resumed at any step."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np

from lvp.errors import InputError

_COUNTED = 1 << 24  # tokens counted at a time


class Rows:
    """The rows of a token array by training step.

    tokens int [N], in memory or memory-mapped. Row r is `context` inputs and the token after them, starting at token
    r · context. Every token of the whole rows except the first token is a target once per epoch. The incomplete last
    row is not used. Each epoch is a new permutation of the rows, a pure function of (seed, epoch). batch is the number
    of rows in a step. A step may contain rows of several epochs. Raises InputError if there is no whole row.
    """

    def __init__(self, tokens: np.ndarray, *, context: int, batch: int, seed: int):
        self.tokens, self.context, self.batch, self.seed = tokens, context, batch, seed
        self.count = (len(tokens) - 1) // context
        if self.count < 1:
            raise InputError(f"{len(tokens)} tokens are too few for a context of {context}: at least {context + 1}")
        self._order = lru_cache(maxsize=2)(lambda epoch: np.random.default_rng([seed, epoch]).permutation(self.count))

    def at(self, step: int, first: int, last: int) -> np.ndarray:
        """int32 [last − first, context + 1]: rows first to last − 1 of a step's batch; equal on all processes."""
        rows = np.empty((last - first, self.context + 1), np.int32)
        for i, row in enumerate(range(step * self.batch + first, step * self.batch + last)):
            epoch, place = divmod(row, self.count)
            start = int(self._order(epoch)[place]) * self.context
            rows[i] = self.tokens[start : start + self.context + 1]
        return rows


def frequencies(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """Unigram frequencies of a token array that may be larger than memory, float64 [vocab], with sum 1.

    The result is longer if there are tokens outside of the vocabulary."""
    counts = np.zeros(vocab, np.int64)
    for start in range(0, len(tokens), _COUNTED):
        part = np.bincount(tokens[start : start + _COUNTED], minlength=vocab)
        counts = np.pad(counts, (0, max(0, part.size - counts.size)))
        counts[: part.size] += part
    return counts / len(tokens)


def prefetched(feed: Callable[[int], tuple[int, Any]]) -> Callable[[int], tuple[int, Any]]:
    """The same feed, but a thread reads the next data while the caller uses the present data.

    feed: step → (stop, the data of the steps from step to stop − 1)."""
    pool = ThreadPoolExecutor(1)
    ahead: dict[int, Future] = {}

    def next_(step: int) -> tuple[int, Any]:
        future = ahead.pop(step, None) or pool.submit(feed, step)
        ahead.clear()
        stop, data = future.result()
        ahead[stop] = pool.submit(feed, stop)
        return stop, data

    return next_
