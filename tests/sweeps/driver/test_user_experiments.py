"""Experiments in files of somebody's own: run by every executor, executed by nobody who was not asked to, refused in
one line where they are not what the sweep began with."""

import dataclasses
import json
import shutil

import pytest

from experiments.common import user_experiments
from lvp.errors import InputError
from lvp.training import OptimizerConfig, records
from sweeps.driver import api, lane_index, status
from sweeps.driver.manifest import Manifest
from sweeps.driver.options import Options
from sweeps.reporting import results

FILE = """
from __future__ import annotations

import os
from dataclasses import dataclass

from experiments.common.experiment import Calculation, CellLanes, Experiment
from lvp.analysis.claims import Claim, judge
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series

open(TRACE, "a").write(f"{os.getpid()} ")


@dataclass(frozen=True)
class Config:
    corpus: str = "none"
    count: int = 3


def cells(config):
    return [CellLanes("squares", Calculation({"power": 2}, 1.0), [{"x": i} for i in range(config.count)])]


def follow_up(table, config):
    return {"squares": [{"x": int(table["y"].max())}]}


def figure(table, config, **origin):
    series = Series("ours", table["lane.x"] + 1, table["y"] + 1)
    return sheet([Panel("squares", "x", "y", [series])], title="", **origin)


def claims(table, config, context):
    says = {"statement": "squares", "source": "arithmetic", "paper_value": 4.0}
    return [Claim(**says, value=4.0, interval=(4.0, 4.0), verdict=judge(4.0, (4.0, 4.0), claimed=4.0), **context)]


EXPERIMENT = Experiment(
    name="squares",
    question="what are the squares?",
    tiers={"smoke": Config()},
    cells=cells,
    summary=lambda table, config: f"sum {table['y'].sum()}",
    figure=figure,
    claims=claims,
    follow_up=follow_up,
    calculate=lambda arguments, lane, dataset: {"y": lane["x"] ** arguments["power"]},
)
"""


LOCAL = Options(executor="local")


def written(folder, text=FILE):
    """The file, which leaves its process in `trace` beside it whenever it is executed."""
    path = folder / "mine.py"
    path.write_text(text.replace("TRACE", repr(str(folder / "trace"))))
    return path


def executions(folder):
    return (folder / "trace").read_text().split() if (folder / "trace").exists() else []


@pytest.fixture(scope="module")
def began(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    table = api.run(written(folder), "smoke", out=folder / "out", executor="local", quiet=True)
    return folder, table


@pytest.fixture
def sweep(began, tmp_path):
    """The folder of a finished sweep and its file, for one test alone."""
    folder, _ = began
    shutil.copytree(folder / "out", tmp_path / "out")
    written(tmp_path)
    manifest = Manifest.read(tmp_path / "out")
    dataclasses.replace(manifest, source=user_experiments.source(folder / "mine.py")).write()
    return tmp_path


def one_line(call, *says):
    with pytest.raises(InputError) as caught:
        call()
    said = str(caught.value)
    assert len(said.splitlines()) == 1 and all(word in said for word in says), said


def test_lanes_of_workers_follow_ups_table_and_figure(began):
    folder, table = began
    assert sorted(table["y"]) == [0, 1, 4, 16]  # the last lane follows from the others
    found = records.read(folder / "out" / "records")
    assert {r["experiment"] for r in found} == {"squares"}
    assert (folder / "out" / "figure.svg").exists()
    processes = executions(folder)
    assert len(processes) == len(set(processes)) >= 2  # once in each


@pytest.mark.slow
def test_ray_workers_know_the_file_too(command, tmp_path):
    path = written(tmp_path, FILE.replace("follow_up=follow_up,", ""))
    done = command("run", path, "--tier", "smoke", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "sum 5" in done.stdout and "supported: squares" in done.stdout
    assert len(list((tmp_path / "out" / "records").iterdir())) == 3 and len(executions(tmp_path)) >= 2


def test_status_and_the_table_execute_nothing(began):
    folder, table = began
    before = executions(folder)
    user_experiments._executed.cache_clear()
    said = api.status(folder / "out")
    assert "squares, tier smoke" in said and "4 of 4 lanes have a record" in said
    assert sorted(api.table_of(folder / "out")["y"]) == sorted(table["y"])
    assert executions(folder) == before
    results.draw(Manifest.read(folder / "out"), say=lambda *_: None)
    assert len(executions(folder)) == len(before) + 1  # else the test would pass for nothing


@pytest.mark.slow
def test_a_sweep_goes_on_with_the_file_it_began_with(sweep):
    """Whoever edits the file while the sweep runs, or loses it, costs nothing."""
    out, path = sweep / "out", sweep / "mine.py"
    for change in (lambda: path.write_text("raise ValueError('half edited')"), path.unlink):
        change()
        shutil.rmtree(out / "records")
        assert len(api.resume(out, options=LOCAL, quiet=True)) == 4
        results.draw(Manifest.read(out), say=lambda *_: None)


def test_without_its_copy_a_missing_file_and_a_changed_one_are_refused(sweep, tmp_path):
    out = tmp_path / "out"
    path = tmp_path / "mine.py"
    begun = dataclasses.replace(Manifest.read(out), source=user_experiments.source(path))
    begun.begin()
    begun.make_lane_directories()
    lane_index.write(begun)
    (tmp_path / "trace").unlink()  # of writing down its cells, which executes it
    path.write_text(path.read_text() + "# changed\n")
    for copy in (
        lambda: None,
        (out / user_experiments.KEPT).unlink,
    ):  # of another file than the manifest says, and none
        copy()
        for call in (lambda: api.resume(out, quiet=True), lambda: results.draw(Manifest.read(out))):
            one_line(call, str(path), "changed", "--experiment")
    path.unlink()
    for call in (lambda: api.resume(out, quiet=True), lambda: results.draw(Manifest.read(out))):
        one_line(call, str(path), "No such file")
    assert "4 of 4 lanes" in api.status(out) and executions(tmp_path) == []


def test_the_driver_needs_no_lane_index(sweep):
    """It has executed the file; whoever asks for the status has not."""
    (sweep / "out" / lane_index.NAME).unlink()
    manifest = Manifest.read(sweep / "out")
    one_line(lambda: status.status(manifest), lane_index.NAME)
    assert [c.finished for c in status.status(manifest, execute=True).cells] == [4]


def test_a_changed_file_draws_where_it_is_named_and_begins_a_sweep_of_its_own(sweep):
    out, path = sweep / "out", sweep / "mine.py"
    path.write_text(path.read_text().replace("sum {", "total {"))
    said = []
    results.draw(Manifest.read(out).with_file(str(path)), say=lambda *lines: said.extend(lines))
    assert "total 21" in said
    one_line(lambda: api.run(path, "smoke", out=out, executor="local", quiet=True), "holds another sweep")
    path.write_text(path.read_text().replace('name="squares"', 'name="cubes"'))
    one_line(lambda: Manifest.read(out).with_file(str(path)), "cubes", "squares")


def test_a_file_that_was_moved_is_the_same_experiment(began, sweep, tmp_path):
    folder, _ = began
    moved = tmp_path / "elsewhere.py"
    shutil.copy(folder / "mine.py", moved)
    table = api.run(moved, "smoke", out=tmp_path / "out", executor="local", quiet=True)
    assert len(table) == 4 and Manifest.read(tmp_path / "out").source.path == str(moved)


def test_a_manifest_that_lacks_half_of_it_is_none(sweep):
    path = sweep / "out" / "manifest.json"
    whole = json.loads(path.read_text())
    for changed in ({"source": None}, {"source": {"path": 3, "sha256": "0"}}, {"source": {"path": "mine.py"}}):
        content = whole | changed
        del content["digest"]
        path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
        one_line(lambda: api.status(sweep / "out"), "manifest.json")


def test_status_executes_nothing_where_the_cells_are_not_written_down(sweep):
    (sweep / "out" / lane_index.NAME).unlink()
    one_line(lambda: api.status(sweep / "out"), lane_index.NAME, "resume")
    one_line(lambda: api.table_of(sweep / "out"), lane_index.NAME)
    assert executions(sweep) == []


def test_a_sweep_of_lvps_own_is_not_drawn_with_a_file(sweep):
    manifest = Manifest(sweep / "out", "width_vocab", "smoke", {}, {})
    one_line(lambda: manifest.with_file(str(sweep / "mine.py")), "lvp's own experiment width_vocab")
    assert executions(sweep) == []


def test_it_is_not_published(sweep):
    one_line(lambda: results.publish(sweep / "out"), "mine.py")


@pytest.mark.parametrize(
    "text, says",
    [
        ("x = (\n", ":1: SyntaxError"),
        ("\n\nimport no_such_module\n", ":3: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f():\n    return 1 / 0\n\nf()\n", ":2: ZeroDivisionError"),
        ("raise SystemExit('bye')\n", ":1: SystemExit: bye"),
        ("raise ValueError('two\\nlines')\n", ":1: ValueError: two"),
        ("x = 1\0\n", "null bytes"),
        ("x = 1\n", "holds none"),
        (FILE + "\nSECOND = __import__('dataclasses').replace(EXPERIMENT, name='cubes')", "holds squares, cubes"),
        (FILE.replace('name="squares"', 'name="warmup"'), "lvp has an experiment called warmup"),
        (FILE.replace('name="squares"', 'name="../evil"'), "'../evil'"),
        (FILE.replace('corpus: str = "none"', "size: int = 1"), "with a corpus"),
        (
            FILE.replace('corpus: str = "none"', 'corpus: str = "none"; x: float = float("inf")'),
            "written down",
        ),
    ],
    ids=lambda text: None if len(text) > 40 else text,
)
def test_a_file_that_cannot_be_used_gets_one_line(text, says, tmp_path):
    path = written(tmp_path, text)
    one_line(lambda: api.run(path, "smoke", dry_run=True), str(path), says)


def test_no_file(tmp_path):
    one_line(lambda: api.run(tmp_path / "none.py", "smoke"), str(tmp_path / "none.py"), "No such file")
    (tmp_path / "folder.py").mkdir()
    one_line(lambda: api.run(tmp_path / "folder.py", "smoke"), "folder.py", "directory")


def test_one_name_for_two_optimizers_is_refused():
    from experiments import width_vocab

    (first, second, *_), make = width_vocab.config.cells(width_vocab.TIERS["smoke"]), lambda learning_rate: None

    def named(planned, factory):
        return planned._replace(cell=dataclasses.replace(planned.cell, optimizer=OptimizerConfig("x", {}, (), factory)))

    user_experiments.check_cells([named(first, make), named(second, make)])
    one_line(
        lambda: user_experiments.check_cells([named(first, make), named(second, lambda learning_rate: None)]),
        "optimizer x",
    )
