"""Local copies of token directories in buckets. Training maps token files into memory, so they are downloaded whole."""

import os
import secrets
from pathlib import Path
from typing import IO, cast

from tqdm import tqdm

from lvp.data.tokens import storage
from lvp.errors import InputError
from lvp.files import buckets, write_whole
from lvp.files.buckets import Bucket, BucketFile, Object

_COMPLETE = ".complete"  # the file that completes a local copy


def copied(address: str, cache: Path) -> Path:
    """Returns a local directory with the objects below an address, and downloads the objects that it lacks.

    The directory is named after the objects' versions: after a change of an object, another directory is made.

    Raises:
      InputError: there is no object, the server refuses, or the cache cannot be written.
    """
    files = buckets.files(address)
    versions = [[str(file), entry.size, dict(entry.version)] for file, entry in files]
    folder = cache / "buckets" / storage.digest(storage.as_json(versions))[:32]
    if not (folder / _COMPLETE).exists():
        with storage.locked(folder), buckets.refusals():
            for file, entry in files:
                _download(file, entry, folder / entry.name)
            write_whole(folder / _COMPLETE, b"")
    return folder


def _download(file: BucketFile, entry: Object, path: Path) -> None:
    """Downloads an object, unless an interrupted call has downloaded it."""
    if ".." in path.parts:
        raise InputError(f"{file}: the name leaves its directory; rename the object")
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as local:
            progress = tqdm.wrapattr(local, "write", total=entry.size, desc=f"download {entry.name}", leave=False)
            with progress as counted:
                whole = Bucket(file.address).download(file.name, cast(IO[bytes], counted))
        if not whole or temporary.stat().st_size != entry.size:
            raise InputError(f"{file} has changed during the download; start again")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
