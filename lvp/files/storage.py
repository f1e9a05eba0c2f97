"""The cache directory and its files: written atomically, verified when read, made by one process at a time.

An *entry* is a directory of files with an `entry.json`, which is written last and contains the digest of every file.
An entry that is read without a lock is therefore complete or absent. A damaged entry counts as absent.

If LVP_CACHE is an address in a bucket, an entry that this machine lacks is downloaded, and a new entry is uploaded.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from lvp.errors import InputError, shown
from lvp.files.atomic import write_whole
from lvp.files.buckets import Bucket, BucketError, is_address, refusals, split
from lvp.files.machine import ABSENT, machine_error

_ENTRY = "entry.json"


def cache_dir() -> Path:
    """The directory of corpora, tokenizers and compiled programs: $LVP_CACHE, or ~/.cache/lvp if it is unset or empty.

    If LVP_CACHE is an address in a bucket, the directory is a local copy of it.
    """
    place, local = os.environ.get("LVP_CACHE"), Path.home() / ".cache" / "lvp"
    if place and is_address(place):
        split(place)  # refuses credentials, which the name would repeat
        place = place.rstrip("/")
        name = re.sub(r"\W+", "-", place)  # the digest separates addresses that give the same name
        return local / "buckets" / f"{name}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    return Path(place).absolute() if place else local


def digest(*parts: bytes) -> str:
    """sha256 (hex) over the parts and their lengths; it changes if bytes move from one part to the next."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def as_json(value: Any) -> bytes:
    """The canonical JSON form of a value, for hashing.

    Raises:
      ValueError: the value contains NaN or an infinity.
    """
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def npy(array: np.ndarray) -> bytes:
    """The content of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def load_npy(path: Path, *, mapped: bool = False) -> np.ndarray:
    """The array in a .npy file, in memory or memory-mapped.

    An array of objects is refused, because it contains a pickle, and loading a pickle executes it.

    Raises:
      InputError: the file is missing or damaged, or holds an array of objects.
      OSError: the file cannot be read for another reason than damage (`lvp.files.machine`).
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # a damaged header can raise any exception
        if problem := machine_error(error, path):
            raise problem from error
        raise InputError(f"{path} is not an array of numbers: {error}") from error
    return array if mapped else np.array(array)


def user_path(text: str) -> Path:
    """The absolute path of a user's input, with ~ expanded; it need not exist.

    Raises:
      InputError: the path is invalid, or may not be examined.
    """
    try:
        path = Path(text).expanduser().absolute()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot use the path {shown(text)}: {getattr(error, 'strerror', None) or error}") from error
    return path


def read_input(path: Path) -> bytes:
    """The content of a user's file.

    Raises:
      InputError: the file cannot be read. The error has its name.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def open_lock(path: Path) -> IO[bytes]:
    """Opens a lock file, which is made if it is missing and never truncated.

    Raises:
      OSError: the path is a link, or the file cannot be opened.
    """
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "rb+", buffering=0)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Converts errors of the file system into an InputError about the cache."""
    try:
        yield
    except BucketError:  # an OSError of the server, not of the cache
        raise
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {path}: {reason}; choose another cache directory") from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the exclusive lock of an entry, across processes and threads.

    It waits for the lock, which is released if the holder dies.

    Raises:
      InputError: the parent directory cannot be made or written.
    """
    path = directory.with_name(f".{directory.name}.lock")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open_lock(path)
    with file:
        with _writing(path):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_file(path: Path, content: bytes) -> None:
    """Writes a file as `lvp.files.write_whole` does, and makes the directories of its path.

    Raises:
      InputError: the file cannot be written.
    """
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)


def write_entry(directory: Path, files: Mapping[str, bytes], meta: Mapping) -> None:
    """Writes an entry's files, then its record. Call it under `locked(directory)`.

    Args:
      meta: any JSON object. `read_entry` returns it.

    Raises:
      InputError: a file cannot be written, or the bucket refuses the upload.
      OSError: the upload fails for another reason.
    """
    with _writing(directory):
        for leftover in directory.glob(".*.tmp"):  # left by a killed process; we hold the lock
            leftover.unlink(missing_ok=True)
    for name, content in files.items():
        write_file(directory / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    body = {"files": digests, "meta": dict(meta)}
    write_file(directory / _ENTRY, as_json({**body, "digest": digest(as_json(body))}))
    if bucket := _bucket(directory):
        with refusals():
            bucket.upload(directory, last=_ENTRY)


def _bucket(directory: Path) -> Bucket | None:
    """The objects of an entry in the bucket of LVP_CACHE.

    Returns None if LVP_CACHE is no address, and for a directory outside of the cache.
    """
    address = os.environ.get("LVP_CACHE", "")
    if not is_address(address) or not directory.is_relative_to(cache_dir()):
        return None
    with refusals():
        return Bucket(f"{address.rstrip('/')}/{directory.relative_to(cache_dir()).as_posix()}")


def read_entry(directory: Path) -> dict | None:
    """The meta of a complete and undamaged entry; None if it is absent or damaged. An absent entry is downloaded.

    Raises:
      InputError: the bucket refuses the download, or the cache cannot be written.
      OSError: the bucket does not answer, or the entry cannot be read for another reason than damage
        (`lvp.files.machine`).
    """
    if not (directory / _ENTRY).exists() and (bucket := _bucket(directory)):
        with download_lock(directory), _writing(directory), refusals():
            names = {entry.name for entry in bucket.listed()}
            if _ENTRY in names and not (directory / _ENTRY).exists():
                bucket.fetch([*sorted(names - {_ENTRY}), _ENTRY], directory)
    return _read_entry(directory)


def entry(directory: Path, make: Callable[[], tuple[Mapping[str, bytes], Mapping]]) -> dict:
    """The meta of an entry. One process writes an absent or damaged entry.

    Args:
      make: returns (files, meta) of the entry.

    Raises:
      InputError: the cache cannot be written, or the bucket refuses a request.
      OSError: the bucket does not answer, or the entry cannot be read for another reason than damage
        (`lvp.files.machine`).
    """
    meta = read_entry(directory)
    if meta is None:
        with locked(directory):
            meta = read_entry(directory)
            if meta is None:
                files, made = make()
                write_entry(directory, files, made)
                meta = dict(made)
    return meta


def download_lock(directory: Path) -> contextlib.AbstractContextManager[None]:
    """The lock of an entry's download. It differs from the lock of `locked(directory)`, which the caller may hold."""
    return locked(directory.with_name(f"{directory.name}.download"))


def _read_entry(directory: Path) -> dict | None:
    try:
        record = json.loads((directory / _ENTRY).read_bytes())
        body = {"files": record["files"], "meta": record["meta"]}
        if digest(as_json(body)) != record["digest"]:
            return None
        for name, expected in record["files"].items():
            with open(directory / name, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                    return None
    except (*ABSENT, ValueError, TypeError, KeyError):
        return None
    return record["meta"]
