"""Tokenization of a text of any size into a directory of token files (`lvp.data.tokens.files`), resumable when killed.

Workers encode ranges of the text (`lvp.data.text.documents`). This process appends the tokens in the order of the
ranges. unfinished.json contains the number of finished ranges and the digest of their tokens. It is written every
second, after the tokens are on disk. A call with the same arguments verifies the digest and continues with the next
range. The files are identical to those of an uninterrupted run, for any number of workers.
"""

import contextlib
import fcntl
import io
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from lvp.data.text import corpora, documents, splits
from lvp.data.tokens import encoding, files, tokenizers
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from lvp.files import storage, write_whole
from lvp.files.buckets import Bucket, is_address, refusals
from lvp.files.schema import Shape, fits

VALID_BYTES = 10_000_000
TOKENIZER_BYTES = 100_000_000
# The schema of unfinished.json, and of a split in it.
_STATE: Shape = {
    "asked": dict,
    "command": str,
    "text": dict,
    "range_bytes": int,
    "splits": dict,
    "fingerprint": str | None,
}
_SPLIT: Shape = {"ranges": int, "bytes": int, "tokens": int, "sha256": str, "done": bool}
_ASKED = "asked.json"  # the object of an address that holds the settings of its tokens
_RANGE = 1 << 22  # approximate number of bytes of a range
_SAVE_SECONDS = 1.0  # time between saved states
_LOG_SECONDS = 30.0  # time between progress lines without a terminal


@dataclass(frozen=True)
class Settings:
    """The arguments that determine the tokens."""

    spec: str  # a text (`lvp.data.text.corpora.load`)
    vocab: int  # size of the vocabulary
    valid_bytes: int = VALID_BYTES  # largest size of the validation text in bytes
    limit: int | None = None  # largest size of the training text in bytes; None takes all
    tokenizer: Path | None = None  # file written by `Tokenizer.save`; None trains a new tokenizer
    tokenizer_bytes: int = TOKENIZER_BYTES  # bytes of training text that train the tokenizer, whatever the limit

    def __post_init__(self):
        if self.vocab < tokenizers.SMALLEST:
            raise InputError(f"--vocab {self.vocab} must be at least {tokenizers.SMALLEST}, the number of bytes")
        for name in ("valid_bytes", "limit", "tokenizer_bytes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} {value}: must be a positive number of bytes")

    def command(self, out: Path | str) -> str:
        words = ["python", "-m", "lvp", "tokenize", self.spec, "--vocab", str(self.vocab), "--out", str(out)]
        for name in ("valid_bytes", "limit", "tokenizer", "tokenizer_bytes"):
            if (value := getattr(self, name)) != type(self).__dataclass_fields__[name].default:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join(words)

    def asked(self, given: Tokenizer | None) -> dict[str, Any]:
        """The settings as they are saved and compared; a tokenizer is identified by its fingerprint, not its path."""
        settings = asdict(self) | {"tokenizer": given and given.fingerprint}
        return settings if given is None else settings | {"tokenizer_bytes": None}


def tokenize(
    settings: Settings,
    out: Path | str,
    *,
    cache: Path,
    workers: int | None = None,
    pool: contextlib.AbstractContextManager[encoding.Encoder] | None = None,
) -> dict[str, Any]:
    """Makes or continues the directory `out`, or verifies every byte if it is complete; returns its record.

    The record is that of `lvp.data.tokens.files.read`. If `out` is an address in a bucket, the directory is made in the
    cache and then uploaded. Complete tokens in a bucket are compared by their settings only. cache: as in
    `lvp.data.prepare`. workers: number of encoding processes; None is the number of cores. pool: encodes in place of
    these processes. Progress is shown on standard error.

    Raises InputError for an unusable text or tokenizer. Raises InputError, without writing, for a directory that
    another process uses, that was made with other settings, or that contains other files. Raises RuntimeError if a
    worker fails for another reason than its text. Raises KeyboardInterrupt with the command to continue.
    """
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: must be at least 1")
    tokenizer = None if settings.tokenizer is None else settings.tokenizer.absolute()
    settings = replace(settings, spec=corpora.absolute(settings.spec), tokenizer=tokenizer)
    given_tokenizer = None if settings.tokenizer is None else _given(settings.tokenizer, settings.vocab)
    asked = settings.asked(given_tokenizer)
    if not is_address(out):
        directory = Path(out).absolute()
        return _tokenize(settings, directory, directory, given_tokenizer, cache, workers, pool)
    address = str(out).rstrip("/")
    if (meta := _published(address, asked)) is None:
        # Refuses an unusable text before the address is reserved.
        corpora.source(settings.spec, cache=cache, valid_bytes=settings.valid_bytes)
        _reserve(address, asked)
        local = cache / "tokenized" / storage.digest(address.encode(), storage.as_json(asked))[:32]
        meta = _tokenize(settings, local, address, given_tokenizer, cache, workers, pool)
        try:
            with _only_one(local), refusals():
                Bucket(address).upload(local, last=files.META)
                shutil.rmtree(local)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; continue with: {settings.command(address)}") from None
    return meta


def _published(address: str, asked: dict) -> dict | None:
    """The record of the complete tokens at an address; None if there is no record.

    Raises:
      InputError: the address holds tokens with other settings or other files, or cannot be used.
    """
    with refusals():
        bucket = Bucket(address)
        answer, names = bucket.read(files.META), {entry.name for entry in bucket.listed()}
    if answer is None:
        if other := sorted(names - {_ASKED, files.META, files.TOKENIZER, *files.SPLITS.values()}):
            raise InputError(f"--out {address} holds other files ({other[0]}): choose an empty prefix")
        return None
    meta = files.parsed(answer[0], f"{address}/{files.META}", "name an empty prefix")
    _check_same(address, asked, meta["asked"])
    return meta


def _reserve(address: str, asked: dict) -> None:
    """Writes the settings of the tokens to an address, before the tokens.

    Raises:
      InputError: the address is reserved for tokens with other settings, or cannot be written.
    """
    with refusals():
        if Bucket(address).create(_ASKED, storage.as_json(asked)) is None:
            raise InputError(f"--out {address} was begun with other settings: choose an empty prefix")


def _tokenize(settings, out: Path, place: Path | str, given_tokenizer, cache, workers, pool) -> dict[str, Any]:
    """Does what `tokenize` does in the directory `out`. `place`: the value of --out in messages."""
    asked = settings.asked(given_tokenizer)
    if (meta := _whole(out, asked)) is not None:
        return meta
    _state(out, asked)
    source = corpora.source(settings.spec, cache=cache, valid_bytes=settings.valid_bytes)
    # The pool starts first, so that nothing is written if it cannot start.
    with pool or encoding.in_processes(workers) as encoder, _only_one(out):
        if (meta := _whole(out, asked)) is not None:
            return meta
        state = _state(out, asked)
        text = {"spec": source.spec, "identity": source.identity}
        if state is None:
            state = {"asked": asked, "command": settings.command(place), "text": text, "range_bytes": _RANGE}
            state |= {"fingerprint": None, "splits": {}}
            files.write_unfinished(out, state)
        elif state["text"] != text:
            raise InputError(f"{settings.spec} has changed since {place} was begun: choose another --out")
        fresh = not state["splits"]
        try:
            return _made(settings, out, source, state, given_tokenizer, encoder)
        except InputError:
            if fresh and state["splits"].get("train", {"tokens": 0})["tokens"] < 2:
                files.clear(out)
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; continue with: {state['command']}") from None


def _made(settings, out, source, state, given_tokenizer, encoder) -> dict[str, Any]:
    for leftover in out.glob(".*.tmp"):  # left by a killed process
        leftover.unlink()
    tokenizer = _tokenizer(settings, out, source, state, given_tokenizer)
    # The short split first, so that errors appear early.
    _append("valid", out, source.valid, settings.valid_bytes, state, tokenizer, encoder)
    _append("train", out, source.train, settings.limit, state, tokenizer, encoder)
    sizes = [(out / name).stat().st_size for name in files.SPLITS.values()]
    facts = {
        "spec": source.spec,
        "asked": state["asked"],
        "vocab": settings.vocab,
        "tokens": {split: state["splits"][split]["tokens"] for split in files.SPLITS},
        "text_bytes": {split: state["splits"][split]["bytes"] for split in files.SPLITS},
        "validation": source.validation,
        "tokenizer_fingerprint": tokenizer.fingerprint,
    }
    with _Bar("digests", sum(sizes), "B") as bar:
        meta = files.write_meta(out, facts, bar)
    (out / files.UNFINISHED).unlink()
    return meta


def _whole(out: Path, asked: dict) -> dict | None:
    """The record of a complete directory after full verification; None if it is not complete."""
    if not (out / files.META).exists():
        return None
    meta = files.read(out)
    _check_same(out, asked, meta["asked"])
    with _Bar("verified", sum(meta["files"][name]["bytes"] for name in files.SPLITS.values()), "B") as bar:
        files.verify(out, bar)
    (out / files.UNFINISHED).unlink(missing_ok=True)  # left by a process that was killed at its end
    return meta


def _state(out: Path, asked: dict) -> dict | None:
    """The saved state of an unfinished directory; None if it is empty or does not exist."""
    if not out.exists():
        return None
    if not out.is_dir():
        raise InputError(f"--out {out} is not a directory: choose another path")
    if (out / files.UNFINISHED).exists():
        state = files.unfinished(out)
        if not _is_state(state):
            path = out / files.UNFINISHED
            raise InputError(f"{path} is not the progress of a tokenization by this version; {files.BEGIN_AGAIN}")
        _check_same(out, asked, state["asked"])
        return state
    if other := sorted(p.name for p in out.iterdir() if not p.name.endswith(".tmp")):
        raise InputError(f"--out {out} holds other files ({other[0]}): choose an empty directory")
    return None


def _is_state(state: dict) -> bool:
    """True if a saved state is valid and can be continued."""
    if not fits(state, _STATE) or not state["range_bytes"]:
        return False
    return all(fits(at, _SPLIT) for at in state["splits"].values())


def _check_same(out: Path | str, asked: dict, state: dict) -> None:
    for name, value in asked.items():
        if state.get(name) != value:
            difference = f"{name.replace('_', '-')} {state.get(name)}, not {value}"
            raise InputError(
                f"--out {out} holds tokens made with other settings ({difference}): choose another directory"
            )


@contextlib.contextmanager
def _only_one(out: Path) -> Iterator[None]:
    """Locks the directory, which is created if it does not exist; an empty directory is removed at the end."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        directory = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"cannot write --out {out}: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"--out {out} is being written by another process: wait, or choose another directory"
            ) from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                out.rmdir()
    finally:
        os.close(directory)


def _given(path: Path, vocab: int) -> Tokenizer:
    try:
        tokenizer = Tokenizer.load(path)
        whole = {bytes([byte]) for byte in range(256)} <= set(tokenizer.pieces)
    except OSError as error:
        raise InputError(f"cannot read --tokenizer {path}: {error.strerror or error}") from error
    except Exception:  # a damaged model can raise any exception
        whole = False
    if not whole:
        raise InputError(f"--tokenizer {path} is not a tokenizer made by lvp, or it is damaged")
    if tokenizer.vocab_size != vocab:
        raise InputError(
            f"--tokenizer {path} has {tokenizer.vocab_size} tokens, but --vocab says {vocab}: pass "
            f"--vocab {tokenizer.vocab_size}, or another tokenizer"
        )
    return tokenizer


def _tokenizer(settings, out: Path, source: documents.Source, state: dict, given: Tokenizer | None) -> Tokenizer:
    path = out / files.TOKENIZER
    if state["fingerprint"] is not None:
        with contextlib.suppress(Exception):  # a damaged model can raise any exception
            tokenizer = Tokenizer.load(path)
            if tokenizer.fingerprint == state["fingerprint"]:
                return tokenizer
        raise InputError(f"{path} is not the tokenizer with which {out} was begun; {files.BEGIN_AGAIN}")
    if given is not None:
        tokenizer = given
    else:
        text = documents.head(source.train, settings.tokenizer_bytes)
        _say(f"training a tokenizer of {settings.vocab} tokens on {len(text):,} bytes")
        tokenizer = Tokenizer.train(text, settings.vocab)
    write_whole(path, tokenizer.model)
    state["fingerprint"] = tokenizer.fingerprint
    files.write_unfinished(out, state)
    return tokenizer


def _append(
    split: str,
    out: Path,
    text: documents.Documents,
    limit: int | None,
    state: dict,
    tokenizer: Tokenizer,
    encoder: encoding.Encoder,
) -> None:
    """Encodes the rest of a split, up to `limit` bytes."""
    at = state["splits"].setdefault(split, {"ranges": 0, "bytes": 0, "tokens": 0, "sha256": files.EMPTY, "done": False})
    path, dtype = out / files.SPLITS[split], files.dtype_of(tokenizer.vocab_size)
    if at["done"] and path.exists():
        files.check_tokens(path, tokenizer.vocab_size, at["tokens"], files.BEGIN_AGAIN)
        files.check_digest(path, at["sha256"])
        return
    with files.Appender(path, dtype, at["tokens"], at["sha256"]) as file:
        ranges = text.ranges(state["range_bytes"])
        finished = sum(part.count for part in islice(ranges, at["ranges"]))
        if text.num_bytes is None:
            progress = _Bar(split, text.count, "doc", finished)
        else:
            progress = _Bar(split, min(limit or text.num_bytes, text.num_bytes), "B", at["bytes"])
        with progress as bar:
            saved = time.monotonic()
            for part, (ids, num_bytes) in () if at["done"] else encoder(tokenizer, dtype, ranges):
                last = False
                if limit is not None and at["bytes"] + num_bytes >= limit:
                    last, beginning = True, splits.cut(b"".join(part.blocks()), limit - at["bytes"])
                    ids, num_bytes = tokenizer.encode(beginning), len(beginning)
                file.append(ids)
                at |= {"ranges": at["ranges"] + 1, "bytes": at["bytes"] + num_bytes}
                at |= {"tokens": file.count, "sha256": file.digest()}
                bar(part.count if text.num_bytes is None else num_bytes)
                if last:
                    break
                if time.monotonic() - saved >= _SAVE_SECONDS:
                    file.sync()
                    files.write_unfinished(out, state)
                    saved = time.monotonic()
        if file.count < 2:
            name = {"train": "training", "valid": "validation"}[split]
            problem = f"the {name} text is too small: {at['bytes']} bytes make {file.count} tokens"
            raise InputError(f"{problem}; give a longer text or a higher limit")
        at["done"] = True
        file.sync()
        files.write_unfinished(out, state)
        file.finish()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Bar:
    """A progress bar on a terminal, or a line every 30 s in a log file. Call it with the additional progress."""

    def __init__(self, what: str, total: int | None, unit: str, done: int = 0):
        self.terminal = sys.stderr.isatty()
        self.bar = tqdm(
            desc=what,
            total=total,
            initial=done,
            unit=unit,
            unit_scale=True,
            ncols=None if self.terminal else min(100, shutil.get_terminal_size().columns),
            file=sys.stderr if self.terminal else io.StringIO(),
            mininterval=0.1 if self.terminal else _LOG_SECONDS,
        )
        self.shown = time.monotonic()

    def __enter__(self):
        return self

    def __call__(self, more: int) -> None:
        self.bar.update(more)
        if not self.terminal and time.monotonic() - self.shown > _LOG_SECONDS:
            self._line()

    def __exit__(self, kind, *_):
        if not self.terminal and kind is None:
            self._line()
        self.bar.close()

    def _line(self):
        _say(str(self.bar))
        self.shown = time.monotonic()
