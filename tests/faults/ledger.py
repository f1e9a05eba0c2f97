"""Writes the results of injected faults to one file: `pytest tests/faults -m "slow or not slow" --ledger
experiments/results/faults.json`."""

import datetime
import fcntl
import json
from collections.abc import Mapping
from pathlib import Path

from lvp.files.places import Directory
from lvp.sweeps.store import Store
from lvp.training import records

path: Path | None = None  # pytest's option --ledger


class Watched:
    """The records of a sweep in a directory or bucket as they were first seen, to detect one that is lost or written
    again."""

    def __init__(self, place: Path | str):
        self.store, self.seen = Store(place), dict[str, tuple]()

    def look(self) -> int:
        """Notes the present records, and returns how many have been seen."""
        self.seen = self._present() | self.seen
        return len(self.seen)

    def _present(self) -> dict[str, tuple]:
        """Run → time of its record, and content."""
        objects = self.store.objects
        names = [f"records/{run}.jsonl" for run in self.store.recorded()]
        if isinstance(objects, Directory):
            return {name: ((objects.path / name).stat().st_mtime_ns, objects.read(name)) for name in names}
        answers = {name: objects.bucket.read(name) for name in names}
        return {name: (answer[1].modified, answer[0]) for name, answer in answers.items() if answer}

    def assert_whole(self, fault: str, injected: int, whole: Mapping[str, dict]) -> None:
        """Records the fault of a finished sweep (0 times: does not). Asserts that no run is lost, repeated or wrong.

        Args:
          whole: the outcomes of the undisturbed sweep.
        """
        now, ours = self._present(), {row["hash"]: row["outcome"] for row in self.store.read_records()}
        lost = len((whole.keys() - ours.keys()) | {name for name in self.seen if name not in now})
        repeated = sum(now.get(name, was) != was for name, was in self.seen.items())
        wrong = sum(ours[run] != whole.get(run) for run in ours)
        if injected:
            record(fault, injected, lost, repeated, wrong)
        assert (lost, repeated, wrong) == (0, 0, 0)


def record(fault: str, injected: int, lost: int = 0, repeated: int = 0, wrong: int = 0) -> None:
    """Adds to the file's entry of a fault; does nothing without --ledger.

    injected: how often the fault was caused. lost: runs that had finished and are missing at the end. repeated: runs
    that finished twice. wrong: runs whose final numbers differ from the undisturbed sweep's in any bit.
    """
    if path is None:
        return
    entry = {"fault": fault, "injected": injected, "lost": lost, "repeated": repeated, "wrong_bits": wrong}
    now = {"commit": records.software()["commit"], "date": datetime.date.today().isoformat()}
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other processes of pytest-xdist write to it
        file.seek(0)
        entries = {e["fault"]: e for e in json.loads(file.read() or "[]")}
        if (before := entries.get(fault)) and before["commit"] == now["commit"]:
            entry |= {key: before[key] + entry[key] for key in ("injected", "lost", "repeated", "wrong_bits")}
        entries[fault] = entry | now
        file.truncate(0)
        file.write(json.dumps([entries[name] for name in sorted(entries)], indent=1) + "\n")
