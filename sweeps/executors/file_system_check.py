"""A check that a machine sees the sweep's directory and its data files as the driver sees them."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from sweeps.driver.manifest import Manifest

REMEDY = "the sweep's directory and LVP_CACHE must lie on a file system that all machines share"


@dataclass(frozen=True)
class FileSystemCheck:
    """A sweep's files as its driver sees them, to be compared on another machine."""

    out: Path  # the sweep's directory
    session: str  # the content of session.json, which no other driver's equals
    files: dict[str, int]  # path of a data file → its size in bytes

    @classmethod
    def for_manifest(cls, manifest: Manifest) -> "FileSystemCheck":
        """The check of a sweep, made on the driver's machine."""
        places = [value for dataset in manifest.datasets.values() for value in (dataset or {}).values()]
        files = sorted({p for p in places if isinstance(p, str) and Path(p).is_absolute()})
        return cls(manifest.out, manifest.session(), {p: os.stat(p).st_size for p in files})

    def problem(self) -> str | None:
        """One line with this host and the first path that it sees differently; None where it sees the same files."""
        problem = self._difference()
        return problem and f"{socket.gethostname()} {problem}: {REMEDY}"

    def _difference(self) -> str | None:
        manifest, session = self.out / "manifest.json", self.out / "session.json"
        try:
            for needed in (manifest, session, *map(Path, self.files)):
                open(needed, "rb").close()  # a name may be listed before its content can be read
            if session.read_text() != self.session:
                return f"sees another {self.out} than the driver"
            for path, size in self.files.items():
                if os.stat(path).st_size != size:
                    return f"sees another {path} than the driver"
        except OSError as error:
            return f"does not see {error.filename} ({error.strerror})"
        return None if os.access(self.out, os.W_OK | os.X_OK) else f"cannot write {self.out}"
