"""The working copy of a sweep whose directory is in a bucket.

The bucket holds the sweep. Each command works in a temporary directory with a copy of its files, so that all other code
uses a local directory. Workers on the driver's machine use the driver's copy. A worker on another machine makes its own
copy (`sweeps.worker.joined_copy`). Which process writes which objects:

    records/HASH.jsonl          the worker (or the driver with `--reuse`), before the local file, and only if the object
                                does not exist. The driver renames damaged records
    checkpoints/HASH/STEP.tar   the worker, after each save; one object is one step, so it is whole or absent
    progress/*, curves/*        the driver, or a worker with its own copy
    .lease                      the driver (`sweeps.driver.lease`)
    all other files             the driver, `figure` and `track`, when they have changed: manifest.json and session.json
                                only over the version that was read
"""

import contextlib
import logging
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from lvp.files import ABSENT, listed, write_whole
from lvp.files.buckets import Bucket, Object, Version, is_address, refusals

log = logging.getLogger(__name__)
PREFIX = "lvp-bucket-"  # of the names of working copies
_MARK = ".bucket"  # file of a working copy that holds the address
_MANIFEST = "manifest.json"
_CONDITIONAL = (_MANIFEST, "session.json")  # files that a driver without the lease must not replace
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
    "leave",
)
_FOLDERS = ("records/", "progress/", "curves/")  # folders whose files are read
_NOT_PUSHED = ("records/", "checkpoints/")  # folders that `push` does not upload: each write uploads its own object
_LIVE = ("progress/", "curves/")  # folders that a worker with its own copy uploads


class WorkingCopy:
    """The local directory of a sweep in a bucket.

    Attributes:
      out: the local directory.
      bucket: the objects of the sweep.
      names: the names in the bucket's top folder at the last `pull`.
      problem: why this driver must stop (`sweeps.driver.lease`), in one line; None if it may continue.
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
        with self._lock:
            self._download(_NAMED)
        self.pull_workers()

    def pull_workers(self) -> None:
        """Downloads the records, progress and curves that other machines have written, and removes the progress files
        that they have removed."""
        with self._lock:
            entries = {e.name: e for f in _FOLDERS for e in self.bucket.listed(f) if not e.name.endswith("/")}
            # A record does not change, and a worker that shares this copy may have written it.
            self._download(
                [
                    name
                    for name, entry in entries.items()
                    if _tag(self._versions.get(name)) != _tag(entry.version)
                    and not (name.startswith("records/") and (self.out / name).exists())
                ]
            )
            for name in [n for n in list(self._versions) if n.startswith("progress/") and n not in entries]:
                self._store(name, None)

    def follow(self) -> None:
        """Downloads the driver's session and its request to leave. Uploads changed progress and curves."""
        with self._lock:
            self._check_exists()
            self._download(["session.json", "leave"])
            self._push(_LIVE)

    def _download(self, names: Collection[str]) -> None:
        with ThreadPoolExecutor(16) as pool:
            for name, answer in zip(names, pool.map(self.bucket.read, names), strict=True):
                self._store(name, answer)

    def _store(self, name: str, answer: tuple[bytes, Object] | None) -> None:
        """Writes a downloaded object to its local file, with the object's time. Removes a file without an object."""
        path = self.out / name
        if answer is None:
            path.unlink(missing_ok=True)
            self._versions.pop(name, None)
            self._stamps.pop(name, None)
            return
        content, entry = answer
        if entry.version == self._versions.get(name) and path.exists():
            return
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content)
        os.utime(path, (entry.modified, entry.modified))
        self._versions[name], self._stamps[name] = entry.version, _stamp(path)

    def push(self) -> None:
        """Uploads the driver's files that have changed, and deletes the objects of removed files.

        Raises:
          RuntimeError: the lease was lost, or another driver has written manifest.json or session.json.
        """
        if self.problem:
            raise RuntimeError(self.problem)
        with self._lock:
            self._check_exists()
            self._push()

    def _check_exists(self) -> None:
        """Raises FileNotFoundError if the copy was removed. Otherwise its objects would be deleted as removed files."""
        (self.out / _MARK).stat()

    def _push(self, folders: tuple[str, ...] = ()) -> None:
        """Uploads the changed files in `folders`; by default, all files outside `_NOT_PUSHED`."""

        def ours(name: str) -> bool:
            return name.startswith(folders) if folders else not name.startswith(_NOT_PUSHED)

        present = {}
        for directory, below, files in os.walk(self.out):
            folder = Path(directory).relative_to(self.out)
            below[:] = [name for name in below if name[0] != "." and ours(f"{folder / name}/")]
            for name in (str(folder / name) for name in files if name[0] != "."):
                with contextlib.suppress(FileNotFoundError):  # temporary and progress files come and go
                    if ours(name):
                        present[name] = _stamp(self.out / name)
        for name, stamp in present.items():
            if self._stamps.get(name) != stamp:
                with contextlib.suppress(FileNotFoundError):
                    self._versions[name] = self._upload(name, (self.out / name).read_bytes())
                    self._stamps[name] = stamp
        removed = [name for name in list(self._stamps) if name not in present and ours(name)]
        self.bucket.delete(removed)
        for name in removed:
            self._stamps.pop(name, None)
            self._versions.pop(name, None)

    def _upload(self, name: str, content: bytes) -> Version:
        if name not in _CONDITIONAL:
            return self.bucket.write(name, content)
        before = self._versions.get(name)
        after = self.bucket.create(name, content) if before is None else self.bucket.replace(name, content, before)
        if after is None:
            raise RuntimeError(f"{self.bucket.address} was changed by another driver: this driver stops")
        return after

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
        """Writes a damaged record under its new name, and then deletes the object with the old name."""
        self.bucket.write(f"records/{damaged.name}", path.read_bytes())
        self.bucket.delete([f"records/{path.name}"])

    # Checkpoints

    def save_checkpoints(self, folder: Path) -> None:
        """Uploads the new steps of a lane, then deletes the objects of earlier steps that have no local directory.
        Objects of later steps stay: another worker may train the same lane."""
        prefix = f"checkpoints/{folder.name}/"
        steps = {f"{prefix}{path.name}.tar": path for path in _steps(folder)}
        for name, path in steps.items():
            if self._stamps.get(name) == (stamp := _stamp(path)):
                continue
            with tempfile.TemporaryFile(dir=self.out) as file:
                try:
                    with tarfile.open(fileobj=file, mode="w") as tar:
                        tar.add(path, arcname=path.name)
                except FileNotFoundError:  # another worker of the lane has removed the step
                    continue
                file.seek(0)
                self.bucket.write(name, file)
            self._stamps[name] = stamp
        last = max(steps, default="")
        self.bucket.delete(e.name for e in self.bucket.listed(prefix) if e.name not in steps and e.name < last)

    def saved_steps(self, lanes: Iterable[str]) -> set[str]:
        """The names of the checkpoints of the lanes."""
        with ThreadPoolExecutor(16) as pool:
            listings = pool.map(self.bucket.listed, (f"checkpoints/{lane}/" for lane in lanes))
            return {entry.name for entries in listings for entry in entries}

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


def _tag(version: Version | None) -> str | None:
    """The ETag of a version. Listings give no generations."""
    return version.get("e_tag") if version else None


@cache
def get(out: Path) -> WorkingCopy | None:
    """The working copy in a local directory, the same object for the whole process; None for an ordinary directory."""
    if not out.name.startswith(PREFIX):  # other directories may be untrusted: their files must not name a bucket
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
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        fill(folder, str(out))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fill(folder: Path, address: str) -> WorkingCopy:
    """Makes an empty directory a working copy of an address. Raises InputError as `opened` does."""
    (folder / _MARK).write_text(Bucket(address).address)
    copy = get(folder)
    assert copy is not None  # the mark was written
    with refusals():
        copy.pull()
    return copy


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
