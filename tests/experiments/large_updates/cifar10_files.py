"""Writes small files in CIFAR-10's official binary format."""

from pathlib import Path

import numpy as np

PER_FILE = 20
NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def batches(seed=0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns name of a file → (pixels uint8 [PER_FILE, 3072], labels)."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (len(NAMES), PER_FILE, 3072), dtype=np.uint8)
    return {name: (pixels[i], rng.integers(0, 10, PER_FILE)) for i, name in enumerate(NAMES)}


def binary(pixels, labels) -> bytes:
    return np.concatenate([labels[:, None].astype(np.uint8), pixels], axis=1).tobytes()


def write(directory: Path, seed=0) -> Path:
    """Writes all files of the binary version to `directory` and returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, batch in batches(seed).items():
        (directory / f"{name}.bin").write_bytes(binary(*batch))
    return directory
