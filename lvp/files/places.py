"""A directory, or an address in a bucket, as named files that are whole or absent at any time."""

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lvp.files.atomic import sync_directory, write_whole
from lvp.files.buckets import Bucket, is_address
from lvp.files.machine import ABSENT, listed

ABANDONED = 3600.0  # seconds after which the temporary files of a killed process are removed


class Directory:
    """Files below a local directory.

    Files are written to a temporary name, synced and renamed. Links are not followed when a file is written.
    """

    def __init__(self, place: str | Path):
        self.path = Path(place).absolute()
        self.address = str(self.path)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        try:
            return (self.path / name).read_bytes()
        except ABSENT:
            return None

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, without hidden ones and links to nowhere; an empty list if it does not exist."""
        return [path.name for path in listed(self.path / folder) if path.name[0] != "." and path.exists()]

    def create(self, name: str, content: bytes) -> bool:
        """Writes a file and returns True; returns False if it exists."""
        path = self.place(name)
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        write_whole(temporary, content)
        try:
            os.link(temporary, path)  # unlike a rename, it does not replace a file
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        sync_directory(path.parent)
        return True

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, whether or not it exists."""
        write_whole(self.place(name), content)

    def delete(self, name: str) -> None:
        """Removes a file, or a folder with its content, if it exists."""
        path = self.place(name, make=False)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary directory, for `put_folder`."""
        with tempfile.TemporaryDirectory(dir=self.place("scratch").parent, prefix=".tmp-") as folder:
            yield Path(folder)

    def put_folder(self, name: str, folder: Path, last: str) -> None:
        """Stores the files of a folder in `scratch`.

        A folder that exists stays: another process has stored the same bits.

        Args:
          last: the file that completes the folder.
        """
        path = self.place(name)
        try:
            folder.rename(path)
        except OSError:
            if not path.is_dir():
                raise
        sync_directory(path.parent)

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """A local directory with the files of a folder."""
        yield self.path / name

    def sweep_up(self) -> None:
        """Removes the temporary files of processes that were killed more than an hour ago."""
        for folder in ("", "records", "programs", "failed"):
            for path in listed(self.path / folder):
                with contextlib.suppress(OSError):
                    ours = path.name[0] == "." and (path.name.startswith(".tmp-") or path.suffix == ".tmp")
                    if ours and path.lstat().st_mtime < time.time() - ABANDONED:
                        self.delete(str(path.relative_to(self.path)))

    def place(self, name: str, make: bool = True) -> Path:
        """The path of a name. With `make`, its folder is made.

        Links are refused, because a directory of another user must not lead outside.

        Raises:
          OSError: a folder of the name is a link, or cannot be made.
        """
        path = self.path / name
        inside = [folder for folder in path.parents if self.path in folder.parents]
        for folder in inside:
            if folder.is_symlink():
                raise NotADirectoryError(20, "Is a link, which a sweep does not follow", str(folder))
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        return path


class InBucket:
    """Objects below an address in a bucket. The methods are those of `Directory`."""

    def __init__(self, address: str):
        self.bucket = Bucket(address)
        self.address = self.bucket.address

    def read(self, name: str) -> bytes | None:
        answer = self.bucket.read(name)
        return answer and answer[0]

    def names(self, folder: str = "") -> list[str]:
        entries = self.bucket.listed(f"{folder}/" if folder else "")
        return sorted(entry.name.rstrip("/").rpartition("/")[2] for entry in entries)

    def create(self, name: str, content: bytes) -> bool:
        return self.bucket.create(name, content)

    def write(self, name: str, content: bytes) -> None:
        self.bucket.write(name, content)

    def delete(self, name: str) -> None:
        self.bucket.delete([name, *(f"{name}/{below}" for below in self._below(name))])

    def _below(self, name: str) -> list[str]:
        return [entry.name for entry in Bucket(f"{self.address}/{name}").objects()]

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="lvp-") as folder:
            yield Path(folder)

    def put_folder(self, name: str, folder: Path, last: str) -> None:
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        for file in sorted(files, key=lambda file: file == last):
            with open(folder / file, "rb") as content:
                self.bucket.write(f"{name}/{file}", content)

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        with self.scratch() as place:
            path = place / Path(name).name
            path.mkdir()
            Bucket(f"{self.address}/{name}").fetch(self._below(name), path)
            yield path

    def sweep_up(self) -> None:
        pass


def place_of(place: str | Path) -> Directory | InBucket:
    """The files of a directory or of an address (s3://BUCKET/PREFIX, gs://BUCKET/PREFIX).

    Raises:
      InputError: the address is invalid, its credentials are incomplete, or obstore is not installed.
    """
    return InBucket(str(place)) if is_address(place) else Directory(place)
