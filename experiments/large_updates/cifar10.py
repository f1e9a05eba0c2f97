"""Reads the images of CIFAR-10 (Krizhevsky 2009) from the official files of the binary version."""

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lvp.data.text import downloads
from lvp.errors import InputError
from lvp.files import storage

ARCHIVE_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"  # TFDS states the same
CLASSES = 10
# Per channel of pixels in [0, 1]: Kosson, Messmer & Jaggi 2024, appendix A.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
IMAGES_PER_FILE = 10_000
_PIXELS = 32 * 32 * 3
_FOLDERS = (".", "cifar-10-batches-bin")
_PYTHON_FILES = ("data_batch_1", "cifar-10-batches-py/data_batch_1")
_REMEDY = "pass cifar10:DIR, a directory with data_batch_1.bin … test_batch.bin"

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Files = Mapping[str, Sequence[Path]]


def split_files(directory: Path) -> Files:
    """The files of "train" and "test" in `directory`, or in the folder that the official archive creates there.

    Raises:
      InputError: the directory or a file is missing, or the directory holds the Python version of the data set.
    """
    if not directory.is_dir():
        raise InputError(f"no CIFAR-10 at {directory}: no such directory; {_REMEDY}")
    for folder in _FOLDERS:
        train = [directory / folder / f"data_batch_{i}.bin" for i in range(1, 6)]
        files = {"train": train, "test": [directory / folder / "test_batch.bin"]}
        paths = [path for split in files.values() for path in split]
        missing = [path for path in paths if not path.is_file()]
        if missing == paths:
            continue
        if missing:
            raise InputError(f"CIFAR-10 in {directory} is incomplete: no file {missing[0]}; unpack {ARCHIVE_URL} again")
        return files
    if any((directory / name).is_file() for name in _PYTHON_FILES):
        raise InputError(
            f"{directory} holds CIFAR-10's Python version, which lvp does not read; unpack {ARCHIVE_URL} instead"
        )
    raise InputError(f"no CIFAR-10 in {directory}; {_REMEDY}")


def source(files: Files | None) -> str:
    """A digest of the images: of the content of `files`, or of the official archive for None.

    Raises:
      InputError: a file cannot be read.
    """
    if files is None:
        return storage.digest(ARCHIVE_SHA256.encode())
    return storage.digest(*(storage.read_input(path) for split in files.values() for path in split))


def read(files: Files) -> Arrays:
    """(train images, train labels, test images, test labels), in the order of the files.

    Images are uint8 [N, 32, 32, 3], labels int32 [N].

    Raises:
      InputError: a file cannot be read, is truncated, or is not CIFAR-10. The error names the path.
    """
    parts: list[np.ndarray] = []
    for split in ("train", "test"):
        batches = [_batch(path) for path in files[split]]
        pixels, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        # A file stores the red, green and blue planes of an image one after the other.
        parts += [np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.astype(np.int32)]
    train, train_labels, test, test_labels = parts
    return train, train_labels, test, test_labels


def read_released(cache: Path) -> Arrays:
    """Downloads and verifies the official release, keeps it under `cache`, and returns its images as `read` does.

    Raises:
      InputError: the release cannot be downloaded, or the cache cannot be written.
    """
    directory = cache / "downloads" / "cifar-10-batches-bin"
    archive = downloads.fetch(ARCHIVE_URL, ARCHIVE_SHA256, what="CIFAR-10", way_out=_REMEDY)
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            is_data = member.isfile() and member.name.endswith(".bin")
            content = members.extractfile(member) if is_data else None
            if content is not None:
                storage.write_file(directory / Path(member.name).name, content.read())
    return read(split_files(directory))


def _batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The pixels, uint8 [N, 3072], and the labels [N] of one file."""
    content, record_bytes = storage.read_input(path), 1 + _PIXELS
    if len(content) != IMAGES_PER_FILE * record_bytes:
        raise InputError(
            f"{path} has {len(content)} bytes, but {IMAGES_PER_FILE} images have {IMAGES_PER_FILE * record_bytes}: it "
            f"is truncated, or not CIFAR-10's binary version; unpack {ARCHIVE_URL} again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record_bytes)
    pixels, labels = records[:, 1:], records[:, 0]
    if labels.max() >= CLASSES:
        raise InputError(f"{path} is not CIFAR-10: labels must be below {CLASSES}, got {labels.max()}; {_REMEDY}")
    return pixels, labels
