"""Whether workers are writing checkpoints, as the driver sees it."""

import time

from sweeps.driver.manifest import Manifest

SILENCE = 60.0  # seconds without a new report after which a saving worker counts as dead


class Saves:
    """The saves that workers have reported after the Unix time `since`.

    A worker repeats its report while it saves (`sweeps.worker.pack`). A killed worker leaves its last report, which
    does not change. This machine's clock measures the silence, because the clocks of machines may differ.
    """

    def __init__(self, manifest: Manifest, since: float):
        self.manifest, self.since = manifest, since
        self.first_seen: dict[tuple, float] = {}  # by report

    def running(self) -> bool:
        """Returns True if the latest report of a worker says that it saves, and is at most `SILENCE` seconds old."""
        now = time.monotonic()
        saving = (p for p in self.manifest.read_progress() if p.get("saving") and p["time"] > self.since)
        reports = ((p["time"], *p["lanes"]) for p in saving)
        self.first_seen = {report: self.first_seen.get(report, now) for report in reports}
        return any(now - seen < SILENCE for seen in self.first_seen.values())
