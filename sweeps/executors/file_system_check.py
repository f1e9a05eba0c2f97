"""A check that a machine sees the same sweep directory and data files as the driver."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from sweeps.driver.manifest import Manifest

REMEDY = "put the sweep's directory and LVP_CACHE on a file system that all machines share"


@dataclass(frozen=True)
class FileSystemCheck:
    """A sweep's files as the driver sees them, for comparison on another machine."""

    out: Path  # the sweep's directory
    session: str  # the content of session.json, unique to a driver
    files: dict[str, int]  # path of a data file → its size in bytes

    @classmethod
    def for_manifest(cls, manifest: Manifest) -> "FileSystemCheck":
        """The check of a sweep. Call it on the driver's machine."""
        values = [value for dataset in manifest.datasets.values() for value in (dataset or {}).values()]
        files = sorted({value for value in values if isinstance(value, str) and Path(value).is_absolute()})
        return cls(manifest.out, manifest.session(), {p: os.stat(p).st_size for p in files})

    def problem(self) -> str | None:
        """One line with this host and the first path that differs, or None."""
        problem = self._difference()
        return problem and f"{socket.gethostname()} {problem}: {REMEDY}"

    def _difference(self) -> str | None:
        manifest, session = self.out / "manifest.json", self.out / "session.json"
        try:
            for needed in (manifest, session, *map(Path, self.files)):
                open(needed, "rb").close()  # network file systems may list a file before it can be read
            if session.read_text() != self.session:
                return f"does not see the same {self.out} as the driver"
            for path, size in self.files.items():
                if os.stat(path).st_size != size:
                    return f"does not see the same {path} as the driver"
        except OSError as error:
            return f"does not see {error.filename} ({error.strerror})"
        return None if os.access(self.out, os.W_OK | os.X_OK) else f"cannot write {self.out}"
