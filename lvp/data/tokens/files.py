"""Directories of token files: train.npy, valid.npy, tokenizer.model and meta.json.

`lvp.data.tokens.tokenization` makes them.

Tokens are uint16 if the vocabulary allows it, else int32: 100 GB of text are about 50 GB of tokens of two bytes each.
meta.json is written last, so that a directory with it is complete. It contains sizes and sha256 of the other files.
Opening a directory verifies sizes, headers, the tokenizer, a sample of the tokens, and small files completely. `verify`
checks every byte.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from lvp.files import storage, sync_directory, write_whole
from lvp.files.schema import Shape, fits

FORMAT = 1
META, UNFINISHED, TOKENIZER = "meta.json", "unfinished.json", "tokenizer.model"
EMPTY = hashlib.sha256().hexdigest()  # digest of no tokens
SPLITS = {"train": "train.npy", "valid": "valid.npy"}
BEGIN_AGAIN = "delete the directory and begin again"
_AGAIN = "delete it and make it again: python -m lvp tokenize SPEC --vocab M --out {}"
# The schema of meta.json. A valid digest does not show that lvp wrote the file, so types are checked too.
_SHAPE: Shape = {
    "spec": str,
    "vocab": int,
    "tokens": dict.fromkeys(SPLITS, int),
    "text_bytes": dict.fromkeys(SPLITS, int),
    "tokenizer_fingerprint": str,
    "files": dict.fromkeys((TOKENIZER, *SPLITS.values()), {"bytes": int, "sha256": str}),
    "asked": dict,
}
_HEADER = 128  # bytes of the .npy header, whatever the number of tokens
_CHUNK = 1 << 22  # tokens read at a time
_DIGESTED = 1 << 24  # bytes of a file digested at a time
_SMALL = 1 << 26  # largest file, in bytes, that is verified completely when opened
_SAMPLES, _SAMPLE = 64, 1 << 14  # places in a larger file, and tokens at each


def dtype_of(vocab: int) -> np.dtype:
    return np.dtype("<u2" if vocab <= 1 << 16 else "<i4")


def _header(dtype: np.dtype, count: int) -> bytes:
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    body = text.ljust(_HEADER - 11).encode("latin1") + b"\n"
    return np.lib.format.magic(1, 0) + len(body).to_bytes(2, "little") + body


class Appender:
    """An unfinished token file beside its final name. `sync` writes the appended tokens to disk.

    count, sha256: the number and the digest of the tokens known to be on disk. Later tokens, left by a killed process,
    are cut off. Raises InputError if the file has fewer tokens, or other tokens.
    """

    def __init__(self, path: Path, dtype: np.dtype, count: int, sha256: str):
        self.path, self.dtype, self.count = path, dtype, count
        self._part = path.with_name(f"{path.name}.part")
        begun = os.open(self._part, os.O_RDWR | os.O_CREAT, 0o644)
        self._file = os.fdopen(begun, "r+b")
        try:
            self._cut(sha256)
        except BaseException:
            self._file.close()
            raise

    def _cut(self, sha256: str) -> None:
        expected, size = _HEADER + self.count * self.dtype.itemsize, os.fstat(self._file.fileno()).st_size
        if self.count and size < expected:
            raise truncated(self._part, expected, size, BEGIN_AGAIN)
        self._file.truncate(expected)
        self._digest = _digest_of_tokens(self._file, self._part, sha256)

    def __enter__(self) -> "Appender":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def append(self, ids: np.ndarray) -> None:
        content = ids.astype(self.dtype).tobytes()
        self._file.write(content)
        self._digest.update(content)
        self.count += ids.size

    def digest(self) -> str:
        """sha256 (hex) of the tokens."""
        return self._digest.hexdigest()

    def finish(self) -> None:
        """Writes the file's header and renames the file to its final name."""
        self._file.seek(0)
        self._file.write(_header(self.dtype, self.count))
        self.sync()
        os.replace(self._part, self.path)
        sync_directory(self.path.parent)

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def _digest_of_tokens(file: BinaryIO, path: Path, sha256: str):
    """The hash of the tokens up to the end of a file. Raises InputError if it is not `sha256`."""
    digest = hashlib.sha256()
    file.seek(_HEADER)
    while block := file.read(_DIGESTED):
        digest.update(block)
    if digest.hexdigest() != sha256:
        raise InputError(f"{path} is damaged: its tokens differ from their digest; {BEGIN_AGAIN}")
    return digest


def check_digest(path: Path, sha256: str) -> None:
    """Raises InputError unless `sha256` is the digest of a file's tokens."""
    with open(path, "rb") as file:
        _digest_of_tokens(file, path, sha256)


def truncated(path: Path, expected: int, size: int, way_out: str) -> InputError:
    problem = "truncated" if size < expected else "longer than expected"
    return InputError(f"{path} is {problem}: {expected} bytes expected, got {size}; {way_out}")


def write_meta(directory: Path, meta: Mapping[str, Any], seen: Callable[[int], Any]) -> dict[str, Any]:
    """Completes a directory with meta.json: `meta` plus the files' sizes and digests; returns the record.

    `seen` is called with the number of bytes read."""
    files = {name: described(directory / name, seen) for name in SPLITS.values()}
    body = {"format": FORMAT, **meta, "files": files | {TOKENIZER: described(directory / TOKENIZER)}}
    write_whole(directory / META, json.dumps(_signed(body), indent=1, sort_keys=True) + "\n")
    return body


def described(path: Path, seen: Callable[[int], Any] = lambda _: None) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(_DIGESTED):
            digest.update(block)
            size += len(block)
            seen(len(block))
    return {"bytes": size, "sha256": digest.hexdigest()}


def begun(directory: Path) -> bool:
    """True if the directory has finished or unfinished token files."""
    return any((directory / name).exists() for name in (META, UNFINISHED))


def read(directory: Path) -> dict[str, Any]:
    """The record of a complete directory of token files.

    Its keys include `spec`, `vocab`, `tokens` and `text_bytes` by split, `tokenizer_fingerprint`, `files` and `asked`.
    Raises InputError, with the file's name, for a directory that is missing, unfinished (with the command to continue)
    or damaged.
    """
    again = _AGAIN.format(directory)
    if not (directory / META).exists():
        if (directory / UNFINISHED).exists():
            command = unfinished(directory).get("command", "the command that began them")
            raise InputError(f"the tokens in {directory} are unfinished; continue with: {command}")
        raise InputError(
            f"no tokens in {directory}; python -m lvp tokenize SPEC --vocab M --out {directory} makes them"
        )
    meta = _checked(directory / META, again)
    if not fits(meta, _SHAPE) or not meta["vocab"]:
        raise InputError(f"{directory / META} is not a record of token files; {again}")
    if not (path := directory / TOKENIZER).is_file():
        raise InputError(f"{path} is missing; {again}")
    if described(path) != meta["files"][TOKENIZER]:
        raise _another_tokenizer(directory)
    for split, name in SPLITS.items():
        path, facts = directory / name, meta["files"][name]
        check_tokens(path, meta["vocab"], meta["tokens"][split], again)
        _check_sample(path, meta["vocab"])
        if facts["bytes"] <= _SMALL and described(path) != facts:
            raise InputError(f"{path} is damaged: it differs from its digest; {again}")
    return meta


def tokenizer(directory: Path, meta: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a directory of token files. Raises InputError if it differs from the record's tokenizer."""
    try:
        tokenizer_ = Tokenizer.load(directory / TOKENIZER)
        same = (tokenizer_.fingerprint, tokenizer_.vocab_size) == (meta["tokenizer_fingerprint"], meta["vocab"])
    except Exception as error:  # a damaged model can raise any exception
        raise _another_tokenizer(directory) from error
    if not same:
        raise _another_tokenizer(directory)
    return tokenizer_


def _another_tokenizer(directory: Path) -> InputError:
    return InputError(
        f"{directory / TOKENIZER} is not the tokenizer that made the tokens beside it (the fingerprints differ); "
        + _AGAIN.format(directory)
    )


def verify(directory: Path, seen: Callable[[int], Any] = lambda _: None) -> dict[str, Any]:
    """Reads the record as `read` does, and compares every byte of the token files with their digests."""
    meta = read(directory)
    for name in SPLITS.values():
        if described(directory / name, seen) != meta["files"][name]:
            raise InputError(f"{directory / name} is damaged: it differs from its digest; {_AGAIN.format(directory)}")
    return meta


def unfinished(directory: Path) -> dict[str, Any]:
    """The state that `lvp.data.tokens.tokenization` saved."""
    return _checked(directory / UNFINISHED, BEGIN_AGAIN)


def write_unfinished(directory: Path, state: Mapping[str, Any]) -> None:
    body = {"format": FORMAT, **state}
    write_whole(directory / UNFINISHED, storage.as_json(_signed(body)))


def _signed(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**body, "digest": storage.digest(storage.as_json(body))}


def clear(directory: Path) -> None:
    """Removes the files of an incomplete directory."""
    for name in (UNFINISHED, TOKENIZER, *SPLITS.values(), *(f"{name}.part" for name in SPLITS.values())):
        (directory / name).unlink(missing_ok=True)


def _checked(path: Path, way_out: str) -> dict[str, Any]:
    return parsed(storage.read_input(path), path, way_out)


def parsed(content: bytes, path: Path | str, way_out: str) -> dict[str, Any]:
    """The content of a signed JSON file. Raises InputError, with the file's path, if it is damaged."""
    try:
        body = json.loads(content)
        digest = body.pop("digest")
        whole = storage.digest(storage.as_json(body)) == digest
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise InputError(f"{path} is damaged; {way_out}")
    if body.get("format") != FORMAT:
        raise InputError(f"{path} has format {body.get('format')}, not {FORMAT}; {way_out}")
    return body


def check_tokens(path: Path, vocab: int, count: int, way_out: str) -> None:
    """Raises InputError unless a token file has the size and header of `count` tokens."""
    dtype = dtype_of(vocab)
    expected = _HEADER + count * dtype.itemsize
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; {way_out}") from error
    if size != expected:
        raise truncated(path, expected, size, way_out)
    with open(path, "rb") as file:
        if file.read(_HEADER) != _header(dtype, count):
            raise InputError(f"{path} is damaged: its header is not that of {count} tokens of {dtype}; {way_out}")


def _check_sample(path: Path, vocab: int) -> None:
    tokens = storage.load_npy(path, mapped=True)
    for start in np.linspace(0, max(0, len(tokens) - _SAMPLE), _SAMPLES).astype(np.int64).tolist():
        check_ids(tokens[start : start + _SAMPLE], vocab, path)
        if len(tokens) <= _SAMPLE:
            return


def check_ids(ids: np.ndarray, vocab: int, path: Path) -> None:
    """Raises InputError for a token outside of the vocabulary."""
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocab:
        wrong = ids.max() if ids.max() >= vocab else ids.min()
        raise InputError(
            f"{path} contains token {wrong}, but its vocabulary is {vocab}: another tokenizer made these tokens; "
            "make them again with python -m lvp tokenize"
        )


def head(directory: Path, meta: Mapping[str, Any], split: str, limit: int | None) -> tuple[int, int]:
    """(tokens, bytes) of the longest initial part of a split that represents at most `limit` bytes of text.

    None is the whole split. The result is exact: the function reads that part and the tokenizer."""
    count, size = meta["tokens"][split], meta["text_bytes"][split]
    if limit is None or limit >= size:
        return count, size
    path = directory / SPLITS[split]
    lengths = np.array([len(piece) for piece in tokenizer(directory, meta).pieces])
    tokens, size = storage.load_npy(path, mapped=True), 0
    for start in range(0, count, _CHUNK):
        ids = tokens[start : start + _CHUNK]
        check_ids(ids, meta["vocab"], path)
        ends = size + np.cumsum(lengths[ids])
        fitting = int(np.searchsorted(ends, limit, side="right"))
        if fitting < ids.size:
            return start + fitting, int(ends[fitting - 1]) if fitting else size
        size = int(ends[-1])
    problem = f"{path} represents {size} bytes of text, not {meta['text_bytes'][split]} as {META} states"
    raise InputError(f"{problem}; {_AGAIN.format(directory)}")
