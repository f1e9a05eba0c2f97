"""Lanes that depend on the results of other lanes run after them, in the same cells, and can be resumed."""

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
    assert "4 lanes added that depend on these results" in done.stdout and "not in the forecast" in done.stdout
    manifest, before = Manifest.read(out), numbers(out)
    first, second = manifest.cells
    assert (len(first.lanes), len(second.lanes), len(before)) == (3 + 4 * 3, 3 + 4, 22)

    # The number of steps is one epoch of the slice under the cell's tokenizer.
    assert first.cell.steps == round(first.dataset.num_tokens / first.cell.tokens_per_step)
    table, (_, config) = records.table(manifest.read_records()), manifest.resolved
    expected = {
        rule: regimes.config.rule_lane(config, rule, regimes.analysis.tuned_constant(table, config, rule), 24, 256, 0)
        for rule in regimes.config.RULES
    }
    assert [lane in list(second.lanes.values()) for lane in expected.values()] == [True] * 4
    outcome = next(iter(before.values()))
    share = first.dataset.num_tokens / first.dataset.train_bytes
    assert 0 < outcome["train_bits_per_byte"] < 2 * share * outcome["train_loss"]

    # A lane index from before the second lanes were known counts them too, because the first lanes have records.
    with_all, early = status.text(manifest), Manifest.read(out)
    early.__dict__["cells"] = [early._entry(c, c.lanes) for c in manifest.resolved[0].cells(config)]
    lane_index.write(early)
    assert "22 of 22 lanes" in with_all and status.text(Manifest.read(out)) == with_all
    assert [len(cell.lanes) for cell in lane_index.read(early)] == [3 + 4 * 3, 3]

    # One record of each kind is lost. Only these two lanes are trained again, with the same bits.
    lost = next(iter(first.lanes)), list(second.lanes)[-1]
    for lane in lost:
        manifest.record_path(lane).unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in (out / "records").iterdir()}
    done = command("resume", out, "--executor", "local")
    assert done.returncode == 0, done.stderr
    assert numbers(out) == before
    assert {path.name: path.stat().st_mtime_ns for path in (out / "records").iterdir() if path.name in kept} == kept


@pytest.mark.slow
def test_an_adaptive_sweep_trains_rounds_of_the_grids_lanes_and_resumes(command, tmp_path):
    out = tmp_path / "out"
    rates = {"rates": "0.003,0.01,0.03,0.1,0.3"}
    done = command("run", "width_vocab", "--tier", "smoke", *RUN[4:], "--out", out, **rates, design="adaptive")
    assert done.returncode == 0, done.stderr
    assert "at most 20 lanes" in done.stdout and "lanes added that depend on these results" in done.stdout
    manifest, before = Manifest.read(out), numbers(out)
    experiment, config = manifest.resolved
    grid = [manifest._entry(planned, planned.lanes) for planned in experiment.limit(config)]
    assert before.keys() == {h for entry in manifest.cells for h in entry.lanes} < {h for e in grid for h in e.lanes}
    assert {len(entry.lanes) for entry in manifest.cells} <= {4, 5, 6, 7}
    assert f"{len(before)} of {len(before)} lanes" in status.text(manifest)

    # A record of the first round is lost. The sweep trains this lane and asks for the same lanes again.
    manifest.record_path(next(iter(manifest.cells[0].lanes))).unlink()
    again = command("resume", out, "--executor", "local")
    assert again.returncode == 0, again.stderr
    assert numbers(out) == before
    assert "nothing to do" in command("resume", out, "--executor", "local").stdout
