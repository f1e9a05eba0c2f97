"""Sweeps of calculations: records, resume, executors."""

import pytest

from lvp.training import records
from sweeps.driver.manifest import Manifest

RUN = ("run", "token_frequencies", "--preset", "smoke", "--set", "vocabs=256,300")


def token_counts(out):
    """The token counts by lane, for exact comparison. The fit is left out: its last bits depend on the alignment of
    LAPACK's arrays."""
    keys = ("tokens", "unseen", "peak_ratio", "shown_ranks", "shown_frequencies")
    return {r["hash"]: [r["outcome"][k] for k in keys] for r in records.read(out / "records")}


def start(command, *words):
    done = command(*RUN, *words)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_a_calculation_makes_records_table_and_figure(command, tmp_path):
    out = tmp_path / "out"
    first = start(command, "--executor", "local", "--out", out)
    assert "expected:" in first.stdout and (out / "figure.svg").exists() and (out / "table.csv").exists()
    rows = records.read(out / "records")
    assert [r["config"]["lane"]["vocab"] for r in sorted(rows, key=lambda r: r["config"]["cell"]["vocab"])] == [
        256,
        300,
    ]
    assert {r["sweep"] for r in rows} == {Manifest.read(out).hash}
    assert all(r["hash"] == records.config_hash(r["config"]) for r in rows)
    assert all(len(r["config"]["data"]["tokenizer"]) == 64 and r["provenance"]["seconds"] > 0 for r in rows)

    # Only the lane without a record is computed again.
    (deleted, kept) = sorted((out / "records").iterdir())
    before = token_counts(out), kept.stat().st_mtime_ns
    deleted.unlink()
    assert command("resume", out, "--executor", "local").returncode == 0
    assert (token_counts(out), kept.stat().st_mtime_ns) == before


@pytest.mark.slow
def test_ray_and_local_executor_give_the_same_counts(command, tmp_path):
    for executor in ("local", "ray"):
        start(command, "--executor", executor, "--out", tmp_path / executor)
    assert token_counts(tmp_path / "ray") == token_counts(tmp_path / "local")
