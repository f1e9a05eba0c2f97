"""Files of the cache: written whole or not at all, verified when read, made by one process at a time.

An *entry* is a directory of files with an `entry.json` written last, which holds the digest of every file. So
an entry read without a lock is either complete or not there, and a damaged one counts as not there.
"""

import fcntl
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lvp.errors import InputError, shown
from lvp.files import ABSENT, machine_error, write_whole
from lvp.files.private import open_lock

_ENTRY = "entry.json"


def digest(*parts: bytes) -> str:
    """sha256 (hex) over the parts and their lengths, so that moving a border between parts changes it."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def as_json(value: Any) -> bytes:
    """The one JSON form of a value, fit for hashing; NaN and infinities are a ValueError."""
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def npy(array: np.ndarray) -> bytes:
    """The content of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def load_npy(path: Path, *, mapped: bool = False) -> np.ndarray:
    """The numbers in a .npy file, in memory or memory-mapped. A file of objects holds a pickle, which is a program: it
    is refused, and not executed.

    Raises:
      InputError: the file holds no array of numbers.
      OSError: the machine gives no access to the file for now (`lvp.files.machine`).
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # a damaged header can raise any exception
        if problem := machine_error(error, path):
            raise problem from error
        raise InputError(f"{path} is not an array of numbers: {error}") from error
    return array if mapped else np.array(array)


def user_path(text: str) -> Path:
    """The absolute path that a user means, ~ for a home, there or not; InputError for what can be none here."""
    try:
        path = Path(text).expanduser().absolute()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot use the path {shown(text)}: {getattr(error, 'strerror', None) or error}") from error
    return path


def read_input(path: Path) -> bytes:
    """The content of a user's file; InputError naming it if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn whatever the file system refuses into one line about the cache."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {path}: {reason}; choose another cache directory") from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the exclusive lock of an entry (across processes and threads; waits; freed if the holder dies).

    Raises InputError if the directory's parent cannot be made or written.
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
    """`lvp.files.write_whole` with the directories of the path; InputError if the file system refuses."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)


def write_entry(directory: Path, files: Mapping[str, bytes], meta: Mapping) -> None:
    """Write an entry's files, then its record. Call it under `locked(directory)`.

    meta is any JSON object; read_entry gives it back. Raises InputError if the file system refuses.
    """
    with _writing(directory):
        for leftover in directory.glob(".*.tmp"):  # of a process that was killed; the lock is ours
            leftover.unlink(missing_ok=True)
    for name, content in files.items():
        write_file(directory / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    body = {"files": digests, "meta": dict(meta)}
    write_file(directory / _ENTRY, as_json({**body, "digest": digest(as_json(body))}))


def read_entry(directory: Path) -> dict | None:
    """The meta of a complete and undamaged entry; None if it is absent or any byte differs.

    Raises OSError if the machine gives no access to the entry for now (`lvp.files.machine`).
    """
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
