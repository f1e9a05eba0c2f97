"""The forecast, the measured speed that it uses, and the messages about packing and progress."""

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import experiments
from experiments.common.experiment import Calculation
from lvp.errors import InputError
from sweeps.__main__ import main
from sweeps.driver import api, calibration, packing
from sweeps.driver.forecast import duration, forecast, remaining_of_limit, with_follow_ups, without_records
from sweeps.driver.progress import in_words
from sweeps.driver.status import CellStatus, SweepStatus
from sweeps.reporting import results
from sweeps.worker.worker import Worker, _plain_steps
from tests.marking import slow
from tests.sweeps.running import ROOT


@pytest.fixture
def cells():
    experiment = experiments.load("width_vocab")
    return experiment.cells(experiments.configured(experiment, "smoke"))


def session(cells, flops_per_second, compilation=2.0):
    """Reports of one trial per cell, at the given speed and seconds of compilation."""
    reports = []
    for i, planned in enumerate(cells):
        training = planned.cell.flops_per_lane * len(planned.lanes) / flops_per_second
        report = {"cell": i, "lanes": len(planned.lanes), "training_seconds": training, "compilations": 1}
        reports.append(report | {"seconds": training + compilation})
    return reports


def test_the_speed_of_a_session_forecasts_the_sessions_duration(cells, tmp_path, monkeypatch):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path))
    assert calibration.read() == calibration.Speed()
    reports = session(cells, 5e9)
    seconds = 7.0 + sum(r["seconds"] for r in reports)
    speed = calibration.measured(calibration.Speed(), [c.cell for c in cells], reports, 1, seconds)
    calibration.keep(speed)
    assert calibration.read() == speed
    assert speed.start_seconds == pytest.approx(7) and speed.compile_seconds == pytest.approx(2)
    assert all(speed.flops_of(c.cell) == pytest.approx(5e9) for c in cells)
    line = forecast(cells, 1, speed, "cpu").splitlines()[-1]
    assert line.startswith(f"expected: {seconds:.0f} s on 1 worker: {7 + 2 * len(cells)} s for start and compilation")
    assert line.endswith("(measured on this machine)")


def test_the_speed_of_small_steps_does_not_forecast_large_steps(cells):
    """The same model with a batch 256 times as large reaches another part of the machine's FLOP/s."""
    small = [c.cell for c in cells]
    speed = calibration.measured(calibration.Speed(), small, session(cells, 1e8), 1, 60.0)
    assert all(speed.flops_of(dataclasses.replace(cell, steps=10 * cell.steps)) for cell in small)
    assert not any(speed.flops_of(dataclasses.replace(cell, batch=256 * cell.batch)) for cell in small)


@pytest.mark.parametrize("name", ["mean_embedding", slow("muon"), slow("leaderboard")])
def test_a_forecast_counts_the_lanes_that_depend_on_results(name):
    """A committed sweep has trained as many lanes."""
    committed = results.result(f"{name}/laptop-wikitext2")
    first = sum(len(c.lanes) for c in committed.experiment.cells(committed.config))
    planned = with_follow_ups(committed.experiment, committed.config)
    assert sum(len(c.lanes) for c in planned) == len(committed.rows) > first


def test_lanes_with_records_are_not_in_the_remaining_lanes():
    """If every first lane has a record, the lanes that depend on results are exact. Another batch matches no record."""
    committed = results.result("muon/laptop-wikitext2")
    experiment, config, rows = committed.experiment, committed.config, committed.rows
    assert without_records(with_follow_ups(experiment, config, rows), rows) == []
    kept, lost = rows[::2], rows[1::2]
    planned = [*experiment.cells(config)]
    remaining = without_records(planned, kept)
    first = sum(len(c.lanes) for c in planned)
    assert 0 < sum(len(c.lanes) for c in remaining) < first
    assert sum(len(c.lanes) for c in remaining) + sum(len(c.lanes) for c in without_records(planned, lost)) == first
    other = without_records([c._replace(cell=dataclasses.replace(c.cell, batch=1)) for c in planned], rows)
    assert [len(c.lanes) for c in other] == [len(c.lanes) for c in planned if c.lanes]


def test_the_budget_of_a_sweep_leaves_out_lanes_with_records(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path))
    monkeypatch.setattr(api, "_check_corpus", lambda cells: None)  # the text may be absent
    folder = results.result("muon/laptop-wikitext2").folder
    run = ["run", "muon", "--preset", "laptop", "--corpus", "wikitext2", "--dry-run", "--budget", "90s"]
    assert main(run) == 2
    capsys.readouterr()
    assert main([*run, "--reuse", str(folder / "records.jsonl.gz")]) == 0
    assert "143 of these lanes have a record of another sweep; no lane is trained" in capsys.readouterr().out


def test_a_finished_adaptive_sweep_has_no_remaining_lanes():
    """If a record of the first round is missing, the lanes of later rounds are not known."""
    committed = results.result("width_vocab/laptop-wikitext2-adaptive")
    experiment, config, rows = committed.experiment, committed.config, committed.rows
    most = sum(len(c.lanes) for c in experiment.limit(config))
    assert most > len(rows)
    assert remaining_of_limit(experiment, config, rows) == (len(rows), [])
    recorded, remaining = remaining_of_limit(experiment, config, rows[:-1])
    assert 0 < recorded < len(rows) - 1 and sum(len(c.lanes) for c in remaining) == most - recorded


@pytest.mark.slow
def test_a_measured_forecast_trains_some_steps_and_writes_nothing(tmp_path, monkeypatch):
    """The forecast has the speed of this machine's workers, also if no sweep has finished on it."""
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = ["run", "width_vocab", "--preset", "smoke", "--dry-run", "--measure", "--executor", "local"]
    done = subprocess.run(
        [sys.executable, "-m", "sweeps", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("of training (from some steps of each cell)")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_measured_cell_has_its_speed_and_other_cells_have_earlier_speeds(cells):
    first, second = cells[0].cell, dataclasses.replace(cells[0].cell, batch=256 * cells[0].cell.batch)
    speed = calibration.CellSpeed({calibration.kind_of(first): 1.0}, 2.0, 3.0, by_cell=[(first, 5.0)])
    assert speed.flops_of(first) == 5.0 and speed.flops_of(second) is None
    assert speed.flops_of(dataclasses.replace(first, steps=2 * first.steps)) == 1.0


@settings(deadline=None)
@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_plain_steps_have_no_measures(case):
    steps, measured = case
    first, stop = _plain_steps(SimpleNamespace(steps=steps, measured_steps=tuple(sorted(measured))))
    assert 0 <= first < stop <= steps and stop - first <= 5
    special = {0, steps - 1} | measured
    if special != set(range(steps)):
        assert not special & set(range(first, stop))
        longest = max(len(run) for run in "".join("#" if i in special else "." for i in range(steps)).split("#"))
        assert stop - first == min(5, longest)


def test_the_time_of_a_lane_is_the_sum_of_its_steps(monkeypatch):
    """Plain steps take 1 s, steps with measures 10 s more, and the last step 100 s more."""
    cell = SimpleNamespace(steps=50, measured_steps=(0, 3, 20, 49))

    def advance(first, stop):
        special = sum(10 for step in cell.measured_steps if first <= step < stop)
        return stop - first + special + 100 * (stop == cell.steps)

    worker = SimpleNamespace(
        _manifest=lambda: SimpleNamespace(cells=[SimpleNamespace(cell=cell)]), _advance=lambda *arguments: advance
    )
    assert Worker.lane_seconds(worker, 0) == pytest.approx(advance(0, cell.steps))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--measure"], "--measure needs --dry-run: a sweep measures its speed when it starts"),
        (["--measure", "--dry-run", "--preset", "gpu"], "--measure trains on this machine's cores: leave out --mesh"),
        (["--measure", "--dry-run", "--mesh", "data=1"], "--measure trains on this machine's cores: leave out --mesh"),
    ],
)
def test_a_measurement_that_cannot_be_done_is_refused(words, problem, capsys):
    assert main(["run", "width_vocab", "--preset", "smoke", *words]) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1


def test_a_forecast_without_measurements_estimates_a_cpu_and_assumes_an_accelerator(cells, monkeypatch):
    monkeypatch.setattr("sweeps.driver.forecast.matrix_product_flops", lambda: 1e6)
    line = forecast(cells, 2, calibration.Speed(), "cpu").splitlines()[-1]
    assert "estimated from a matrix product with 500 kFLOP/s per worker" in line
    rates = [2 * calibration.estimated_flops(c.cell, 5e5) for c in cells]
    seconds = sum(c.cell.flops_per_lane * len(c.lanes) / rate for c, rate in zip(cells, rates, strict=True))
    assert f"{duration(seconds)} of training" in line
    assert "on 2 workers" in line and f"{15 + 6 * len(cells)} s for start and compilation" in line
    line = forecast(cells, 1, calibration.Speed(), "accelerator", devices=4).splitlines()[-1]
    assert "80 TFLOP/s per worker assumed, not measured" in line


def test_the_estimate_for_a_cell_lies_between_those_of_its_neighbours_in_size(cells):
    def estimate(params):
        return calibration.estimated_flops(SimpleNamespace(num_params=params), 100.0)

    sizes, shares = list(calibration.TRAINING_SHARE), [100 * share for share in calibration.TRAINING_SHARE.values()]
    assert [estimate(size) for size in sizes] == pytest.approx(shares)
    assert estimate(1) == pytest.approx(shares[0]) and estimate(10**9) == pytest.approx(shares[-1])
    assert estimate((sizes[0] * sizes[1]) ** 0.5) == pytest.approx((shares[0] + shares[1]) / 2)
    assert calibration.estimated_flops(Calculation({}, 1.0), 100.0) == pytest.approx(40.0)
    assert 1e8 < calibration.matrix_product_flops() < 1e15


def test_the_shares_are_those_of_the_committed_benchmark():
    result = json.loads((ROOT / "experiments" / "results" / "benchmarks" / "training_share.json").read_text())
    measured = {int(params): round(share, 2) for params, share in result["raw"]["shares"].items()}
    assert measured == calibration.TRAINING_SHARE


def test_the_measured_cell_of_the_nearest_size_gives_the_speed(cells):
    cell = cells[0].cell
    size = int(calibration.kind_of(cell).partition("/")[2])
    speed = calibration.Speed({f"Cell/{size + 1}": 1.0, f"Cell/{size + 3}": 2.0, f"ImageCell/{size}": 3.0})
    assert speed.flops_of(cell) == 1.0
    assert calibration.Speed({f"ImageCell/{size}": 3.0}).flops_of(cell) is None
    assert calibration.Speed({f"Cell/{size - 3}": 4.0}).flops_of(cell) == 4.0
    assert calibration.Speed({f"Cell/{size - 4}": 4.0}).flops_of(cell) is None


def test_a_damaged_file_of_speeds_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path))
    for content in ("", "[]", "{", '{"x": 1}'):
        (tmp_path / calibration.FILE).write_text(content)
        assert calibration.read() == calibration.Speed()


@pytest.mark.parametrize("corpus", ["text:missing", "text:empty", "tokens:missing", "wikitext2:missing", "wikitxt2"])
def test_a_dry_run_has_the_errors_of_a_run(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").touch()
    errors = []
    for dry_run in (True, False):
        with pytest.raises(InputError) as error:
            api.start("width_vocab", "smoke", {"corpus": corpus}, out=tmp_path / "out", dry_run=dry_run, quiet=True)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_the_message_about_the_measured_packing():
    assert packing._in_words({"2x1": 734.2, "1x2": 611.0}, "2x1", 600.0) == (
        "measured: 2 workers of 1 thread do 734 lane-steps per second, 1 worker of 2 threads do 611 lane-steps per "
        "second; this sweep uses 2 workers of 1 thread: 10 min of training"
    )


def test_training_seconds_follow_from_the_speed_of_the_most_expensive_cell():
    small, large = (SimpleNamespace(flops_per_lane=flops, steps=steps) for flops, steps in ((100.0, 10), (400.0, 20)))
    cells = [SimpleNamespace(cell=small, lanes=["a", "b", "c"]), SimpleNamespace(cell=large, lanes=["d", "e"])]
    # 5 lane-steps per second of 20 FLOPs each are 100 FLOP/s. All lanes have 3 · 100 + 2 · 400 FLOPs.
    assert packing._training_seconds(SimpleNamespace(cells=cells), [0, 1], 5.0) == pytest.approx(11.0)
    assert packing._training_seconds(SimpleNamespace(cells=cells), [0], 5.0) == pytest.approx(6.0)


def test_the_text_of_the_progress_bar():
    cells = [CellStatus("a", 6, 6, 0, [], 1.0), CellStatus("b", 6, 0, 1, [0.5, 0.5], 3.0)]
    sweep = SweepStatus(cells, [], 90.0, 6, 9.0)
    assert sweep.fraction == pytest.approx(9 / 24)
    assert in_words(sweep) == "6 of 12 lanes, 2 running, 2 min left, 1 failed"
    finished = dataclasses.replace(sweep, cells=cells[:1])
    assert finished.fraction == 1 and in_words(finished) == "6 of 6 lanes"


@pytest.mark.parametrize(
    "budget, says",
    [
        ("1s", "budget=1s is less than the expected"),
        ("2", "'2' is no duration"),
        ("0h", "'0h' is no duration"),
        ("-1h", "'-1h' is no duration"),
        ("2 hours", "'2 hours' is no duration"),
    ],
)
def test_a_budget_below_the_forecast_or_of_another_form_is_refused(budget, says, monkeypatch, tmp_path):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match=says) as refused:
        api.run("width_vocab", "smoke", out=tmp_path / "out", budget=budget, quiet=True)
    assert "\n" not in str(refused.value) and not (tmp_path / "out").exists()


def test_a_budget_counts_the_lanes_that_results_may_add(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path))
    values = {"corpus": "zipf:1", "rates": "0.003,0.01,0.03,0.1,0.3", "seeds": "0,1,2"}
    refusals = {design: _refusal_of(design, values) for design in ("grid", "adaptive")}
    assert refusals["grid"] == refusals["adaptive"]
    api.run("width_vocab", "smoke", budget="1000d", dry_run=True, design="adaptive", **values)
    assert "at most 45 lanes and" in capsys.readouterr().out


def _refusal_of(design, values):
    """The error of a budget of one second at a measured speed."""
    speed = calibration.Speed({"Cell/15": 1e9, "Cell/16": 1e9}, 1.0, 1.0)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(InputError) as refused:
        patched.setattr(calibration, "read", lambda: speed)
        api.run("width_vocab", "smoke", budget="1s", dry_run=True, quiet=True, design=design, **values)
    return str(refused.value)
