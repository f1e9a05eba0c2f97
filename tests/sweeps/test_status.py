"""`status` and `table_of` read a sweep's directory: counts of runs by setting, failures, damaged records."""

import json
import re
import shutil

from lvp import sweeps
from lvp.training import records


def test_counts_of_finished_diverged_failed_and_begun_runs(finished, tmp_path):
    """Width 16 has five finished runs and a diverged one. Width 24 has one run of each other state."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    first, second = json.loads((out / "sweep.json").read_text())["settings"]
    diverged = out / "records" / f"{first['runs'][0]}.jsonl"
    (record,) = records.read(diverged)
    records.write(diverged, [record | {"outcome": record["outcome"] | {"status": "diverged"}}])
    for run in second["runs"][1:]:
        (out / "records" / f"{run}.jsonl").unlink()
    (out / "failed").mkdir()
    for run in second["runs"][:3]:  # the first has a record, so its earlier failure does not count
        (out / "failed" / f"{run}.json").write_text('{"reason": "KeyError: 1"}')
    (out / "checkpoints" / second["runs"][4] / "step_000000010").mkdir(parents=True)
    text = sweeps.status(out)
    assert text.startswith("width_vocab, preset smoke, hash ") and ": 7 of 12 runs have a record\n" in text
    assert re.search(r"^setting +runs +finished +diverged +failed +begun$", text, re.MULTILINE)
    assert re.search(r"^d 16, m 320 +6 +5 +1 +0 +0$", text, re.MULTILINE)
    assert re.search(r"^d 24, m 480 +6 +1 +0 +2 +1$", text, re.MULTILINE)
    assert "failed: 2 runs: KeyError: 1" in text and "damaged" not in text


def test_damaged_records_are_named_and_not_renamed(finished, tmp_path):
    """`status` changes nothing. A driver renames them."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    path = next((out / "records").iterdir())
    path.write_bytes(path.read_bytes()[:100])
    assert "1 damaged records; `resume` trains their runs again" in sweeps.status(out) and path.exists()
    assert len(sweeps.table_of(out)) == 11
    path.rename(path.with_suffix(".damaged"))
    assert f"damaged records, renamed: {path.stem}.damaged" in sweeps.status(out)
