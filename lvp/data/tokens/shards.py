"""Directories of tokens made by `lvp tokenize`, on a disk or in a bucket.

    tokenizer.model or tokenizer.json
    settings.json              what determines the tokens
    train-00000.npy, …         the shards: uint16, or int32 for a vocabulary above 65,536
    train-00000.json, …        number of tokens, bytes of text and sha256 of a shard; written after the shard
    valid-00000.npy, …         the same for validation
    meta.json                  settings and shards; written last

A shard with its record is whole. A directory with meta.json is complete.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lvp.data.text.documents import Block
from lvp.data.tokens import arrays, loading
from lvp.data.tokens.arrays import TokenFile
from lvp.errors import InputError
from lvp.files import storage
from lvp.files.buckets import Bucket, refusals
from lvp.files.places import Directory, place_of
from lvp.files.schema import Shape, fits

META, SETTINGS = "meta.json", "settings.json"
TOKENIZERS = ("tokenizer.model", "tokenizer.json")
SPLITS = ("train", "valid")
_AGAIN = "delete it and make it again: python -m lvp tokenize SPEC --vocab M --out {}"
_RECORD: Shape = {"settings": str, "tokens": int, "bytes": int, "sha256": str}
# Types of the JSON files. A valid digest does not show that lvp wrote a file.
STATE: Shape = {
    "asked": dict,
    "text": dict,
    "vocab": int,
    "tokenizer": {"file": str, "fingerprint": str},
    "separator": list | None,
    "shard_bytes": int,
}
RECORDED: Shape = {"settings": STATE, "shards": dict.fromkeys(SPLITS, [_RECORD]), "validation": str}


class Place:
    """The files of a directory, or of an address in a bucket. JSON files carry a digest."""

    def __init__(self, out: Path | str):
        self.files = place_of(out)
        self.name = self.files.address

    @property
    def directory(self) -> Path | None:
        """The directory; None for a bucket."""
        return self.files.path if isinstance(self.files, Directory) else None

    def signed(self, name: str, shape: Shape) -> dict[str, Any] | None:
        """The content of a JSON file that `sign` wrote; None if there is no file.

        Raises:
          InputError: the file is damaged, or does not have the shape.
        """
        content, body, digest = self.files.read(name), None, None
        if content is None:
            return None
        try:
            body = json.loads(content)
            digest = body.pop("digest")
            whole = fits(body, shape) and storage.digest(storage.as_json(body)) == digest
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise InputError(f"{self.name}/{name} is damaged, or of another version; {_AGAIN.format(self.name)}")
        return body

    def sign(self, name: str, body: Mapping[str, Any]) -> None:
        """Writes a JSON object with its digest."""
        content = {**body, "digest": storage.digest(storage.as_json(body))}
        self.files.write(name, json.dumps(content, indent=1, sort_keys=True).encode() + b"\n")


def is_ours(name: str) -> bool:
    """True if a directory of tokens has a file of this name."""
    return name in (META, SETTINGS, *TOKENIZERS) or re.fullmatch(r"(train|valid)-\d{5,}\.(npy|json)", name) is not None


class Shard(NamedTuple):
    """A part of a text and the place of its tokens. It can be sent to another process."""

    place: str
    name: str  # without suffix
    settings: str  # digest of settings.json
    tokenizer: str  # file in the place
    fingerprint: str  # of the tokenizer
    separator: tuple[str, int] | None  # "bos" or "eos", and its id
    text: Sequence[Block]


def dtype_of(vocab: int) -> np.dtype:
    """The dtype of the tokens of a vocabulary of this size."""
    return np.dtype("<u2" if vocab <= 1 << 16 else "<i4")


def make(shard: Shard) -> dict[str, Any]:
    """Makes a shard, unless it exists whole, and returns its record.

    Raises:
      InputError: the shard was made with other settings, or the place has another tokenizer.
    """
    place = Place(shard.place)
    if (record := _record(place, shard)) is not None:
        return record
    tokenizer = _tokenizer(shard.place, shard.tokenizer, shard.fingerprint)
    ids, size = encode(tokenizer, shard.separator, shard.text)
    content = storage.npy(ids.astype(dtype_of(tokenizer.vocab_size)))
    place.files.write(f"{shard.name}.npy", content)
    sha256 = hashlib.sha256(content).hexdigest()
    record = {"settings": shard.settings, "tokens": int(ids.size), "bytes": size, "sha256": sha256}
    place.sign(f"{shard.name}.json", record)
    return record


def _record(place: Place, shard: Shard) -> dict[str, Any] | None:
    """The record of a shard; None if it is absent or damaged."""
    try:
        record = place.signed(f"{shard.name}.json", _RECORD)
    except InputError:  # damaged
        return None
    if record is None:
        return None
    if record["settings"] != shard.settings:
        raise InputError(f"{place.name} receives tokens with other settings at the same time: choose another --out")
    if place.directory is not None:  # a bucket verifies what it stores
        content = place.files.read(f"{shard.name}.npy") or b""
        return record if hashlib.sha256(content).hexdigest() == record["sha256"] else None
    return record


@lru_cache(maxsize=1)
def _tokenizer(place: str, file: str, fingerprint: str) -> loading.AnyTokenizer:
    """The tokenizer of a place.

    Raises:
      InputError: the tokenizer is damaged, or is another one.
    """
    try:
        tokenizer = loading.from_bytes(place_of(place).read(file) or b"")
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise any exception
        raise _another(place, file) from error
    if tokenizer.fingerprint != fingerprint:
        raise _another(place, file)
    return tokenizer


def _another(place: str, file: str) -> InputError:
    problem = f"{place}/{file} is not the tokenizer that made the tokens beside it (the fingerprints differ)"
    return InputError(f"{problem}; {_AGAIN.format(place)}")


def encode(
    tokenizer: loading.AnyTokenizer, separator: tuple[str, int] | None, text: Sequence[Block]
) -> tuple[np.ndarray, int]:
    """(token ids [N], bytes of text). Without a separator, documents end with a line end, which counts as text."""
    if separator is None:
        content = b"".join(block.ended for block in text)
        return tokenizer.encode(content), len(content)
    kind, number = separator
    mark, parts, size = np.array([number], np.int32), [np.zeros(0, np.int32)], 0
    for block in text:
        ids = tokenizer.encode(block.text, block.begins)
        parts += [mark] * (kind == "bos" and block.begins) + [ids] + [mark] * (kind == "eos" and block.ends)
        size += len(block.text)
    return np.concatenate(parts), size


def begun(directory: Path) -> bool:
    """True if `lvp tokenize` has written into a directory."""
    return any((directory / name).exists() for name in (META, SETTINGS))


def read(directory: Path) -> dict[str, Any]:
    """meta.json of a complete directory.

    Raises:
      InputError: the directory is unfinished or damaged.
    """
    place = Place(directory)
    meta = place.signed(META, RECORDED)
    if meta is None:
        raise InputError(f"the tokens in {directory} are unfinished; repeat the command that began them")
    return meta


def tokenizer_of(directory: Path, meta: Mapping[str, Any]) -> loading.AnyTokenizer:
    """The tokenizer of a directory of tokens.

    Raises:
      InputError: the file is missing or damaged, or is not the tokenizer in `meta`.
    """
    named = meta["settings"]["tokenizer"]
    if named["file"] not in TOKENIZERS:
        raise _another(str(directory), named["file"])
    if not (directory / named["file"]).is_file():
        raise InputError(f"{directory / named['file']} is missing; {_AGAIN.format(directory)}")
    return _tokenizer(str(directory), named["file"], named["fingerprint"])


def check(directory: Path, meta: Mapping[str, Any], cache: Path) -> dict[str, list[TokenFile]]:
    """The token files of each split. Every byte is compared with its digest (`lvp.data.tokens.arrays.verified`).

    Raises:
      InputError: a shard is missing, damaged or not of this directory.
    """
    vocab, found = meta["settings"]["vocab"], {}
    for split, records in meta["shards"].items():
        files = found[split] = arrays.find(directory, split, vocab)
        names = [f"{split}-{number:05}.npy" for number in range(len(records))]
        if [file.path.name for file in files] != names:
            other = sorted({file.path.name for file in files} ^ set(names))
            problem = f"{directory} has other shards than its {META} states"
            raise InputError(f"{problem} ({other[0]}); {_AGAIN.format(directory)}")
        for file, sha256, record in zip(files, arrays.verified(files, vocab, cache), records, strict=True):
            if sha256 != record["sha256"]:
                raise InputError(f"{file.path} is damaged: it differs from its digest; {_AGAIN.format(directory)}")
    return found


def local_copy(address: str, vocab: int, cache: Path) -> Path:
    """A local directory with the tokens at an address, or in its folder `vocab`. Files that it lacks are downloaded.

    If the tokens in the bucket change, the next call makes another directory.

    Raises:
      InputError: there are no complete tokens, the server refuses, or the cache cannot be locked.
      OSError: a file cannot be written, or the server does not answer.
    """
    with refusals():
        place = Place(address)
        if (content := place.files.read(META)) is None:
            place = Place(f"{place.name}/{vocab}")
            content = place.files.read(META)
        if content is None:
            command = f"python -m lvp tokenize SPEC --vocab {vocab} --out {address}"
            raise InputError(f"no complete tokens at {address}; `{command}` makes them")
        folder = cache / "tokens" / storage.digest(place.name.encode(), content)[:32]
        if not (folder / META).exists():
            meta = place.signed(META, RECORDED) or {}
            names = [f"{s}-{number:05}.npy" for s in SPLITS for number in range(len(meta["shards"][s]))]
            names += [name for name in TOKENIZERS if name == meta["settings"]["tokenizer"]["file"]]
            with storage.download_lock(folder):
                Bucket(place.name).fetch([*(name for name in names if not (folder / name).exists()), META], folder)
    return folder
