"""A small file system that a test can fill."""

import contextlib
import subprocess
from pathlib import Path

import pytest

MEGABYTES = 8


@pytest.fixture
def disk(tmp_path):
    """A file system of `MEGABYTES`. Skips the test if this user cannot mount file systems."""
    where = tmp_path / "disk"
    where.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", where], capture_output=True)
    if made.returncode:
        pytest.skip("this user cannot mount a file system")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


def fill(disk: Path) -> Path:
    """Fills the file system and returns the path of the file that fills it."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 12))
    return filler
