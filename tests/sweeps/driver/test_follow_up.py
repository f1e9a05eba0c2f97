"""Lanes that follow from others' results: run after them, in the same cells, and resumed like any other."""

import pytest

from experiments import regimes
from lvp.training import records
from sweeps.driver import lane_index, status
from sweeps.driver.manifest import Manifest

RUN = ("run", "regimes", "--tier", "smoke", "--executor", "local", "--threads", "1")
SMALL = {
    "widths": "16,24",
    "vocabs": "256",
    "seeds": "0",
    "rates": "0.01,0.03,0.1",
    "constants": "0.05,0.2,0.8",
    "epochs": "1",
    "slice_bytes": "4000",
    "layers": "1",
}
SETTINGS = [f"--set={key}={value}" for key, value in SMALL.items()]


def numbers(out):
    return {r["hash"]: r["outcome"] for r in records.read(out / "records")}


@pytest.mark.slow
def test_tuned_rules_follow_and_resume(command, tmp_path):
    out = tmp_path / "out"
    done = command(*RUN, "--out", out, *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert "4 lanes follow from these results" in done.stdout and "come on top" in done.stdout
    manifest, before = Manifest.read(out), numbers(out)
    first, second = manifest.cells
    assert (len(first.lanes), len(second.lanes), len(before)) == (3 + 4 * 3, 3 + 4, 22)

    # The steps are those of one epoch of the slice, each vocabulary its own.
    assert first.cell.steps == round(first.dataset.num_tokens / first.cell.tokens_per_step)
    table, (_, config) = records.table(manifest.read_records()), manifest.resolved
    expected = {
        rule: regimes.config.rule_lane(config, rule, regimes.analysis.tuned(table, config, rule), 24, 256, 0)
        for rule in regimes.config.RULES
    }
    assert [lane in list(second.lanes.values()) for lane in expected.values()] == [True] * 4
    outcome = next(iter(before.values()))
    share = first.dataset.num_tokens / first.dataset.train_bytes
    assert 0 < outcome["train_bits_per_byte"] < 2 * share * outcome["train_loss"]

    # Written down before the others were known, the lane index still counts them once the first stand.
    with_all, early = status.text(manifest), Manifest.read(out)
    early.__dict__["cells"] = [early._entry(c, c.lanes) for c in manifest.resolved[0].cells(config)]
    lane_index.write(early)
    assert "22 of 22 lanes" in with_all and status.text(Manifest.read(out)) == with_all
    assert [len(cell.lanes) for cell in lane_index.read(early)] == [3 + 4 * 3, 3]

    # One record of either kind is lost: both are made again, to the bit, and nothing else is.
    lost = next(iter(first.lanes)), list(second.lanes)[-1]
    for lane in lost:
        manifest.record_path(lane).unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "records").iterdir()}
    done = command("resume", out, "--executor", "local")
    assert done.returncode == 0, done.stderr
    assert numbers(out) == before
    assert {path.name: path.stat().st_mtime_ns for path in (out / "records").iterdir() if path.name in kept} == kept
