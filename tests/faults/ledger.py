"""Writes one file per injected fault, with the lanes that the sweep lost: `pytest -m slow --ledger DIR`."""

import datetime
import json
import re
from pathlib import Path

from lvp.files import write_whole
from lvp.training import records

directory: Path | None = None  # pytest's option --ledger


def record(fault: str, injected: int, lost: int, repeated: int, wrong: int) -> None:
    """Writes DIR/<slug of fault>.json; does nothing without --ledger.

    injected: how often the fault was caused. lost: lanes that had finished and are missing at the end. repeated: lanes
    that finished twice. wrong: lanes whose final numbers differ from the undisturbed sweep's in any bit.
    """
    if directory is None:
        return
    content = {"fault": fault, "injected": injected, "lost": lost, "repeated": repeated, "wrong_bits": wrong}
    content |= {"commit": records.software()["commit"], "date": datetime.date.today().isoformat()}
    slug = re.sub(r"[^a-z0-9]+", "-", fault.lower()).strip("-")
    write_whole(directory / f"{slug}.json", json.dumps(content, indent=1) + "\n")
