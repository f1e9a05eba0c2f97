"""WikiText-2 (Merity et al. 2016, arXiv:1609.07843): locating, downloading and caching its files."""

import io
import os
import shutil
import zipfile
from pathlib import Path

from lvp.data.text import downloads, splits
from lvp.data.tokens import storage
from lvp.errors import InputError

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
    """Files of the splits train, valid and (if present) test. Raises InputError if train or valid is missing."""
    if not directory.is_dir():
        raise InputError(f"no WikiText-2 at {directory}: no such directory; {_WAY_OUT}")
    for pattern in _NAMES:
        files = {split: directory / pattern.format(split) for split in ("train", "valid", "test")}
        if files["train"].is_file() and files["valid"].is_file():
            return {split: path for split, path in files.items() if path.is_file()}
    wanted = " or ".join(f"{name.format('train')} + {name.format('valid')}" for name in _NAMES)
    raise InputError(f"no WikiText-2 in {directory}: expected {wanted}")


def download(directory: Path, url: str, sha256: str) -> None:
    """Downloads and verifies the raw release, and writes its files (wiki.train.raw, …) into directory.

    Raises InputError if the download fails or the archive does not have that sha256 (hex).
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
    """(train, valid), byte for byte the files in directory; None uses the result of `find`, or a download.

    On the first call the text passes through the TFDS builder (array_record, kept under cache). Later calls read a
    verified plain copy and do not import TFDS. Raises InputError if the files or the network are missing, or a file is
    empty, binary or not UTF-8.
    """
    directory = directory or find()
    source = storage.digest(ARCHIVE_SHA256.encode())
    if directory is not None:
        files = split_files(directory)
        texts = {split: splits.read(path) for split, path in files.items()}
        for split, content in texts.items():
            if not content:
                raise InputError(f"{files[split]} is empty")
        source = storage.digest(*(part for split in texts for part in (split.encode(), texts[split])))
    entry = cache / "corpora" / f"wikitext2-{source[:32]}"
    if storage.read_entry(entry) is None:
        with storage.locked(entry):
            if storage.read_entry(entry) is None:
                _prepare(entry, directory, cache, source[:32])
    return (entry / "train").read_bytes(), (entry / "valid").read_bytes()


def test(directory: Path | None, *, cache: Path) -> bytes:
    """The test split, byte for byte the file in directory; None uses the result of `find`, or a download.

    Raises InputError as `load` does, and if there is no test file."""
    directory = directory or find()
    if directory is None:
        directory = _downloaded(cache)
    files = split_files(directory)
    if "test" not in files:
        missing = files["train"].name.replace("train", "test")
        raise InputError(f"no test split of WikiText-2 in {directory}: add {missing}")
    if not (content := splits.read(files["test"])):
        raise InputError(f"{files['test']} is empty")
    return content


def _prepare(entry: Path, directory: Path | None, cache: Path, source: str) -> None:
    if directory is None:
        directory = _downloaded(cache)
    from lvp.data.text import wikitext2_builder  # slow to import; only the first use of a corpus needs it

    files = split_files(directory)
    data_dir = cache / "tfds" / source
    shutil.rmtree(data_dir, ignore_errors=True)  # left by a process that was killed before it wrote the entry
    texts = wikitext2_builder.prepared_texts(files, data_dir)
    for split, path in files.items():
        if texts[split] != path.read_bytes():
            raise RuntimeError(f"the records in {data_dir} are not the text of {path}; delete {data_dir}, then retry")
    storage.write_entry(entry, {split: texts[split] for split in ("train", "valid")}, {"source": source})
