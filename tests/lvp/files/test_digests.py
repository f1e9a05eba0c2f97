"""An array's digest does not depend on how the array is split, and differs from other arrays' digests."""

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvp.files import digests
from lvp.files.digests import digest_of_part

M64 = 2**64


def by_hand(x) -> int:
    """Computes the definition, one entry at a time, with Python integers."""

    def mixed(v):
        v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9 % M64
        v = (v ^ (v >> 27)) * 0x94D049BB133111EB % M64
        return v ^ (v >> 31)

    raw, size = np.ascontiguousarray(x).tobytes(), x.dtype.itemsize
    words = [int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size)]
    return sum(mixed(word ^ mixed(place)) for place, word in enumerate(words)) % M64


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (2, 0, 3), (2, 3, 4)])
def test_the_digest_follows_its_definition(dtype, shape):
    x = np.asarray(np.random.default_rng(0).normal(size=shape) * 100).astype(dtype)
    assert digest_of_part(x, shape, (0,) * len(shape)) == by_hand(x)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_digests_of_parts_add_up_to_the_whole(shape, data):
    x = np.random.default_rng(0).normal(size=shape)
    cuts = [sorted({0, n, data.draw(st.integers(0, n)), data.draw(st.integers(0, n))}) for n in shape]
    total = 0
    for corner in itertools.product(*(list(itertools.pairwise(c)) for c in cuts)):
        part = x[tuple(slice(a, b) for a, b in corner)]
        total += digest_of_part(part, x.shape, tuple(a for a, _ in corner))
    assert total % M64 == digest_of_part(x, x.shape, (0,) * x.ndim) == by_hand(x)


def test_blocks_do_not_change_the_digest(monkeypatch):
    x = np.random.default_rng(0).normal(size=(9, 50))
    monkeypatch.setattr(digests, "_BLOCK", 16)
    assert digest_of_part(x, x.shape, (0, 0)) == by_hand(x)
    columns = (0, 7), (7, 29), (29, 50)
    assert sum(digest_of_part(x[:, a:b], x.shape, (0, a)) for a, b in columns) % M64 == by_hand(x)


def test_every_flipped_bit_changes_the_digest():
    x = np.zeros(40, np.float32)
    whole = {digest_of_part(x, x.shape, (0,))}
    for byte, bit in itertools.product(range(x.nbytes), range(8)):
        y = x.copy()
        y.view(np.uint8)[byte] ^= 1 << bit
        whole.add(digest_of_part(y, y.shape, (0,)))
    assert len(whole) == 1 + 8 * x.nbytes


def test_a_trees_digest_covers_order_shape_and_type():
    x = np.arange(6, dtype=np.float32)
    others = [x[::-1], x.reshape(2, 3), x.view(np.int32), np.roll(x, 1), x[:5]]
    all_digests = [digests.digests_of_tree({"a": y})["a"] for y in [x, *others]]
    assert len(set(all_digests)) == len(all_digests)
    assert digests.digests_of_tree({"a": jax.numpy.asarray(x)})["a"] == all_digests[0]
