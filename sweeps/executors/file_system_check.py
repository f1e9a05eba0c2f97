"""What all machines of a cluster must see alike: the sweep's directory, and the files that its data lies in."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from sweeps.driver.manifest import Manifest

WAY_OUT = "the sweep's directory and LVP_CACHE must lie on a file system that all machines share"


@dataclass(frozen=True)
class Shared:
    """A sweep as its driver sees it. session: the content of its session.json, of which there are no two alike.
    files: the sizes of its data's files, by path."""

    out: Path
    session: str
    files: dict[str, int]

    @classmethod
    def of(cls, manifest: Manifest) -> "Shared":
        places = [value for dataset in manifest.datasets.values() for value in (dataset or {}).values()]
        files = sorted({p for p in places if isinstance(p, str) and Path(p).is_absolute()})
        return cls(manifest.out, manifest.session(), {p: os.stat(p).st_size for p in files})

    def unseen(self) -> str | None:
        """In one line what this machine does not see as the driver does, by host and path; None where it sees all."""
        problem = self._problem()
        return problem and f"{socket.gethostname()} {problem}: {WAY_OUT}"

    def _problem(self) -> str | None:
        manifest, session = self.out / "manifest.json", self.out / "session.json"
        try:
            for needed in (manifest, session, *map(Path, self.files)):
                open(needed, "rb").close()  # its name alone may be there
            if session.read_text() != self.session:
                return f"sees another {self.out} than the driver"
            for path, size in self.files.items():
                if os.stat(path).st_size != size:
                    return f"sees another {path} than the driver"
        except OSError as error:
            return f"does not see {error.filename} ({error.strerror})"
        return None if os.access(self.out, os.W_OK | os.X_OK) else f"cannot write {self.out}"
