"""CIFAR-10 (Krizhevsky 2009): its official files, in the binary and the Python version, and their images."""

import io
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lvp.data.images import pickled
from lvp.data.text import downloads
from lvp.data.tokens import storage
from lvp.errors import InputError

ARCHIVE_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"  # as TFDS has it
CLASSES = 10
# Of Kosson, Messmer & Jaggi 2024, appendix A.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
IMAGES_PER_FILE = 10_000
_PIXELS = 32 * 32 * 3
_FOLDERS = (".", "cifar-10-batches-bin", "cifar-10-batches-py")
_WAY_OUT = "pass cifar10:DIR, a directory with data_batch_1.bin … test_batch.bin or data_batch_1 … test_batch"

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Files = Mapping[str, Sequence[Path]]


def split_files(directory: Path) -> Files:
    """The files of "train" and "test", in `directory` or in the folder that the official archives make there.

    Raises InputError, naming what is missing.
    """
    if not directory.is_dir():
        raise InputError(f"no CIFAR-10 at {directory}: no such directory; {_WAY_OUT}")
    for folder in _FOLDERS:
        for suffix in (".bin", ""):
            train = [directory / folder / f"data_batch_{i}{suffix}" for i in range(1, 6)]
            files = {"train": train, "test": [directory / folder / f"test_batch{suffix}"]}
            paths = [path for split in files.values() for path in split]
            missing = [path for path in paths if not path.is_file()]
            if missing == paths:
                continue
            if missing:
                raise InputError(f"CIFAR-10 in {directory} is incomplete: no file {missing[0]}")
            return files
    raise InputError(f"no CIFAR-10 in {directory}; {_WAY_OUT}")


def source(files: Files | None) -> str:
    """Names what `read` gives: the content of the files, or of the archive for None."""
    if files is None:
        return storage.digest(ARCHIVE_SHA256.encode())
    return storage.digest(*(storage.read_input(path) for split in files.values() for path in split))


def read(files: Files) -> Arrays:
    """(train images, train labels, test images, test labels), in the files' order: uint8 [N, 32, 32, 3] and int32 [N].

    Raises InputError naming a file that cannot be read, is truncated, or holds something else.
    """
    parts: list[np.ndarray] = []
    for split in ("train", "test"):
        batches = [_batch(path) for path in files[split]]
        pixels, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        # The files hold planes of red, green and blue.
        parts += [np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.astype(np.int32)]
    train, train_labels, test, test_labels = parts
    return train, train_labels, test, test_labels


def read_released(cache: Path) -> Arrays:
    """`read` of the release, downloaded, checked, and kept under `cache` by its TFDS builder.

    Raises InputError if it cannot be downloaded or the cache cannot be written.
    """
    directory = cache / "downloads" / "cifar-10-batches-bin"
    archive = downloads.fetch(ARCHIVE_URL, ARCHIVE_SHA256, what="CIFAR-10", way_out=_WAY_OUT)
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            wanted = member.isfile() and member.name.endswith(".bin")
            content = members.extractfile(member) if wanted else None
            if content is not None:
                storage.write_file(directory / Path(member.name).name, content.read())
    from lvp.data.images import cifar10_builder  # takes seconds, and only the first use of the images needs it

    arrays = read(split_files(directory))
    data_dir = cache / "tfds" / source(None)[:32]
    shutil.rmtree(data_dir, ignore_errors=True)  # of a process that was stopped before the entry was written
    kept = cifar10_builder.prepared(arrays, data_dir)
    if not all(np.array_equal(one, other) for one, other in zip(kept, arrays, strict=True)):
        raise RuntimeError(f"the records in {data_dir} are not the images of {directory}")
    return kept


def _batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 [N, 3072] and labels [N] of one file."""
    pixels, labels = (_binary if path.suffix == ".bin" else _pickled)(path)
    if labels.size and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise InputError(f"{path} is not CIFAR-10: its labels go from {labels.min()} to {labels.max()}")
    return pixels, labels


def _binary(path):
    content, record = storage.read_input(path), 1 + _PIXELS
    if len(content) != IMAGES_PER_FILE * record:
        raise InputError(
            f"{path} has {len(content)} bytes, not the {IMAGES_PER_FILE * record} of {IMAGES_PER_FILE} images: "
            "truncated, or not CIFAR-10's binary version"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return records[:, 1:], records[:, 0]


def _pickled(path):
    content = storage.read_input(path)
    try:
        batch = pickled.read(content)
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    except Exception as error:  # damaged pickles raise whatever their bytes happen to mean
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is truncated, or not a batch of CIFAR-10's Python version ({reason})") from error
    expected = (IMAGES_PER_FILE, _PIXELS)
    if pixels.shape != expected or pixels.dtype != np.uint8 or labels.shape != expected[:1] or labels.dtype.kind != "i":
        raise InputError(
            f"{path} holds {pixels.dtype} {pixels.shape} and labels {labels.shape}, not {IMAGES_PER_FILE} images of "
            "CIFAR-10's Python version"
        )
    return pixels, labels
