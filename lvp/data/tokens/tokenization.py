"""Tokenization of a text of any size: an idempotent map from the parts of a text to shards (`lvp.data.tokens.shards`).

A shard that exists whole is skipped. The same command therefore continues after an interruption, and makes the same
bytes with any number of workers. Two commands at the same time make the same shards twice and damage nothing.
"""

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lvp.data.text import corpora, documents, splits
from lvp.data.tokens import encoding, loading, shards, tokenizers
from lvp.data.tokens.loading import AnyTokenizer
from lvp.data.tokens.shards import META, SETTINGS, Place, Shard
from lvp.errors import InputError
from lvp.files import storage
from lvp.files.buckets import refusals

VALID_BYTES = 10_000_000
TOKENIZER_BYTES = 100_000_000
_SHARD = 1 << 23  # least bytes of text of a shard; it ends with a block
_LOG_SECONDS = 30.0  # time between progress lines without a terminal


@dataclass(frozen=True)
class Settings:
    """The arguments that determine the tokens.

    Raises:
      InputError: neither a vocabulary nor a tokenizer is given, the vocabulary to train is below 256, or a number of
        bytes is below 1.
    """

    spec: str  # a text (`lvp.data.text.corpora.load`)
    vocab: int | None = None  # size of the vocabulary to train; with a tokenizer: at least its size
    valid_bytes: int = VALID_BYTES  # approximate size of the validation text in bytes, at most
    limit: int | None = None  # approximate size of the training text in bytes; None takes all
    tokenizer: Path | None = None  # file of a tokenizer (`lvp.data.tokens.loading`); None trains one
    tokenizer_bytes: int = TOKENIZER_BYTES  # bytes of training text that train the tokenizer, whatever the limit
    # Token between documents: "none", "bos" (before each) or "eos" (after each); None is the first of the tokenizer.
    separator: str | None = None

    def __post_init__(self):
        if self.tokenizer is None and self.vocab is None:
            raise InputError("give --vocab M, the size of the vocabulary to train, or --tokenizer FILE")
        if self.tokenizer is None and self.vocab is not None and self.vocab < tokenizers.SMALLEST:
            raise InputError(f"--vocab {self.vocab} must be at least {tokenizers.SMALLEST}, the number of bytes")
        for name in ("valid_bytes", "limit", "tokenizer_bytes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} {value}: must be a positive number of bytes")

    def command(self, out: Path | str) -> str:
        """The command that makes, or continues to make, these tokens in `out`."""
        words = ["python", "-m", "lvp", "tokenize", self.spec, "--out", str(out)]
        for name, field in type(self).__dataclass_fields__.items():
            if name != "spec" and (value := getattr(self, name)) != field.default:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join(words)

    def asked(self, given: AnyTokenizer | None) -> dict[str, Any]:
        """The settings as they are saved and compared; a tokenizer is identified by its fingerprint, not its path."""
        if given is None:
            return asdict(self)
        return asdict(self) | {"tokenizer": given.fingerprint, "tokenizer_bytes": None, "vocab": given.vocab_size}


def tokenize(
    settings: Settings,
    out: Path | str,
    *,
    cache: Path,
    workers: int | None = None,
    pool: contextlib.AbstractContextManager[encoding.Mapped] | None = None,
) -> dict[str, Any]:
    """Makes the shards that `out` lacks, and returns its meta.json. The bytes of a complete directory are verified.

    Args:
      out: a directory, or an address in a bucket.
      cache: as in `lvp.data.prepare`.
      workers: number of processes; None is the number of cores.
      pool: is used in place of these processes.

    Raises:
      InputError: `workers` is below 1, the text or the tokenizer cannot be used, or the place has other settings or
        files. Nothing is written to such a place.
      RuntimeError: a worker failed for another reason than its text.
      KeyboardInterrupt: the user interrupts. The error has the command that continues.
    """
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: must be at least 1")
    file = None if settings.tokenizer is None else settings.tokenizer.absolute()
    settings = replace(settings, spec=corpora.absolute(settings.spec), tokenizer=file)
    given = None if file is None else _given(file, settings.vocab)
    with refusals():
        place = Place(out)
        if (meta := _complete(place, settings.asked(given))) is not None:
            if place.directory is not None:
                shards.check(place.directory, meta, cache)
            return meta
        _check_empty(place)
        source = corpora.source(settings.spec, cache=cache, valid_bytes=settings.valid_bytes)
        # The pool starts first, so that nothing is written if it cannot start.
        with pool or encoding.in_processes(workers) as mapped:
            state = _state(place, settings, source, given)
            try:
                return _made(place, settings, source, state, mapped)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"interrupted; continue with: {settings.command(place.name)}") from None


def _complete(place: Place, asked: dict) -> dict | None:
    """meta.json of a complete place; None if it is not complete."""
    meta = place.signed(META, shards.RECORDED)
    if meta is not None:
        _check_same(place, asked, meta["settings"]["asked"])
    return meta


def _check_empty(place: Place) -> None:
    """Checks that a place holds only files of a tokenization.

    Raises:
      InputError: the place holds other files, or is not a directory.
    """
    if place.directory is not None and place.directory.exists() and not place.directory.is_dir():
        raise InputError(f"--out {place.name} is not a directory: choose another path")
    names = set(place.files.names())
    other = [name for name in names if not shards.is_ours(name)]
    if SETTINGS not in names:
        other += names - set(shards.TOKENIZERS)  # a tokenizer is written before the settings
    if other:
        raise InputError(f"--out {place.name} holds other files ({min(other)}): choose an empty place")


def _check_same(place: Place, asked: dict, held: dict) -> None:
    for name, value in asked.items():
        if held.get(name) != value:
            difference = f"{name.replace('_', '-')} {held.get(name)}, not {value}"
            problem = f"--out {place.name} holds tokens made with other settings ({difference})"
            raise InputError(f"{problem}: choose another place")


def _given(path: Path, vocab: int | None) -> AnyTokenizer:
    tokenizer = loading.load(path)
    if vocab is not None and vocab < tokenizer.vocab_size:
        problem = f"--tokenizer {path} has {tokenizer.vocab_size} tokens, but --vocab says {vocab}"
        raise InputError(f"{problem}: omit --vocab, or pass another tokenizer")
    return tokenizer


def _state(place: Place, settings: Settings, source: documents.Source, given: AnyTokenizer | None) -> dict[str, Any]:
    """settings.json, which is written with the tokenizer if it does not exist."""
    asked, text = settings.asked(given), {"spec": source.spec, "identity": source.identity, "blocks": splits.BLOCK}
    state = place.signed(SETTINGS, shards.STATE)
    if state is not None:
        _check_same(place, asked, state["asked"])
        if state["text"] == text:
            return state
        if any(name.endswith(".npy") for name in place.files.names()):
            raise InputError(f"{settings.spec} has changed since {place.name} was begun: choose another --out")
    tokenizer = given or _trained(settings, source)
    separator = _separator(tokenizer, settings.separator)
    file = shards.TOKENIZERS[isinstance(tokenizer, loading.HuggingFace)]
    try:
        place.files.write(file, tokenizer.model)
    except OSError as error:
        if place.directory is None:
            raise
        raise InputError(f"cannot write --out {place.name}: {error.strerror or error}") from error
    state = {
        "asked": asked,
        "text": text,
        "vocab": tokenizer.vocab_size,
        "tokenizer": {"file": file, "fingerprint": tokenizer.fingerprint},
        "separator": separator,
        "shard_bytes": _SHARD,
    }
    place.sign(SETTINGS, state)
    return state


def _trained(settings: Settings, source: documents.Source) -> AnyTokenizer:
    text = b"".join(block.ended for block in documents.head(source.train, settings.tokenizer_bytes))
    print(f"training a tokenizer of {settings.vocab} tokens on {len(text):,} bytes", file=sys.stderr, flush=True)
    assert settings.vocab is not None
    return tokenizers.Tokenizer.train(text, settings.vocab)


def _separator(tokenizer: AnyTokenizer, asked: str | None) -> list | None:
    """("bos" or "eos", id) of the token between documents; None without one."""
    kinds = tokenizer.separators
    if asked is None:
        asked = next((kind for kind in ("bos", "eos") if kind in kinds), "none")
    if asked == "none":
        return None
    if asked not in kinds:
        raise InputError(f"--separator {asked}: the tokenizer has {' and '.join(kinds) or 'no separator'}; write none")
    return [asked, kinds[asked]]


def _made(place: Place, settings: Settings, source: documents.Source, state: dict, mapped: encoding.Mapped) -> dict:
    """Makes the shards and meta.json."""
    digest, named = storage.digest(storage.as_json(state)), state["tokenizer"]
    common = (digest, named["file"], named["fingerprint"], state["separator"] and tuple(state["separator"]))
    found: dict[str, list] = {}
    # The short split first, so that errors appear early.
    for split, text, limit in (
        ("valid", source.valid, settings.valid_bytes),
        ("train", source.train, settings.limit),
    ):
        parts = enumerate(_parts(text, limit, state["shard_bytes"]))
        made = mapped(shards.make, (Shard(place.name, f"{split}-{number:05}", *common, part) for number, part in parts))
        found[split] = list(_shown(split, made, limit or text.num_bytes))
        if (tokens := sum(record["tokens"] for record in found[split])) < 2:
            name = {"train": "training", "valid": "validation"}[split]
            size = sum(record["bytes"] for record in found[split])
            problem = f"the {name} text is too small: {size} bytes make {tokens} tokens"
            raise InputError(f"{problem}; give a longer text or a higher limit")
    meta = {"settings": state, "shards": found, "validation": source.validation}
    place.sign(META, meta)
    return meta


def _parts(text: documents.Text, limit: int | None, size: int) -> Iterator[list[documents.Block]]:
    """The blocks of a text, or of its first `limit` bytes, in parts of at least `size` bytes."""
    part, held = [], 0
    for block in documents.head(text, limit):
        part.append(block)
        held += len(block.text)
        if held >= size:
            yield part
            part, held = [], 0
    if part:
        yield part


def _shown(split: str, made: Iterator[dict[str, Any]], size: int | None) -> Iterator[dict[str, Any]]:
    """The records, with a progress bar on a terminal or a line every 30 s in a log file."""
    done, shown = 0, time.monotonic()
    with tqdm(desc=split, total=size, unit="B", unit_scale=True, file=sys.stderr, disable=None) as bar:
        while True:
            try:
                record = next(made, None)
            except Exception as error:
                raise encoding.explained(error) from error
            if record is None:
                break
            done += record["bytes"]
            bar.update(record["bytes"])
            if bar.disable and time.monotonic() - shown > _LOG_SECONDS:
                print(f"{split}: {done:,} bytes of {size or 0:,}", file=sys.stderr, flush=True)
                shown = time.monotonic()
            yield record
    print(f"{split}: {done:,} bytes", file=sys.stderr, flush=True)
