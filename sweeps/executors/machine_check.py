"""A check that a machine sees the same sweep as the driver, and the same data files if machines share a file system."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from lvp.errors import InputError
from lvp.files.buckets import Bucket, BucketError
from sweeps.driver.manifest import Manifest

REMEDY = "put the sweep's directory and LVP_CACHE on a file system that all machines share"


@dataclass(frozen=True)
class MachineCheck:
    """A sweep's files as the driver sees them, for comparison on another machine."""

    out: Path  # the sweep's directory
    session: str  # the content of session.json, unique to a driver
    files: dict[str, int]  # path of a data file → its size in bytes
    bucket: str | None = None  # the sweep's address, if machines share a bucket and no files

    @classmethod
    def for_manifest(cls, manifest: Manifest, bucket: str | None = None) -> "MachineCheck":
        """The check of a sweep. Call it on the driver's machine."""
        if bucket is not None:
            return cls(manifest.out, manifest.session(), {}, bucket)
        values = [value for dataset in manifest.datasets.values() for value in (dataset or {}).values()]
        files = sorted({value for value in values if isinstance(value, str) and Path(value).is_absolute()})
        return cls(manifest.out, manifest.session(), {p: os.stat(p).st_size for p in files})

    def problem(self) -> str | None:
        """One line with this host and the first difference, or None."""
        problem = self._difference() if self.bucket is None else self._difference_of_bucket()
        return problem and f"{socket.gethostname()} {problem}"

    def _difference(self) -> str | None:
        manifest, session = self.out / "manifest.json", self.out / "session.json"
        try:
            for needed in (manifest, session, *map(Path, self.files)):
                open(needed, "rb").close()  # network file systems may list a file before it can be read
            if session.read_text() != self.session:
                return f"does not see the same {self.out} as the driver: {REMEDY}"
            for path, size in self.files.items():
                if os.stat(path).st_size != size:
                    return f"does not see the same {path} as the driver: {REMEDY}"
        except OSError as error:
            return f"does not see {error.filename} ({error.strerror}): {REMEDY}"
        return None if os.access(self.out, os.W_OK | os.X_OK) else f"cannot write {self.out}: {REMEDY}"

    def _difference_of_bucket(self) -> str | None:
        try:
            answer = Bucket(str(self.bucket)).read("session.json")
        except (InputError, BucketError) as error:
            return f"cannot run the sweep: {error}"
        same = answer is not None and answer[0] == self.session.encode()
        if same:
            return None
        return (
            f"does not see the same {self.bucket} as the driver: check the server's address and the credentials there"
        )
