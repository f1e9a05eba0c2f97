"""Image datasets by name: split, cached and fingerprinted arrays on disk."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lvp.errors import InputError
from lvp.experiments.large_updates import cifar10, digits
from lvp.files import storage

_FORMAT = 1  # version of the cached files
_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True)
class Images:
    """Labelled images on disk; a small object that can be sent to another process."""

    train_images: Path  # .npy file of uint8 [num_train, *shape]
    train_labels: Path  # .npy file of int32 [num_train], from 0 to classes − 1
    test_images: Path  # .npy file of uint8 [num_test, *shape]
    test_labels: Path  # .npy file of int32 [num_test], from 0 to classes − 1
    num_train: int  # number of training images
    num_test: int  # number of test images
    shape: tuple[int, int, int]  # (height, width, channels), square
    classes: int  # number of classes
    mean: tuple[float, ...]  # per channel, of pixels from 0 to 1, for `batches.normalise`
    std: tuple[float, ...]  # per channel, of pixels from 0 to 1
    fingerprint: str  # sha256 (hex) over the four arrays; equal for equal images of any origin
    spec: str  # canonical specification (absolute paths)

    def to_dict(self) -> dict:
        """The fields as a JSON object."""
        values = asdict(self) | {name: str(getattr(self, name)) for name in _ARRAYS}
        return values | {name: list(values[name]) for name in ("shape", "mean", "std")}

    @classmethod
    def from_dict(cls, values: Mapping) -> "Images":
        """The inverse of `to_dict`.

        Raises:
          KeyError: the path of an array, `shape`, `mean` or `std` is missing.
          TypeError: another field is missing, or a key is unknown.
        """
        paths = {name: Path(values[name]) for name in _ARRAYS}
        return cls(**{**values, **paths, **{name: tuple(values[name]) for name in ("shape", "mean", "std")}})


class _Source(NamedTuple):
    """The origin of images."""

    spec: str  # canonical specification
    key: str  # sha256 (hex) that changes if the result of `read` changes
    read: Callable[[Path], tuple[np.ndarray, ...]]  # cache directory → the arrays named in _ARRAYS
    classes: int  # number of classes
    moments: tuple[tuple[float, ...], tuple[float, ...]] | None  # mean and std; None computes them from the images


def _digits(argument: str | None) -> _Source:
    if argument is not None:
        raise InputError(f"the images digits take no argument, but got {argument!r}")
    return _Source("digits", digits.source(), lambda cache: digits.read(), digits.CLASSES, None)


def _cifar10(argument: str | None) -> _Source:
    moments = (cifar10.MEAN, cifar10.STD)
    if argument is None:
        return _Source("cifar10", cifar10.source(None), cifar10.read_released, cifar10.CLASSES, moments)
    if not argument:
        raise InputError("the images cifar10: need a directory; write cifar10:DIR")
    path = storage.user_path(argument)
    files = cifar10.split_files(path)
    return _Source(
        f"cifar10:{path}", cifar10.source(files), lambda cache: cifar10.read(files), cifar10.CLASSES, moments
    )


_SOURCES: dict[str, Callable[[str | None], _Source]] = {"digits": _digits, "cifar10": _cifar10}
_FORMS = "digits, cifar10[:DIR]"


def load_images(spec: str, *, cache: Path) -> Images:
    """Loads the images that `spec` names: digits or cifar10[:DIR].

    "digits" is a small set of handwritten digits (`digits`). Its `mean` and `std` are those of its training images.
    "cifar10" downloads the official binary version; "cifar10:DIR" reads it from a directory (`cifar10`). Its `mean` and
    `std` are those of Kosson, Messmer & Jaggi 2024, appendix A.

    The arrays are kept under `cache` and made by one process at a time. A second call reads and verifies them without
    decoding.

    Raises:
      InputError: the name is unknown, a file is missing, truncated or wrong, a download fails, or the cache cannot be
        written. The message is one line.
      OSError: the machine cannot read the cache (`lvp.files.machine`).
    """
    kind, colon, argument = spec.partition(":")
    if kind not in _SOURCES:
        close = difflib.get_close_matches(kind, _SOURCES, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"unknown images {spec!r}; {hint}the images are {_FORMS}")
    source = _SOURCES[kind](argument if colon else None)
    cache = Path(cache).absolute()
    entry = cache / "images" / f"{kind}-{storage.digest(storage.as_json([_FORMAT, source.key]))[:32]}"
    meta = storage.entry(entry, lambda: _made(source, cache))
    paths = {name: str(entry / f"{name}.npy") for name in _ARRAYS}
    return Images.from_dict({**paths, **meta, "classes": source.classes, "spec": source.spec})


def _made(source: _Source, cache: Path) -> tuple[dict[str, bytes], dict]:
    """The files of an entry, and its meta."""
    arrays = source.read(cache)
    contents = {f"{name}.npy": storage.npy(array) for name, array in zip(_ARRAYS, arrays, strict=True)}
    train_images, train_labels, _, test_labels = arrays
    mean, std = source.moments or _moments(train_images)
    meta = {
        "num_train": train_labels.size,
        "num_test": test_labels.size,
        "shape": list(train_images.shape[1:]),
        "mean": list(mean),
        "std": list(std),
        "fingerprint": storage.digest(*contents.values()),
    }
    return contents, meta


def _moments(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels from 0 to 1; a constant channel has standard deviation 1."""
    values = np.arange(256) / 255
    channels = np.moveaxis(images, -1, 0).reshape(images.shape[-1], -1)
    counts = np.stack([np.bincount(channel, minlength=256) for channel in channels]) / channels.shape[1]
    mean = counts @ values
    std = np.sqrt(np.sum(counts * (values - mean[:, None]) ** 2, axis=1))
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())
