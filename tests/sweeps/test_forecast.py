"""Forecasts, packings and durations."""

import json
import math
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lvp import experiments, sweeps
from lvp.errors import InputError
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.sweeps import forecast
from lvp.sweeps.committed import result
from lvp.sweeps.driver import Options, packs_of
from lvp.sweeps.executors import Machines
from lvp.sweeps.sweep import Planned
from tests.sweeps.running import ROOT

EXPERIMENT = experiments.load("width_vocab")
TRAINED = EXPERIMENT.settings(experiments.configured(EXPERIMENT, "smoke"))[0].setting
CALCULATED = Calculation({}, 1e15)


def planned(numbers, setting=TRAINED):
    return [SettingRuns(f"s{i}", setting, [None] * n) for i, n in enumerate(numbers)]


numbers = st.lists(st.integers(0, 90), min_size=1, max_size=4)
units = st.lists(st.integers(1, 64), min_size=1, max_size=4)


@settings(deadline=None)
@given(numbers, units)
def test_a_cpu_trains_one_run_per_program_and_shares_its_cores(numbers, units):
    """With as many runs as cores every core has a worker; with fewer, a worker has several. No core is used twice."""
    made = forecast.packing(planned(numbers), Machines("cpu", units), pack=None, threads=None, mesh=None)
    assert set(made["lanes_per_program"].values()) == {1}
    assert made["threads"] == max(1, min(units) // max(1, sum(numbers)))
    assert made["workers"] == sum(n // made["threads"] for n in units) and "mesh" not in made
    assert made["threads"] == 1 or sum(numbers) < min(units)


@settings(deadline=None)
@given(numbers, units)
def test_an_accelerator_trains_as_many_runs_as_fit(numbers, units):
    """A pack is a power of two, at most as many as there are runs, and its models fit the assumed memory."""
    swept = planned(numbers)
    made = forecast.packing(swept, Machines("gpu", units), pack=None, threads=None, mesh=None)
    for each in swept:
        size, runs = made["lanes_per_program"][each.label], max(1, len(each.runs))
        limit = min(runs, forecast.MOST, max(1, forecast.PARAMETERS // TRAINED.num_params))
        assert math.log2(size).is_integer() and size <= limit < 2 * size
    assert made["workers"] == sum(units) and made["threads"] == 1


@settings(deadline=None)
@given(numbers, units, st.integers(1, 8), st.integers(1, 4))
def test_the_users_packing_is_taken(numbers, units, pack, threads):
    swept = [*planned(numbers), SettingRuns("sums", CALCULATED, [{}] * 5)]
    made = forecast.packing(swept, Machines("cpu", units), pack=pack, threads=threads, mesh=None)
    assert made["threads"] == threads and made["workers"] == max(1, sum(n // threads for n in units))
    sizes = made["lanes_per_program"]
    assert sizes.pop("sums") == 1 and set(sizes.values()) == {pack}  # calculations have no program
    on_mesh = forecast.packing(swept, Machines("gpu", units, 8), pack=None, threads=None, mesh={"fsdp": 8})
    assert set(on_mesh["lanes_per_program"].values()) == {1} and on_mesh["workers"] == len(units)


@settings(deadline=None)
@given(st.data(), numbers, st.integers(1, 5), st.integers(1, 4))
def test_packs_keep_their_runs_and_hold_all_missing_runs(data, numbers, size, workers):
    """A pack does not depend on which runs are finished. Packs without a missing run are left out."""
    found = [
        Planned(f"s{i}", SimpleNamespace(flops_per_run=float(10 - i)), None, {f"{i}-{j:03d}": None for j in range(n)})
        for i, n in enumerate(numbers)
    ]
    sizes, runs = {s.label: size for s in found}, [run for s in found for run in s.runs]
    missing = set(data.draw(st.lists(st.sampled_from(runs)))) if runs else set()
    everything = packs_of(found, sizes, workers, set(runs))
    packs = packs_of(found, sizes, workers, missing)
    assert sorted(run for pack in everything for run in pack.runs) == sorted(runs)
    assert all(len(pack.runs) <= pack.size == size for pack in packs)
    assert [pack for pack in everything if not missing.isdisjoint(pack.runs)] == packs or workers > 1
    assert {tuple(p.runs) for p in packs} == {tuple(p.runs) for p in everything if not missing.isdisjoint(p.runs)}


def test_expensive_settings_come_first():
    costs = {"a": 1e9, "b": 8e9, "c": 4e9, "d": 2e9}
    found = [
        Planned(label, SimpleNamespace(flops_per_run=cost), None, {f"{label}{i}": None for i in range(4)})
        for label, cost in costs.items()
    ]
    missing = {run for setting in found for run in setting.runs}
    order = [pack.label for pack in packs_of(found, dict.fromkeys(costs, 1), 2, missing)]
    assert "".join(order) == "bcbcbcbc" + "dadadada"


def test_the_table_has_sums():
    head, *rows, last = forecast.table([*planned([2, 3]), SettingRuns("sums", CALCULATED, [{}] * 4)]).splitlines()
    assert head.split() == ["setting", "runs", "params", "tokens", "FLOPs"] and len(rows) == 3
    assert [row.split()[1] for row in (*rows, last)] == ["2", "3", "4", "9"]
    flops = 5 * TRAINED.flops_per_run + 4e15
    assert last.endswith(forecast.si(flops)) and forecast.si(5 * TRAINED.tokens_per_run) in last


def test_the_expected_time_is_the_work_over_the_speed():
    """A matrix product runs at 10 GFLOP/s on all cores (`conftest.speed`)."""
    swept = planned([4])
    expected = forecast.expected(swept, 2, accelerator=False)
    speed = 1e10 * forecast.training_share(TRAINED)
    assert expected.seconds == pytest.approx(forecast.START + forecast.COMPILE + 4 * TRAINED.flops_per_run / speed)
    assert expected.basis == "5 GFLOP/s per worker, of a matrix product"
    assert "assumed for an accelerator" in forecast.expected(swept, 1, accelerator=True).basis
    assert forecast.expected(planned([0]), 2, accelerator=False).seconds == forecast.START


def test_the_share_lies_between_those_of_neighbours():
    def share(params):
        return forecast.training_share(SimpleNamespace(num_params=params))

    sizes, shares = [*forecast.TRAINING_SHARE], [*forecast.TRAINING_SHARE.values()]
    assert [share(size) for size in sizes] == pytest.approx(shares)
    assert share(1) == pytest.approx(shares[0]) and share(10**9) == pytest.approx(shares[-1])
    assert share((sizes[0] * sizes[1]) ** 0.5) == pytest.approx((shares[0] + shares[1]) / 2)


def test_the_shares_are_those_of_the_committed_benchmark():
    benchmark = json.loads((ROOT / "experiments" / "results" / "benchmarks" / "training_share.json").read_text())
    measured = {int(params): round(share, 2) for params, share in benchmark["raw"]["shares"].items()}
    assert measured == forecast.TRAINING_SHARE


def test_a_budget_leaves_out_runs_with_records(capsys, monkeypatch, cache):
    """All runs of the committed sweep, those that depend on results among them, have a record."""
    monkeypatch.setenv("LVP_CACHE", str(cache))
    committed = result("linear_network/laptop-zipf")
    reuse = committed.folder / "records.jsonl.gz"
    dry = {"dry_run": True, "budget": "11s"}
    with pytest.raises(InputError, match="budget=11s is less than the expected"):
        sweeps.run("linear_network", "laptop", **dry)
    sweeps.run("linear_network", "laptop", reuse=reuse, **dry)
    assert "0 of these runs have no record in --reuse" in capsys.readouterr().out


def test_a_budget_counts_the_runs_that_results_may_add(capsys):
    values = {"corpus": "zipf:1", "rates": "0.003,0.01,0.03,0.1,0.3", "seeds": "0,1,2", "dry_run": True}
    for design in ("grid", "adaptive"):
        with pytest.raises(InputError, match="budget=1s is less than the expected") as refused:
            sweeps.run("width_vocab", "smoke", budget="1s", design=design, **values)
        assert "\n" not in str(refused.value)
    sweeps.run("width_vocab", "smoke", budget="1000d", design="adaptive", **values)
    assert "at most 45 runs with those that depend on results" in capsys.readouterr().out


@pytest.mark.parametrize("text, seconds", [("90s", 90), ("45m", 2700), ("2h", 7200), ("1.5d", 129600)])
def test_budgets(text, seconds):
    assert forecast.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["2", "0h", "-1h", "2 hours", "h", "1e3s", ""])
def test_a_budget_of_another_form_is_refused(text):
    with pytest.raises(InputError, match=r"is no duration: use a number above 0 with s, m, h or d, such as 2h"):
        forecast.seconds_of(text)


@pytest.mark.parametrize("seconds, text", [(5, "5 s"), (600, "10 min"), (7200, "2.0 h"), (864000, "10.0 days")])
def test_durations(seconds, text):
    assert forecast.duration(seconds) == text


def test_the_options_that_a_continued_sweep_repeats():
    assert Options(executor="local", pack=2, checkpoint_seconds=1.0).words() == ["--executor", "local"]
    every = Options(ray_address="here:1", allow_other_version=True).words()
    assert every == ["--ray-address", "here:1", "--allow-other-version"] and Options().words() == []
