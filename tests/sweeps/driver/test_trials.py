"""Division of lanes into trials: each lane once, packs complete, expensive cells first."""

from types import SimpleNamespace

import pytest

from sweeps.driver import forecast, trials


def manifest(costs, lanes):
    cells = [
        SimpleNamespace(
            label=f"c{i}",
            cell=SimpleNamespace(flops_per_lane=cost),
            lanes={f"{i}-{j:04d}": None for j in range(lanes)},
        )
        for i, cost in enumerate(costs)
    ]
    return SimpleNamespace(cells=cells)


@pytest.mark.parametrize("workers, pack, lanes", [(1, 1, 27), (2, 1, 27), (2, 4, 27), (4, 64, 10)])
def test_each_lane_is_in_exactly_one_trial(workers, pack, lanes):
    m = manifest([1e9, 4e9, 2e9], lanes)
    packs = {e.label: pack for e in m.cells}
    made = trials.trials(m, packs, workers, set())
    assert sorted(h for t in made for h in t["lanes"]) == sorted(h for e in m.cells for h in e.lanes)
    assert len({t["id"] for t in made}) == len(made)
    for trial in made:
        assert all(h.startswith(f"{trial['cell']}-") for h in trial["lanes"])


def test_resuming_keeps_packs_together_and_skips_finished_packs():
    m = manifest([1e9], 10)
    done = {f"0-{j:04d}" for j in (0, 1, 2, 3, 5)}
    (whole,) = {t["pack"] for t in trials.trials(m, {"c0": 4}, 1, done)}
    lanes = [h for t in trials.trials(m, {"c0": 4}, 1, done) for h in t["lanes"]]
    # The first pack is finished. The second has one finished lane, which stays in its pack.
    assert whole == 4 and lanes == [f"0-{j:04d}" for j in range(4, 10)]
    assert trials.trials(m, {"c0": 4}, 1, {f"0-{j:04d}" for j in range(10)}) == []


def test_expensive_cells_come_first_and_alternate():
    m = manifest([1e9, 8e9, 4e9, 2e9], 27)
    order = [t["cell"] for t in trials.trials(m, dict.fromkeys(["c0", "c1", "c2", "c3"], 1), 2, set())]
    assert order[:4] == [1, 2, 1, 2] and set(order[-2:]) <= {0, 3}


def test_many_cheap_lanes_make_few_trials():
    m = manifest([1.0, 1.0], 1000)
    assert len(trials.trials(m, {"c0": 1, "c1": 1}, 2, set())) <= 200


@pytest.mark.parametrize("seconds, text", [(5, "5 s"), (600, "10 min"), (7200, "2.0 h"), (864000, "10.0 days")])
def test_duration(seconds, text):
    assert forecast.duration(seconds) == text
