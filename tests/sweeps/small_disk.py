"""A small file system that a test can fill."""

import contextlib
import re
import subprocess
from pathlib import Path

import pytest

NEEDS = r"no space left for [\d,]+ bytes: (\S+?); make space$"
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


def named(stderr: str) -> Path:
    """The path in the one-line message about a full file system."""
    assert stderr.count("\n") == 1 and "Traceback" not in stderr, stderr
    match = re.search(NEEDS, stderr.split(" (and")[0].split("; `python")[0].strip())
    assert match, stderr
    return Path(match[1])
