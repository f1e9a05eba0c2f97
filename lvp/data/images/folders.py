"""A user's own images: a folder per class, in train/ and test/."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lvp.errors import InputError
from lvp.files import storage

SPLITS = ("train", "test")
_SUFFIXES = (".png", ".jpg", ".jpeg")
_MODES = ("L", "RGB")

Files = Mapping[str, Mapping[str, list[Path]]]


def split_files(directory: Path) -> Files:
    """Split → class → image files; classes and files are sorted by name. Hidden files (".…") are skipped.

    Raises InputError, with the path, for a missing, unreadable or empty folder; a file outside of a class folder or
    without an image suffix (no file is left out silently); a class that only one split has; fewer than two classes.
    """
    classes = {}
    for split in SPLITS:
        classes[split] = {path.name: _images(path) for path in _entries(directory / split)}
    for split, other_split in (SPLITS, SPLITS[::-1]):
        for name in classes[split]:
            if name not in classes[other_split]:
                problem = f"{directory / other_split} has no class {name!r}, which {directory / split} has"
                raise InputError(f"{problem}: add it, or remove it there")
    if len(classes["train"]) < 2:
        raise InputError(f"{directory / 'train'} must hold a folder for each of at least two classes")
    return classes


def source(files: Files) -> str:
    """A key of the content that `read` returns: classes, file names, and their content."""
    parts = []
    for split, classes in files.items():
        for name, paths in classes.items():
            for path in paths:
                content = hashlib.sha256(storage.read_input(path)).digest()
                parts += [split.encode(), name.encode(), path.name.encode(), content]
    return storage.digest(*parts)


def read(files: Files) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train images, train labels, test images, test labels): uint8 [N, H, H, C] and int32 [N].

    C is 1 for grey and 3 for colour. A label is the index of its class among the sorted classes. Raises InputError,
    with the file's name, for a file that is not an image, is neither grey nor RGB (8 bits), is not square, or differs
    in shape from the first image.
    """
    parts, first = [], None
    for classes in files.values():
        images, labels = [], []
        for label, paths in enumerate(classes.values()):
            for path in paths:
                image = _decoded(path)
                first = first or (path, image.shape)
                if image.shape != first[1]:
                    problem = f"{path} is {_named(image.shape)}, but {first[0]} is {_named(first[1])}"
                    raise InputError(f"{problem}: give all images the same shape")
                images.append(image)
                labels.append(label)
        parts += [np.stack(images), np.asarray(labels, np.int32)]
    train, train_labels, test, test_labels = parts
    return train, train_labels, test, test_labels


def _entries(directory: Path) -> list[Path]:
    try:
        entries = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"cannot read {directory}: {error.strerror or error}") from error
    return entries


def _images(directory: Path) -> list[Path]:
    paths = _entries(directory)
    for path in paths:
        if not path.is_file() or path.suffix.lower() not in _SUFFIXES:
            raise InputError(f"{path} is not an image file ({', '.join(_SUFFIXES)}): move it out of the folder")
    if not paths:
        raise InputError(f"{directory} holds no image: add image files, or delete the folder")
    return paths


def _decoded(path: Path) -> np.ndarray:
    from PIL import Image

    content = storage.read_input(path)
    try:
        with Image.open(io.BytesIO(content)) as image:
            pixels, mode = np.asarray(image), image.mode
    except Exception as error:  # damaged files can raise any exception
        raise InputError(f"{path} cannot be read as an image: it is damaged or truncated") from error
    if mode not in _MODES:
        raise InputError(f"{path} has the mode {mode}; convert it to L (grey) or RGB")
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    if pixels.shape[0] != pixels.shape[1]:
        raise InputError(f"{path} is not square: it is {_named(pixels.shape)}; crop or pad it")
    return pixels


def _named(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{width} × {height} with {channels} channel{'s' if channels > 1 else ''}"
