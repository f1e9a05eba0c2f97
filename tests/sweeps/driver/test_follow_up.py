"""Lanes that depend on the results of other lanes run after them, in the same cells, and can be resumed."""

import json
from itertools import product

import pytest

from experiments import leaderboard
from experiments.common.transferred_entries import ENTRIES, chosen_entries, lane_of
from lvp.training import records
from sweeps.driver import forecast, lane_index, status
from sweeps.driver.manifest import Manifest

RUN = ("run", "leaderboard", "--preset", "smoke", "--executor", "local", "--threads", "1")
SETTINGS = ["--set=reference_constants=0.1", "--set=slice_bytes=10000"]


def numbers(out):
    return {r["hash"]: r["outcome"] for r in records.read(out / "records")}


@pytest.mark.slow
def test_tuned_rules_follow_and_resume(command, tmp_path):
    out = tmp_path / "out"
    done = command(*RUN, "--out", out, *SETTINGS)
    assert done.returncode == 0, done.stderr
    manifest, before = Manifest.read(out), numbers(out)
    table, (experiment, config) = records.table(manifest.read_records()), manifest.resolved
    first = {planned.label: len(planned.lanes) for planned in experiment.cells(config)}
    all_lanes = {cell.label: len(cell.lanes) for cell in manifest.cells}
    added = sum(all_lanes.values()) - sum(first.values())
    assert f"{added} lanes added that depend on these results" in done.stdout
    # The forecast assumes equal losses. The number of added lanes depends on the losses.
    about = sum(len(planned.lanes) for planned in forecast.with_follow_ups(experiment, config))
    assert about > sum(first.values()) and f"results: about {about} lanes" in done.stdout
    assert len(before) == sum(all_lanes.values())

    # The lanes of the judging seed have the constants that are best among the lanes of the selecting seed.
    entries = chosen_entries(config.entries, ENTRIES)
    tuned = leaderboard.analysis.read(table, config, entries)
    cells = {cell.label: cell for cell in manifest.cells}
    for (size_name, size), (name, each) in product(config.sizes.items(), tuned.entries.items()):
        (seed,) = config.judging_seeds
        expected = lane_of(config, entries[name], size, each.constant, seed)
        label = leaderboard.config.labels(config, entries)[size_name, name]
        assert expected in list(cells[label].lanes.values())

    # A lane index from before the second lanes were known counts them too, because the first lanes have records.
    with_all, early = status.text(manifest), Manifest.read(out)
    early.__dict__["cells"] = [early._entry(c, c.lanes) for c in manifest.resolved[0].cells(config)]
    lane_index.write(early)
    assert f"{len(before)} of {len(before)} lanes" in with_all and status.text(Manifest.read(out)) == with_all
    assert [len(cell.lanes) for cell in lane_index.read(early)] == [number for number in first.values() if number]

    # One record of each kind is lost. Only these two lanes are trained again, with the same bits.
    lost = next(iter(manifest.cells[0].lanes)), list(manifest.cells[0].lanes)[-1]
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
    done = command("run", "width_vocab", "--preset", "smoke", *RUN[4:], "--out", out, **rates, design="adaptive")
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


@pytest.mark.slow
def test_records_of_another_sweep_are_reused_for_lanes_that_depend_on_results(command, tmp_path):
    """The second sweep has one more width, so its first lanes are not all reused. Later lanes of other widths are."""
    rates = {"rates": "0.003,0.01,0.03,0.1,0.3", "design": "adaptive", "seeds": "0,1"}
    run = ("run", "width_vocab", "--preset", "smoke", *RUN[4:])
    first, second = tmp_path / "first", tmp_path / "second"
    done = command(*run, "--out", first, widths="32,40", **rates)
    assert done.returncode == 0, done.stderr
    done = command(*run, "--out", second, "--reuse", first / "records", widths="32,40,48", **rates)
    assert done.returncode == 0, done.stderr
    before, after = numbers(first), numbers(second)
    assert before.items() <= after.items()
    trained = sum(json.loads(line)["lanes"] for line in (second / "trials.jsonl").read_text().splitlines())
    assert trained == len(after) - len(before) > 0
    assert done.stdout.count("lanes have a record of another sweep") >= 2
