"""Small files in CIFAR-10's official formats: the binary version, and the Python version as Python 2 wrote it."""

import io
import pickle
import struct
from pathlib import Path

import numpy as np

PER_FILE = 20
NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


class Python2Pickler(pickle._Pickler):
    """Strings become Python 2's byte strings, and NumPy's functions have the names they had then."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    def save_str(self, value):
        self.save_bytes(value.encode("latin1"))

    def save_global(self, obj, name=None):
        module = obj.__module__.replace("numpy._core", "numpy.core")
        self.write(pickle.GLOBAL + f"{module}\n{name or obj.__qualname__}\n".encode())
        self.memoize(obj)

    dispatch |= {bytes: save_bytes, str: save_str, type: save_global, type(len): save_global}


def pickled(value) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def batches(seed=0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name of a file → (pixels uint8 [PER_FILE, 3072], labels)."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (len(NAMES), PER_FILE, 3072), dtype=np.uint8)
    return {name: (pixels[i], rng.integers(0, 10, PER_FILE)) for i, name in enumerate(NAMES)}


def binary(pixels, labels) -> bytes:
    return np.concatenate([labels[:, None].astype(np.uint8), pixels], axis=1).tobytes()


def python(pixels, labels) -> bytes:
    return pickled({"batch_label": "a batch", "labels": labels.tolist(), "data": pixels, "filenames": ["x.png"] * 3})


def write(directory: Path, kind: str, seed=0) -> Path:
    """All files of one version in `directory`, which is returned."""
    directory.mkdir(parents=True, exist_ok=True)
    suffix, content = {"binary": (".bin", binary), "python": ("", python)}[kind]
    for name, batch in batches(seed).items():
        (directory / f"{name}{suffix}").write_bytes(content(*batch))
    return directory
