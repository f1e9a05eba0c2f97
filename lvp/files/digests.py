"""A digest of an array that can be taken of its parts, wherever they lie, and comes out the same however it is split.

Every entry's bits and its place in the whole array go through a bijection of 64-bit words (the finaliser of SplitMix64,
Steele, Lea & Flood 2014), and what comes out is added up modulo 2^64. So any one changed entry is always seen, and any
other damage but for a chance of 2^-64. It is no defence against somebody who means to deceive.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from lvp.parallel import processes
from lvp.parallel.hardware import cores

_BLOCK = 1 << 15  # entries at a time: 256 KiB of words, which stay in a core's cache
_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _runs(shape: tuple[int, ...], starts: tuple[int, ...], part: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """Of the part of an array of `shape` that begins at `starts`: where in the whole its runs of neighbouring entries
    begin, in the part's order, and their length."""
    axis, run, stride = len(shape), 1, 1
    while axis and (run == stride):  # as long as the axes behind are whole
        axis -= 1
        run, stride = run * part[axis], stride * shape[axis]
    places = np.zeros((), np.int64)
    for i in range(axis):
        places = places[..., None] * shape[i] + (starts[i] + np.arange(part[i]))
    if axis < len(shape):
        places = places * stride + starts[axis] * (stride // shape[axis] if shape[axis] else 0)
    return places.ravel(), run


def digest_of_part(x: np.ndarray, shape: tuple[int, ...], starts: tuple[int, ...]) -> int:
    """The sum over `x`, the part of an array of `shape` that begins at entry `starts`."""
    words = np.ascontiguousarray(x).view(_WORDS[x.dtype.itemsize]).ravel()
    places, run = _runs(shape, starts, x.shape)
    total = np.uint64(0)
    for rows, columns in _blocks(len(places), run):
        place = (places[rows, None] + np.arange(columns.start, columns.stop)).astype(np.uint64)
        entries = words.reshape(len(places), run)[rows, columns].astype(np.uint64)
        with np.errstate(over="ignore"):  # modulo 2^64 is meant
            total += _mixed(entries ^ _mixed(place)).sum(dtype=np.uint64)
    return int(total)


def _blocks(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of about _BLOCK entries that cover a matrix."""
    width = min(columns, _BLOCK)
    height = max(1, _BLOCK // max(width, 1))
    for row in range(0, rows, height):
        for column in range(0, columns, max(width, 1)):
            yield slice(row, min(row + height, rows)), slice(column, min(column + width, columns))


def _own(x) -> int:
    """The sum over what this process has of an array, every entry counted by one process."""
    if not isinstance(x, jax.Array):
        return digest_of_part(np.asarray(x), np.shape(x), (0,) * np.ndim(x))
    shards = [s for s in x.addressable_shards if s.replica_id == 0]
    starts = [tuple(i.indices(n)[0] for i, n in zip(s.index, x.shape, strict=True)) for s in shards]
    return (
        sum(digest_of_part(np.asarray(s.data), x.shape, start) for s, start in zip(shards, starts, strict=True)) % 2**64
    )


def digests_of_tree(tree: Any) -> dict[str, str]:
    """The digest of every array of a pytree, by its path. Of arrays that several processes share (then all of the
    tree's are such) all of them call it, and all get the answer."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    with ThreadPoolExecutor(cores()) as pool:
        sums = list(pool.map(_own, (x for _, x in leaves)))  # NumPy lets threads run
    if processes.shared(tree):
        halves = processes.gathered([half for total in sums for half in (total >> 32, total & 0xFFFFFFFF)])
        of_all = halves.astype(np.uint64).reshape(len(halves), -1, 2)
        with np.errstate(over="ignore"):
            sums = [int(x) for x in ((of_all[..., 0] << np.uint64(32)) + of_all[..., 1]).sum(axis=0, dtype=np.uint64)]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): f"{np.dtype(x.dtype)}{list(x.shape)} {total:016x}"
        for (path, x), total in zip(leaves, sums, strict=True)
    }
