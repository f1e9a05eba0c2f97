"""Writes one file per injected fault, with the lanes that the sweep lost: `pytest -m "slow or not slow" --ledger
DIR`."""

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path

from lvp.files import write_whole
from lvp.training import records
from tests.sweeps.running import outcomes

directory: Path | None = None  # pytest's option --ledger


def times(out: Path) -> dict[str, int]:
    """The times of a sweep's records, by the names of their files."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("records/*.jsonl")}


def record_finished(fault: str, injected: int, out: Path, before: Mapping[str, int], whole: Mapping[str, dict]) -> None:
    """Does what `record` does for the finished sweep in `out`, and asserts that no lane was lost, repeated or changed.

    Args:
      before: the times of the sweep's records before the fault (see `times`).
      whole: the outcomes of the undisturbed sweep.
    """
    read, now = outcomes(out), times(out)
    lost = len(before.keys() - now.keys())
    repeated = sum(now[name] != time for name, time in before.items() if name in now)
    wrong = sum(outcome != whole[lane] for lane, outcome in read.items())
    record(fault, injected=injected, lost=lost, repeated=repeated, wrong=wrong)
    assert (lost, repeated, wrong) == (0, 0, 0)


def record(fault: str, injected: int, lost: int, repeated: int, wrong: int) -> None:
    """Writes DIR/<slug of fault>.json; does nothing without --ledger.

    injected: how often the fault was caused. lost: lanes that had finished and are missing at the end. repeated: lanes
    that finished twice. wrong: lanes whose final numbers differ from the undisturbed sweep's in any bit.
    """
    if directory is None:
        return
    content = {"fault": fault, "injected": injected, "lost": lost, "repeated": repeated, "wrong_bits": wrong}
    content |= {"commit": records.software()["commit"], "date": datetime.date.today().isoformat()}
    directory.mkdir(parents=True, exist_ok=True)
    slug = re.sub(r"[^a-z0-9]+", "-", fault.lower()).strip("-")
    write_whole(directory / f"{slug}.json", json.dumps(content, indent=1) + "\n")
