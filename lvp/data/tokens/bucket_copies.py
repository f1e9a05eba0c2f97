"""Local copies of token directories in buckets. Training maps token files into memory, so they are downloaded whole."""

from pathlib import Path

from lvp.data.tokens import files
from lvp.errors import InputError
from lvp.files import storage
from lvp.files.buckets import Bucket, refusals


def local_copy(address: str, vocab: int, cache: Path) -> Path:
    """Returns a local directory with the tokens at an address, or in its folder `vocab`, and downloads the files that
    the directory lacks. If the tokens in the bucket change, the next call makes another directory.

    Raises:
      InputError: there are no complete tokens, the server refuses, or the cache cannot be locked.
      OSError: a file cannot be written, or the server does not answer.
    """
    with refusals():
        bucket = Bucket(address)
        if (meta := bucket.read(files.META)) is None:
            bucket = Bucket(f"{bucket.address}/{vocab}")
            meta = bucket.read(files.META)
        if meta is None:
            command = f"python -m lvp tokenize SPEC --vocab {vocab} --out {address}"
            raise InputError(f"no complete tokens at {address}; `{command}` makes them")
        folder = cache / "tokens" / storage.digest(bucket.address.encode(), meta[0])[:32]
        if not (folder / files.META).exists():
            with storage.download_lock(folder):
                names = [name for name in (files.TOKENIZER, *files.SPLITS.values()) if not (folder / name).exists()]
                bucket.fetch([*names, files.META], folder)
    return folder
