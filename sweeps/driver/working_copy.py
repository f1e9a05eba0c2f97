"""The working copy of a sweep whose directory is in a bucket.

The bucket holds the sweep. Each command works in a temporary directory with a copy of its files, so that all other code
uses a local directory. Which process writes which objects:

    records/HASH.jsonl          the worker, before the local file, and only if the object does not exist
    checkpoints/HASH/STEP.tar   the worker, after each save; one object is one step, so it is whole or absent
    .lease                      the driver (`sweeps.driver.lease`)
    all other files             the driver, when they have changed: manifest.json only over the version that it has read
"""

import contextlib
import logging
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from lvp.errors import InputError
from lvp.files import ABSENT, listed, write_whole
from lvp.files.buckets import Bucket, BucketError, Object, Version, is_address

log = logging.getLogger(__name__)
_PREFIX = "lvp-bucket-"  # of the names of working copies
_MARK = ".bucket"  # file of a working copy that holds the address
_MANIFEST = "manifest.json"
# Files that are read by their names, because a listing may be stale.
_NAMED = (
    _MANIFEST,
    "manifest.copy.json",
    "experiment.py",
    "lanes.json",
    "session.json",
    "sessions.jsonl",
    "trials.jsonl",
    "failures.jsonl",
)
_FOLDERS = ("records/", "progress/", "curves/")  # folders whose files are read
_OTHERS = ("records", "checkpoints")  # folders that the driver does not upload


class WorkingCopy:
    """The local directory of a sweep in a bucket.

    Attributes:
      out: the local directory.
      bucket: the objects of the sweep.
      names: the names in the bucket's top folder at the last `pull`.
      problem: why this driver must stop (`sweeps.driver.lease`), in one line; None if it need not.
    """

    def __init__(self, out: Path, bucket: Bucket):
        self.out, self.bucket = out, bucket
        self.names: set[str] = set()
        self.problem: str | None = None
        self._versions: dict[str, Version] = {}  # of the objects that were read or written
        self._stamps: dict[str, tuple[int, int]] = {}  # of the local files that equal their objects
        self._lock = threading.Lock()

    def pull(self) -> None:
        """Downloads manifest, logs, progress and records that have changed."""
        self.names = {entry.name for entry in self.bucket.listed()}
        entries = [entry for folder in _FOLDERS for entry in self.bucket.listed(folder)]
        new = [e.name for e in entries if not e.name.endswith("/") and self._versions.get(e.name) != e.version]
        with self._lock, ThreadPoolExecutor(16) as pool:
            for name, answer in zip([*_NAMED, *new], pool.map(self.bucket.read, [*_NAMED, *new]), strict=True):
                self._store(name, answer)

    def _store(self, name: str, answer: tuple[bytes, Object] | None) -> None:
        """Writes a downloaded object to its local file, with the object's time. Removes a file without an object."""
        path = self.out / name
        if answer is None:
            path.unlink(missing_ok=True)
            self._versions.pop(name, None)
            return
        content, entry = answer
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content)
        os.utime(path, (entry.modified, entry.modified))
        self._versions[name], self._stamps[name] = entry.version, _stamp(path)

    def push(self) -> None:
        """Uploads the driver's files that have changed, and deletes the objects of removed files.

        Raises:
          RuntimeError: another driver has the lease or has written the manifest.
        """
        with self._lock:
            if self.problem:
                raise RuntimeError(self.problem)
            present = {}
            for path in sorted(self.out.rglob("*")):
                below = path.relative_to(self.out)
                with contextlib.suppress(FileNotFoundError):  # temporary and progress files come and go
                    if path.is_file() and not any(p[0] == "." for p in below.parts) and below.parts[0] not in _OTHERS:
                        present[str(below)] = _stamp(path)
            for name, stamp in present.items():
                if self._stamps.get(name) != stamp:
                    with contextlib.suppress(FileNotFoundError):
                        self._upload(name, (self.out / name).read_bytes())
                        self._stamps[name] = stamp
            removed = [
                n for n in self._stamps if n not in present and not n.startswith(tuple(f"{o}/" for o in _OTHERS))
            ]
            self.bucket.delete(removed)
            for name in removed:
                del self._stamps[name]

    def _upload(self, name: str, content: bytes) -> None:
        if name != _MANIFEST:
            return self.bucket.write(name, content)
        before = self._versions.get(name)
        after = self.bucket.create(name, content) if before is None else self.bucket.replace(name, content, before)
        if after is None:
            raise RuntimeError(f"{self.bucket.address} was changed by another driver: this driver stops")
        self._versions[name] = after

    # Records

    def commit_record(self, path: Path, content: str) -> bytes:
        """Creates the record's object, and returns its content: the given content, or that of an earlier record of the
        lane."""
        name, text = f"records/{path.name}", content.encode()
        while self.bucket.create(name, text) is None:
            if earlier := self.bucket.read(name):
                return earlier[0]
        return text

    def fetch_records(self, paths: Iterable[Path]) -> None:
        """Downloads the records that have no local file."""
        for path in paths:
            if not path.exists() and (answer := self.bucket.read(f"records/{path.name}")):
                self._store(f"records/{path.name}", answer)

    def rename_damaged(self, path: Path, damaged: Path) -> None:
        """Copies the object of a damaged record to the new name, and then deletes it."""
        self.bucket.write(f"records/{damaged.name}", path.read_bytes())
        self.bucket.delete([f"records/{path.name}"])

    # Checkpoints

    def save_checkpoints(self, folder: Path) -> None:
        """Uploads the new steps in a lane's directory of checkpoints. Then deletes the objects of all other steps."""
        prefix = f"checkpoints/{folder.name}/"
        steps = {f"{prefix}{path.name}.tar": path for path in _steps(folder)}
        for name, path in steps.items():
            if self._stamps.get(name) == (stamp := _stamp(path)):
                continue
            with tempfile.TemporaryFile(dir=self.out) as file:
                with tarfile.open(fileobj=file, mode="w") as tar:
                    tar.add(path, arcname=path.name)
                file.seek(0)
                self.bucket.write(name, file)
            self._stamps[name] = stamp
        self.bucket.delete(e.name for e in self.bucket.listed(prefix) if e.name not in steps)

    def fetch_checkpoints(self, folder: Path) -> None:
        """Downloads the steps that a lane's directory of checkpoints lacks. A damaged object is logged and skipped."""
        for entry in self.bucket.listed(f"checkpoints/{folder.name}/"):
            step = folder / Path(entry.name).name.removesuffix(".tar")
            if not entry.name.endswith(".tar") or step.exists():
                continue
            with (
                tempfile.TemporaryDirectory(dir=self.out, prefix=".") as place,
                tempfile.TemporaryFile(dir=place) as file,
            ):
                if not self.bucket.download(entry.name, file):
                    continue
                file.seek(0)
                try:
                    with tarfile.open(fileobj=file, mode="r:") as tar:
                        tar.extractall(place, filter="data")
                    folder.mkdir(exist_ok=True)
                    os.replace(Path(place) / step.name, step)
                    self._stamps[entry.name] = _stamp(step)
                except (tarfile.TarError, *ABSENT, ValueError) as error:
                    log.warning("%s/%s is damaged and is skipped: %s", self.bucket.address, entry.name, error)

    def drop_checkpoints(self, folder: Path) -> None:
        """Deletes all checkpoints of a lane from the bucket."""
        self.bucket.delete([entry.name for entry in self.bucket.listed(f"checkpoints/{folder.name}/")])


def _steps(folder: Path) -> list[Path]:
    """The directories of the complete steps of a lane."""
    return [path for path in listed(folder) if path.name.removeprefix("step_").isdigit()]


def _stamp(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_mtime_ns, state.st_size


@cache
def get(out: Path) -> WorkingCopy | None:
    """The working copy in a local directory, the same object for the whole process; None for an ordinary directory."""
    if not out.name.startswith(_PREFIX):  # other directories may be untrusted: their files must not name a bucket
        return None
    try:
        address = (out / _MARK).read_text()
    except FileNotFoundError:
        return None
    return WorkingCopy(out, Bucket(address))


def location(out: Path) -> Path | str:
    """The place of a sweep for messages and commands: the address of its bucket, else its directory."""
    return copy.bucket.address if (copy := get(out)) else out


@contextlib.contextmanager
def opened(out: str | Path) -> Iterator[Path]:
    """The directory of a sweep during the block: `out` itself, or a working copy of an address in a bucket.

    Raises:
      InputError: the address or the credentials cannot be used.
    """
    if not is_address(out):
        yield Path(out)
        return
    bucket = Bucket(str(out))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        (folder / _MARK).write_text(bucket.address)
        copy = get(folder)
        assert copy is not None  # the mark was written
        with refusals():
            copy.pull()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raises an InputError if the server refuses a request in the block, before anything is trained."""
    try:
        yield
    except BucketError as error:
        if error.refused:
            raise InputError(error) from None
        raise


def check(address: str) -> None:
    """Raises InputError if the bucket of an address cannot be read."""
    with refusals():
        Bucket(address).listed()


def pull(out: Path) -> None:
    """Downloads the changed files of a working copy. Does nothing in an ordinary directory."""
    if copy := get(out):
        copy.pull()


def push(out: Path) -> None:
    """Uploads the changed files of a working copy. Does nothing in an ordinary directory."""
    if copy := get(out):
        with refusals():
            copy.push()
