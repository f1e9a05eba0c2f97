"""Digests of arrays that are computed by parts and do not depend on the split.

A bijection of 64-bit words (the finaliser of SplitMix64, Steele, Lea & Flood 2014) maps every entry and its index to a
word. The digest is the sum of the words modulo 2^64. It detects any single changed entry, and other damage except with
probability 2^-64. It is not a cryptographic digest.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from lvp.parallel import processes
from lvp.parallel.hardware import cores

_BLOCK = 1 << 15  # entries per block: 256 KiB of words, which fit in a core's cache
_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _runs(shape: tuple[int, ...], starts: tuple[int, ...], part: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """(indices, length) of the runs of contiguous entries in a part of an array of `shape`.

    The part begins at `starts` and has shape `part`. The indices are those of the runs' first entries in the flattened
    array, in the part's order.
    """
    axis, run, stride = len(shape), 1, 1
    while axis and (run == stride):  # the axes after this one are whole
        axis -= 1
        run, stride = run * part[axis], stride * shape[axis]
    places = np.zeros((), np.int64)
    for i in range(axis):
        places = places[..., None] * shape[i] + (starts[i] + np.arange(part[i]))
    if axis < len(shape):
        places = places * stride + starts[axis] * (stride // shape[axis] if shape[axis] else 0)
    return places.ravel(), run


def digest_of_part(x: np.ndarray, shape: tuple[int, ...], starts: tuple[int, ...]) -> int:
    """The digest of `x`, the part of an array of `shape` that begins at entry `starts`."""
    words = np.ascontiguousarray(x).view(_WORDS[x.dtype.itemsize]).ravel()
    places, run = _runs(shape, starts, x.shape)
    total = np.uint64(0)
    for rows, columns in _blocks(len(places), run):
        place = (places[rows, None] + np.arange(columns.start, columns.stop)).astype(np.uint64)
        entries = words.reshape(len(places), run)[rows, columns].astype(np.uint64)
        with np.errstate(over="ignore"):  # the sum is modulo 2^64
            total += _mixed(entries ^ _mixed(place)).sum(dtype=np.uint64)
    return int(total)


def _blocks(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Row and column slices of blocks of about _BLOCK entries that cover a matrix."""
    width = min(columns, _BLOCK)
    height = max(1, _BLOCK // max(width, 1))
    for row in range(0, rows, height):
        for column in range(0, columns, max(width, 1)):
            yield slice(row, min(row + height, rows)), slice(column, min(column + width, columns))


def _own(x) -> int:
    """The digest of the entries that this process holds. Each entry of a shared array counts in one process."""
    if not isinstance(x, jax.Array):
        return digest_of_part(np.asarray(x), np.shape(x), (0,) * np.ndim(x))
    shards = [s for s in x.addressable_shards if s.replica_id == 0]
    starts = [tuple(i.indices(n)[0] for i, n in zip(s.index, x.shape, strict=True)) for s in shards]
    return (
        sum(digest_of_part(np.asarray(s.data), x.shape, start) for s, start in zip(shards, starts, strict=True)) % 2**64
    )


def digests_of_tree(tree: Any) -> dict[str, str]:
    """The digest of every array of a pytree, by path, as a string "dtype[shape] digest" with 16 hexadecimal digits.

    If processes share the arrays, all processes must call it, and all receive the same digests.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    with ThreadPoolExecutor(cores()) as pool:
        sums = list(pool.map(_own, (x for _, x in leaves)))  # NumPy releases the GIL
    if processes.shared(tree):
        halves = processes.gathered([half for total in sums for half in (total >> 32, total & 0xFFFFFFFF)])
        of_all = halves.astype(np.uint64).reshape(len(halves), -1, 2)
        with np.errstate(over="ignore"):
            sums = [int(x) for x in ((of_all[..., 0] << np.uint64(32)) + of_all[..., 1]).sum(axis=0, dtype=np.uint64)]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): f"{np.dtype(x.dtype)}{list(x.shape)} {total:016x}"
        for (path, x), total in zip(leaves, sums, strict=True)
    }
