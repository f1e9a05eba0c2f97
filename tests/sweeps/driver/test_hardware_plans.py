"""Compiled plans of a tier: written as they are compiled, and read by the forecast."""

import json
from dataclasses import replace

import jax
import pytest

import experiments
from lvp.errors import InputError
from lvp.plan import TooLarge
from lvp.plan.packs import PackPlan
from sweeps.driver import api, hardware_plans
from sweeps.driver.forecast import duration

TIER = "gpu"
V5E = hardware_plans.ACCELERATORS["v5e"]
CELLS = list(hardware_plans._trained(experiments.load("muon"), TIER))


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    """The cells that are compiled. The plans take 2 s per step of a pack of 4 lanes on a v5e."""
    asked = []

    def largest_pack(task, num_lanes, topology, memory):
        asked.append(task.cell)
        assert num_lanes == len(next(c.lanes for c in CELLS if c.cell == task.cell)) > 0
        return PackPlan(4, 1, 2**30, 2 * V5E.flops)

    monkeypatch.setattr(hardware_plans, "largest_pack", largest_pack)
    monkeypatch.setattr(hardware_plans, "devices_of", lambda topology: (jax.devices(), V5E))
    monkeypatch.setattr(hardware_plans, "FOLDER", tmp_path / "plans")
    return asked


def test_every_trained_cell_is_compiled_once(compilations):
    said = []
    hardware_plans.write("muon", TIER, "v5e", said.append)
    assert compilations == [c.cell for c in CELLS]
    time = duration(CELLS[0].cell.steps * 2 / 4)
    assert said[0] == f"{CELLS[0].label}: 4 lanes on 1 device, 1.0 GiB per device, at least {time} per lane"
    hardware_plans.write("muon", TIER, "v5e", said.append)
    assert len(compilations) == len(CELLS)  # control: nothing is compiled again
    hardware_plans.write("muon", TIER, "v6e", said.append)
    assert len(compilations) == 2 * len(CELLS)


def test_an_interrupted_command_keeps_the_plans_that_it_has(compilations):
    def stop(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hardware_plans.write("muon", TIER, "v5e", stop)
    with pytest.raises(KeyboardInterrupt):
        hardware_plans.write("muon", TIER, "v5e", stop)
    assert compilations == [c.cell for c in CELLS[:2]]


def test_the_forecast_has_the_planned_time_of_every_accelerator(compilations, capsys):
    api.run("muon", TIER, corpus="zipf:1", dry_run=True)
    assert "assumed, not measured" in capsys.readouterr().out  # control: without plans
    for name in ("v5e", "v6e"):
        hardware_plans.write("muon", TIER, name, lambda line: None)
    api.run("muon", TIER, corpus="zipf:1", dry_run=True)
    printed = capsys.readouterr().out
    assert "(compiled for 1 v5e: at least, at peak rates of arithmetic and memory)" in printed
    first = experiments.load("muon").cells(experiments.configured("muon", TIER))
    training = sum(len(c.lanes) * c.cell.steps * 2 / 4 for c in first)
    assert f"{duration(training)} of training (compiled for 1 v5e" in printed
    assert "\non v6e: " in printed and "\non v5p: " not in printed


def test_another_corpus_has_the_same_plan_and_another_size_has_none(compilations):
    hardware_plans.write("muon", TIER, "v5e", lambda line: None)
    speed = hardware_plans.speed("muon", TIER, "v5e")
    for changes, known in (({"corpus": "zipf:1"}, True), ({"batch": 2}, False)):
        cells = experiments.load("muon").cells(experiments.configured("muon", TIER, changes))
        assert [speed.flops_of(c.cell) is not None for c in cells] == [known] * len(cells)


def test_a_cell_that_is_too_large_is_recorded_and_not_forecast(compilations, monkeypatch):
    def refuse(task, num_lanes, topology, memory):
        raise TooLarge("a lane needs 3 bytes")

    monkeypatch.setattr(hardware_plans, "largest_pack", refuse)
    said = []
    hardware_plans.write("muon", TIER, "v5e", said.append)
    assert said[0] == f"{CELLS[0].label}: does not fit on v5e:4x4: a lane needs 3 bytes"
    (path,) = hardware_plans.FOLDER.iterdir()
    assert all(
        of_cell == {"v5e": {"refused": "a lane needs 3 bytes", "jax": jax.__version__}}
        for of_cell in json.loads(path.read_text()).values()
    )
    assert hardware_plans.speed("muon", TIER, "v5e").flops_of(CELLS[0].cell) is None


def test_unusable_arguments_are_refused(compilations):
    write = hardware_plans.write
    with pytest.raises(InputError, match="accelerator 'v5'.*did you mean v5"):
        write("muon", TIER, "v5", print)
    with pytest.raises(InputError, match="tier 'laptop' has no plans; use gpu or paper"):
        write("muon", "laptop", "v5e", print)
    with pytest.raises(InputError, match="feature_learning trains no model at tier gpu"):
        write("feature_learning", TIER, "v5e", print)
    with pytest.raises(InputError, match="did you mean muon"):
        write("muons", TIER, "v5e", print)
    hardware_plans.FOLDER.mkdir()
    (hardware_plans.FOLDER / f"muon-{TIER}.json").write_text("{")
    with pytest.raises(InputError, match="is not valid JSON; restore it with `git restore`"):
        write("muon", TIER, "v5e", print)
    assert not compilations


def test_the_table_has_a_row_per_cell_and_a_column_per_accelerator(compilations):
    hardware_plans.write("muon", TIER, "v5p", lambda line: None)
    _, _, *rows = hardware_plans.table().splitlines()
    seconds = 2 * V5E.flops / hardware_plans.ACCELERATORS["v5p"].flops / 4
    for row, planned in zip(rows, CELLS, strict=True):
        time = duration(planned.cell.steps * seconds)
        assert row == f"| muon, {TIER} | {planned.label} | – | 4, 1.0 GiB, {time} | – | – |"


def test_cells_whose_lanes_depend_on_results_have_lanes():
    """The leaderboard has no limit of its lanes, and some of its cells get all lanes from results."""
    assert all(planned.lanes for planned in hardware_plans._trained(experiments.load("leaderboard"), TIER))


def test_the_order_of_the_data_changes_the_program():
    cell = CELLS[0].cell
    streamed = replace(cell, data=replace(cell.data, order="rows"))
    assert hardware_plans.program_hash(streamed) != hardware_plans.program_hash(cell)


def test_scored_steps_leave_the_plan_as_it_is():
    config = experiments.configured(experiments.load("pretrain_1b"), TIER)
    cells = experiments.load("pretrain_1b").cells(config)
    assert len(cells) == 2 and len({hardware_plans.program_hash(planned.cell) for planned in cells}) == 1
