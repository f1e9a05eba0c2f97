"""WikiText-2 (Merity et al. 2016, arXiv:1609.07843): locating, downloading and reading its files."""

import io
import os
import zipfile
from pathlib import Path

from lvp.data.text import downloads, splits
from lvp.errors import InputError
from lvp.files import storage

ARCHIVE_URL = "https://wikitext.smerity.com/wikitext-2-raw-v1.zip"
ARCHIVE_SHA256 = "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11"
_WAY_OUT = "pass wikitext2:DIR or set LVP_WIKITEXT2 to a directory with train.txt and valid.txt"
# Patterns of file names. The second is that of the word-level release, the third that of the raw release.
_NAMES = ("{}.txt", "wiki.{}.tokens", "wiki.{}.raw")
_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[4] / "shared" / "data" / "wikitext-2"


def find() -> Path | None:
    """The directory of a local copy, or None.

    It is $LVP_WIKITEXT2 if set, else ../shared/data/wikitext-2 relative to the root of the checkout, if that exists.
    """
    if named := os.environ.get("LVP_WIKITEXT2"):
        return storage.user_path(named)
    return _BESIDE_THE_CHECKOUT if _BESIDE_THE_CHECKOUT.is_dir() else None


def split_files(directory: Path) -> dict[str, Path]:
    """Files of the splits train, valid and (if present) test.

    Raises:
      InputError: train or valid is missing.
    """
    if not directory.is_dir():
        raise InputError(f"no WikiText-2 at {directory}: no such directory; {_WAY_OUT}")
    for pattern in _NAMES:
        files = {split: directory / pattern.format(split) for split in ("train", "valid", "test")}
        if files["train"].is_file() and files["valid"].is_file():
            return {split: path for split, path in files.items() if path.is_file()}
    wanted = " or ".join(f"{name.format('train')} + {name.format('valid')}" for name in _NAMES)
    raise InputError(f"no WikiText-2 in {directory}: expected {wanted}")


def download(directory: Path, url: str, sha256: str) -> None:
    """Downloads and verifies the raw release, and writes its files (wiki.train.raw, …) into a directory.

    Args:
      sha256: the digest of the archive, in hex.

    Raises:
      InputError: the download fails, the digest differs, or a file cannot be written.
    """
    archive = downloads.fetch(url, sha256, what="WikiText-2", way_out=_WAY_OUT)
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        for split in ("train", "valid", "test"):
            name = f"wiki.{split}.raw"
            storage.write_file(directory / name, members.read(f"wikitext-2-raw/{name}"))


def _downloaded(cache: Path) -> Path:
    """The directory of the raw release in the cache; downloads the release if a file is missing."""
    directory = cache / "downloads" / "wikitext-2-raw-v1"
    with storage.locked(directory):
        if not all((directory / f"wiki.{split}.raw").is_file() for split in ("train", "valid", "test")):
            download(directory, ARCHIVE_URL, ARCHIVE_SHA256)
    return directory


def load(directory: Path | None, *, cache: Path) -> tuple[bytes, bytes]:
    """(train, valid), byte for byte the files in a directory.

    Args:
      directory: None takes the directory of `find`, or a download.
      cache: directory of downloads.

    Raises:
      InputError: a file is missing, empty, binary or not UTF-8, or the download fails.
    """
    train, valid = _texts(directory, cache, "train", "valid")
    return train, valid


def test(directory: Path | None, *, cache: Path) -> bytes:
    """The test split, byte for byte the file in a directory. The arguments are those of `load`.

    Raises:
      InputError: a file is missing, the test file is empty, binary or not UTF-8, or the download fails.
    """
    return _texts(directory, cache, "test")[0]


def _texts(directory: Path | None, cache: Path, *names: str) -> list[bytes]:
    """The texts of the given splits."""
    directory = directory or find() or _downloaded(cache)
    files = split_files(directory)
    if missing := set(names) - set(files):
        name = files["train"].name.replace("train", min(missing))
        raise InputError(f"no {min(missing)} split of WikiText-2 in {directory}: add {name}")
    texts = [splits.read(files[split]) for split in names]
    for split, text in zip(names, texts, strict=True):
        if not text:
            raise InputError(f"{files[split]} is empty")
    return texts
