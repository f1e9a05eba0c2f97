"""An encoder returns tokens in the order of the text, with a bounded number of ranges in progress, and names failures.

`tests/faults/test_tokenizing.py` starts a Ray cluster."""

import random
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from lvp.data.text.documents import Held
from lvp.data.tokens import encoding
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from tests.lvp.data.tokens.texts import some_text


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(some_text(500).encode(), 260)


class Pool:
    """Completes ranges when asked. `most` is the largest number of submitted ranges that were not taken."""

    def __init__(self, seed):
        self.chance, self.pending, self.submitted, self.taken, self.most = random.Random(seed), [], 0, 0, 0

    def submit(self, model, dtype, part):
        future = Ended(self, part)
        self.pending.append(future)
        self.submitted += 1
        self.most = max(self.most, self.submitted - self.taken)
        self.complete(self.chance.randrange(3))
        return future

    def complete(self, count):
        for _ in range(min(count, len(self.pending))):
            future = self.pending.pop(self.chance.randrange(len(self.pending)))
            future.set_result(encoding.Encoded(np.array([len(future.part.content)]), 1))


class Ended(Future):
    def __init__(self, pool, part):
        super().__init__()
        self.pool, self.part = pool, part

    def result(self, timeout=None):
        while not self.done():
            self.pool.complete(1)
        self.pool.taken += 1
        return super().result(timeout)


@pytest.mark.parametrize("seed", range(5))
def test_ranges_that_end_in_any_order_are_returned_in_order(tokenizer, seed):
    parts, pool = [Held(b"x" * n) for n in range(200)], Pool(seed)
    encoder = encoding.Encoder(pool.submit, 4)
    done = list(encoder(tokenizer, np.dtype("<u2"), iter(parts)))
    assert [part for part, _ in done] == parts and [int(ids[0]) for _, (ids, _) in done] == list(range(200))
    assert 4 < pool.most <= 2 * 4 + 1


@pytest.mark.parametrize(
    "error, expected, message",
    [
        (InputError("a.txt is binary"), InputError, "^a.txt is binary$"),
        (OSError(28, "No space left"), OSError, "No space left"),
        (MemoryError("8 GiB\nand more"), RuntimeError, r"worker failed \(MemoryError: 8 GiB\); the same command"),
        (BrokenProcessPool(), RuntimeError, r"worker failed \(BrokenProcessPool: \); the same command continues"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_failure_of_a_worker_is_one_line(tokenizer, error, expected, message, wrapped):
    """`wrapped`: within an error with the attribute `cause`, as Ray raises it."""

    def submit(model, dtype, part):
        future = Future()
        if wrapped:
            outer = ValueError("a traceback\nof many lines")
            outer.cause = error
            future.set_exception(outer)
        else:
            future.set_exception(error)
        return future

    with pytest.raises(expected, match=message) as caught:
        list(encoding.Encoder(submit, 2)(tokenizer, np.dtype("<u2"), [Held(b"x")]))
    assert "\n" not in str(caught.value)
