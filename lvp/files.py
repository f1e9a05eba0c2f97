"""Files that stand whole or not at all, and where those go that can be made again."""

import os
import secrets
from pathlib import Path


def cache_dir() -> Path:
    """Where corpora, tokenizers and compiled programs are kept: $LVP_CACHE, else ~/.cache/lvp."""
    return Path(os.environ.get("LVP_CACHE", Path.home() / ".cache" / "lvp")).absolute()


def sync_directory(path: Path) -> None:
    """Has the names in a directory on disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file under a temporary name beside it, syncs it to disk, renames it, and syncs the directory: whoever
    reads `path`, and whenever the machine dies, it is the old file or the new one. Makes the directories above it.

    Raises OSError where the file system refuses, and leaves nothing behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)
