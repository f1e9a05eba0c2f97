"""Writes the results of injected faults to one file: `pytest -m "slow or not slow" --ledger
experiments/results/faults.json`. Run it in one process."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

from lvp.files import write_whole
from lvp.training import records
from tests.sweeps.running import outcomes

path: Path | None = None  # pytest's option --ledger


class Watched:
    """The records of a directory and when they were first seen, to detect one that is lost or written again."""

    def __init__(self, out: Path):
        self.out, self.seen = out, dict[str, tuple[int, bytes]]()

    def look(self) -> int:
        """Notes the present records, and returns how many have been seen."""
        for file in self.out.glob("records/*.jsonl"):
            self.seen.setdefault(file.name, (file.stat().st_mtime_ns, file.read_bytes()))
        return len(self.seen)

    def assert_whole(self, fault: str, injected: int, whole: Mapping[str, dict]) -> None:
        """Writes the counts of a finished sweep to the ledger. Asserts that no run is lost, repeated or wrong.

        Args:
          whole: the outcomes of the undisturbed sweep.
        """
        ours = outcomes(self.out)
        now = {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in self.out.glob("records/*.jsonl")}
        rewritten = sum(now.get(name, was) != was for name, was in self.seen.items())
        check(fault, injected, ours, whole, rewritten)


def check(fault: str, injected: int, ours: Mapping[str, dict], whole: Mapping[str, dict], repeated: int = 0) -> None:
    """Records a fault. Asserts that no run was lost, repeated or changed.

    Args:
      ours, whole: the outcomes of the sweep, and of the undisturbed sweep.
      repeated: runs that finished twice.
    """
    lost, wrong = len(whole.keys() - ours.keys()), sum(ours[run] != whole.get(run) for run in ours)
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
    entries = {e["fault"]: e for e in json.loads(path.read_text())} if path.exists() else {}
    entry = {"fault": fault, "injected": injected, "lost": lost, "repeated": repeated, "wrong_bits": wrong}
    now = {"commit": records.software()["commit"], "date": datetime.date.today().isoformat()}
    if (before := entries.get(fault)) and before["commit"] == now["commit"]:
        entry |= {key: before[key] + entry[key] for key in ("injected", "lost", "repeated", "wrong_bits")}
    entries[fault] = entry | now
    write_whole(path, json.dumps([entries[name] for name in sorted(entries)], indent=1) + "\n")
