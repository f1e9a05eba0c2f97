"""Token files: arrays on disk, of lvp and of other projects, as one sequence.

| file | content |
|---|---|
| `.npy` | uint16, uint32 or int32 [N]; `lvp tokenize` writes these |
| `.bin` of llm.c and modded-nanogpt | a header of 256 int32 (magic, version, N), then uint16 or uint32 tokens |
| `.bin` of nanoGPT | tokens without a header: uint16, or uint32 for a vocabulary above 65,536 |

In a directory, files with "val" in their names are validation, and other files with "train" are training. The files of
a split follow each other in the order of their names.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from lvp.errors import InputError
from lvp.files import storage
from lvp.files.schema import fits
from lvp.parallel.hardware import cores

SUFFIXES = (".npy", ".bin")
_HEADER = 256  # int32 of the header of llm.c
_FORMATS = {(20240520, 1): "<u2", (20240801, 7): "<u4"}  # (magic, version) of llm.c → dtype
_MAGICS = range(20240000, 20250000)  # llm.c's magic numbers; as two uint16 they are no tokens of GPT-2
_OPEN = 64  # files that are mapped at the same time
_BLOCK = 1 << 24  # bytes read at a time
_SLOW = 1 << 30  # bytes whose first reading is announced


class TokenFile(NamedTuple):
    """The tokens of one file."""

    path: Path
    dtype: str  # little-endian
    offset: int  # of the first token, in bytes
    length: int  # number of tokens

    def mapped(self) -> np.ndarray:
        """The tokens as a memory map."""
        return np.memmap(self.path, self.dtype, "r", self.offset, (self.length,))


class Tokens:
    """Consecutive token files as one sequence with 64-bit positions. Slices are read from memory maps."""

    ndim = 1

    def __init__(self, files: Sequence[TokenFile]):
        self.files = tuple(files)
        self.dtype = np.result_type(*(file.dtype for file in files))
        self._ends = np.array([0, *accumulate(file.length for file in files)])
        self._mapped = lru_cache(maxsize=_OPEN)(lambda number: self.files[number].mapped())

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def size(self) -> int:
        return len(self)

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, positions: slice) -> np.ndarray:
        """A copy of the tokens at positions with step 1, of `dtype`."""
        start, stop, step = positions.indices(len(self))
        if step != 1:
            raise ValueError(f"tokens are read with step 1, got {step}")
        out = np.empty(max(0, stop - start), self.dtype)
        number, done = int(np.searchsorted(self._ends, start, side="right")) - 1, 0
        while done < out.size:
            first = start + done - int(self._ends[number])
            part = self._mapped(number)[first : first + out.size - done]
            out[done : done + part.size] = part
            number, done = number + 1, done + part.size
        return out

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)


def sequence(files: Sequence[TokenFile], first: int, count: int) -> np.ndarray:
    """`count` tokens from position `first` on: a memory map, or `Tokens` if they are in several files."""
    kept = []
    for file in files:
        skipped = min(first, file.length)
        taken = min(count, file.length - skipped)
        if taken:
            kept.append(file._replace(offset=file.offset + skipped * np.dtype(file.dtype).itemsize, length=taken))
        first, count = first - skipped, count - taken
    if count or not kept:
        raise InputError(f"{files[0].path} has fewer tokens than its dataset states: prepare the dataset again")
    return kept[0].mapped() if len(kept) == 1 else cast(np.ndarray, Tokens(kept))  # it has what callers use


def find(place: Path, split: str, vocab: int) -> list[TokenFile]:
    """The token files of "train" or "valid" in a directory, or the file at `place`; checks headers and sizes.

    Args:
      vocab: decides the dtype of files without a header.

    Raises:
      InputError: a file cannot be read, is truncated, or has an unknown header.
    """
    if not place.is_dir():
        return [described(place, vocab)]
    try:
        paths = sorted(p for p in place.iterdir() if p.suffix in SUFFIXES and p.name[0] != "." and p.is_file())
    except OSError as error:
        raise InputError(f"cannot read {place}: {error.strerror or error}") from error
    of_valid = [path for path in paths if "val" in path.stem]
    chosen = of_valid if split == "valid" else [p for p in paths if p not in set(of_valid) and "train" in p.stem]
    files = [described(path, vocab) for path in chosen]
    if odd := next((file for file in files if bool(file.offset) != bool(files[0].offset)), None):
        without = next(file.path for file in files if not file.offset)
        raise InputError(f"{without} has no header, but other files of {odd.path.parent} have one: replace the file")
    return files


def described(path: Path, vocab: int) -> TokenFile:
    """The dtype, offset and number of tokens of a file, from its header and size."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            header = np.frombuffer(file.read(4 * _HEADER), np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if path.suffix == ".npy":
        array = storage.load_npy(path, mapped=True)
        if array.ndim != 1 or array.dtype.str not in ("<u2", "<u4", "<i4"):
            got = f"{array.dtype} {list(array.shape)}"
            raise InputError(f"{path} has no tokens: expected uint16, uint32 or int32 [N], got {got}")
        return _sized(TokenFile(path, array.dtype.str, array.offset, array.size), size)  # type: ignore[attr-defined]
    words = header[: header.size // 4 * 4].view("<i4")
    if words.size and int(words[0]) in _MAGICS:
        magic, version, count = words[:3].tolist() if words.size == _HEADER else (int(words[0]), 0, 0)
        if (magic, version) not in _FORMATS or count < 0:
            known = " or ".join(f"{magic} version {version}" for magic, version in _FORMATS)
            raise InputError(f"{path} has the header {magic} version {version}; token files have {known}")
        return _sized(TokenFile(path, _FORMATS[magic, version], header.size, count), size)
    dtype = np.dtype("<u2" if vocab <= 1 << 16 else "<u4")
    if size % dtype.itemsize:
        raise InputError(f"{path} is truncated: its {size} bytes are no whole number of {dtype} tokens; copy it again")
    return TokenFile(path, dtype.str, 0, size // dtype.itemsize)


def _sized(file: TokenFile, size: int) -> TokenFile:
    """The file, after a check of its size.

    Raises:
      InputError: the file does not have `size` bytes.
    """
    expected = file.offset + file.length * np.dtype(file.dtype).itemsize
    if size != expected:
        problem = "truncated" if size < expected else "longer than expected"
        need = f"its header states {file.length} tokens, which are {expected} bytes, but it has {size}"
        raise InputError(f"{file.path} is {problem}: {need}; copy it again")
    return file


def verified(files: Sequence[TokenFile], vocab: int, cache: Path) -> list[str]:
    """The sha256 (hex) of each file. Every token is compared with the vocabulary.

    The files are read completely once. The result is kept in the cache under path, size, times of change and inode.

    Raises:
      InputError: a token is not from 0 to vocab − 1, or a file cannot be read.
    """
    states = [file.path.stat() for file in files]
    key = [
        [str(file.path), *file[1:], state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        for file, state in zip(files, states, strict=True)
    ]
    kept = cache / "verified" / f"{storage.digest(storage.as_json(key))[:32]}.json"
    facts = _kept(kept, len(files))
    if facts is None:
        if (size := sum(state.st_size for state in states)) > _SLOW:
            print(f"reading {size / 1e9:.1f} GB of tokens once: {files[0].path.parent}", file=sys.stderr, flush=True)
        with ThreadPoolExecutor(cores()) as pool:
            facts = list(pool.map(_read, files))
        storage.write_file(kept, storage.as_json(facts))
    for file, (_, smallest, largest) in zip(files, facts, strict=True):
        if smallest < 0 or largest >= vocab:
            raise _outside(file, vocab)
    return [sha256 for sha256, _, _ in facts]


def _kept(path: Path, count: int) -> list | None:
    """The facts that an earlier call kept; None if they are absent or damaged."""
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    whole = fits(facts, [list]) and len(facts) == count and all(map(_is_fact, facts))
    return facts if whole else None


def _is_fact(fact: list) -> bool:
    return len(fact) == 3 and isinstance(fact[0], str) and all(type(bound) is int for bound in fact[1:])


def _read(file: TokenFile) -> tuple[str, int, int]:
    """(sha256 of the file, smallest token, largest token); (…, 0, 0) without tokens."""
    smallest, largest = [0], [0]
    digest = hashlib.sha256()
    try:
        with open(file.path, "rb") as content:
            digest.update(content.read(file.offset))
            while block := content.read(_BLOCK):
                digest.update(block)
                tokens = np.frombuffer(block, file.dtype)
                smallest.append(int(tokens.min()) if tokens.dtype.kind == "i" else 0)
                largest.append(int(tokens.max()))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {file.path}: {getattr(error, 'strerror', None) or error}") from error
    return digest.hexdigest(), min(smallest), max(largest)


def _outside(file: TokenFile, vocab: int) -> InputError:
    """The error of a file with tokens outside of the vocabulary; names the first of them."""
    tokens, step = file.mapped(), _BLOCK // 4
    for start in range(0, file.length, step):
        part = tokens[start : start + step]
        (wrong,) = np.nonzero((part < 0) | (part >= vocab))
        if wrong.size:
            token, position = int(part[wrong[0]]), start + int(wrong[0])
            problem = f"{file.path} has token {token} at position {position}, outside of the vocabulary of {vocab}"
            return InputError(f"{problem}: set vocab to that of its tokenizer")
    return InputError(f"{file.path} changed while it was read: start again")


def total(files: Iterable[TokenFile]) -> int:
    """The number of tokens in files."""
    return sum(file.length for file in files)
