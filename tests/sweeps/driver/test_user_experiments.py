"""Experiments in a user's file: run by each executor, executed only by `run`, `resume` and `figure`, refused with a
one-line error if the file has changed."""

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
    """Writes the experiment's file. Each execution of it appends the process id to the file `trace` beside it."""
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
    """A directory with a copy of the finished sweep and of its file, for one test."""
    folder, _ = began
    shutil.copytree(folder / "out", tmp_path / "out")
    written(tmp_path)
    manifest = Manifest.read(tmp_path / "out")
    dataclasses.replace(manifest, source=user_experiments.source(folder / "mine.py")).write()
    return tmp_path


def one_line(call, *says):
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and all(word in message for word in says), message


def test_records_follow_up_lanes_table_and_figure(began):
    folder, table = began
    assert sorted(table["y"]) == [0, 1, 4, 16]  # the last lane depends on the others
    rows = records.read(folder / "out" / "records")
    assert {r["experiment"] for r in rows} == {"squares"}
    assert (folder / "out" / "figure.svg").exists()
    processes = executions(folder)
    assert len(processes) == len(set(processes)) >= 2  # executed once per process


@pytest.mark.slow
def test_a_follow_up_with_a_limit_is_called_until_it_adds_no_lane(tmp_path, capsys, monkeypatch):
    """Each round squares the largest square below 100: 0, 1, 4, then 16, then 256. The worker is in this process."""
    monkeypatch.setattr(api, "_holds_accelerator", lambda: "gpu")
    more = "follow_up=lambda table, config: {'squares': [{'x': int(y)} for y in [table['y'].max()] if y < 100]},"
    limit = "limit=lambda config: [cells(config)[0]._replace(lanes=[{'x': i} for i in range(100)])],"
    path, out = written(tmp_path, FILE.replace("follow_up=follow_up,", more + limit)), tmp_path / "out"
    table = api.run(path, "smoke", out=out, executor="local")
    printed = capsys.readouterr().out
    assert sorted(table["y"]) == [0, 1, 4, 16, 256]
    assert "at most 100 lanes" in printed and printed.count("1 lanes added that depend on these results") == 2
    before = executions(tmp_path)
    user_experiments._executed.cache_clear()
    assert "5 of 5 lanes have a record" in api.status(out) and executions(tmp_path) == before
    assert json.loads((out / lane_index.NAME).read_text())["more"] is False

    # A lost record of each round: the cells end with the first incomplete round, and a resumed sweep has all lanes.
    by_lane = {h: lane["x"] for h, lane in Manifest.read(out).cells[0].lanes.items()}
    recorded = {lane: Manifest.read(out).record_path(h).read_bytes() for h, lane in by_lane.items()}
    for lost, left in ((2, [0, 1, 2]), (4, [0, 1, 2, 4]), (16, [0, 1, 2, 4, 16])):
        (name,) = (h for h, x in by_lane.items() if x == lost)
        kept = Manifest.read(out).record_path(name).rename(tmp_path / "kept")
        (entry,) = Manifest.read(out).cells
        assert [lane["x"] for lane in entry.lanes.values()] == left
        kept.rename(Manifest.read(out).record_path(name))
    Manifest.read(out).record_path(next(iter(by_lane))).unlink()
    assert sorted(api.resume(out, options=LOCAL, quiet=True)["y"]) == [0, 1, 4, 16, 256]
    kept = {lane: Manifest.read(out).record_path(h).read_bytes() for h, lane in by_lane.items() if lane != 0}
    assert kept.items() <= recorded.items()


@pytest.mark.slow
def test_ray_workers_execute_the_file(command, tmp_path):
    path = written(tmp_path, FILE.replace("follow_up=follow_up,", ""))
    done = command("run", path, "--preset", "smoke", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "sum 5" in done.stdout and "supported: squares" in done.stdout
    assert len(list((tmp_path / "out" / "records").iterdir())) == 3 and len(executions(tmp_path)) >= 2


def test_status_and_table_do_not_execute_the_file(began):
    folder, table = began
    before = executions(folder)
    user_experiments._executed.cache_clear()
    text = api.status(folder / "out")
    assert "squares, tier smoke" in text and "4 of 4 lanes have a record" in text
    assert sorted(api.table_of(folder / "out")["y"]) == sorted(table["y"])
    assert executions(folder) == before
    results.draw(Manifest.read(folder / "out"), say=lambda *_: None)
    assert len(executions(folder)) == len(before) + 1  # control: drawing executes the file


@pytest.mark.slow
def test_a_sweep_continues_with_its_copy_of_the_file(sweep):
    """The user's file may be edited or deleted while the sweep runs."""
    out, path = sweep / "out", sweep / "mine.py"
    for change in (lambda: path.write_text("raise ValueError('half edited')"), path.unlink):
        change()
        shutil.rmtree(out / "records")
        assert len(api.resume(out, options=LOCAL, quiet=True)) == 4
        results.draw(Manifest.read(out), say=lambda *_: None)


def test_a_missing_or_changed_file_is_refused_without_the_copy(sweep, tmp_path):
    out = tmp_path / "out"
    path = tmp_path / "mine.py"
    begun = dataclasses.replace(Manifest.read(out), source=user_experiments.source(path))
    begun.begin()
    begun.make_lane_directories()
    lane_index.write(begun)
    (tmp_path / "trace").unlink()  # writing the lane index has executed the file
    path.write_text(path.read_text() + "# changed\n")
    # First the copy differs from the manifest's file, then it is missing.
    for change_copy in (lambda: None, (out / user_experiments.KEPT).unlink):
        change_copy()
        for call in (lambda: api.resume(out, quiet=True), lambda: results.draw(Manifest.read(out), print)):
            one_line(call, str(path), "changed", "--experiment")
    path.unlink()
    for call in (lambda: api.resume(out, quiet=True), lambda: results.draw(Manifest.read(out), print)):
        one_line(call, str(path), "No such file")
    assert "4 of 4 lanes" in api.status(out) and executions(tmp_path) == []


def test_the_driver_does_not_need_the_lane_index(sweep):
    """The driver may execute the file; `status` may not."""
    (sweep / "out" / lane_index.NAME).unlink()
    manifest = Manifest.read(sweep / "out")
    one_line(lambda: status.status(manifest), lane_index.NAME)
    assert [c.finished for c in status.status(manifest, execute=True).cells] == [4]


def test_a_changed_file_draws_a_figure_on_request_and_starts_another_sweep(sweep):
    out, path = sweep / "out", sweep / "mine.py"
    path.write_text(path.read_text().replace("sum {", "total {"))
    printed = []
    results.draw(Manifest.read(out).with_file(str(path)), say=lambda *lines: printed.extend(lines))
    assert "total 21" in printed
    one_line(lambda: api.run(path, "smoke", out=out, executor="local", quiet=True), "holds another sweep")
    path.write_text(path.read_text().replace('name="squares"', 'name="cubes"'))
    one_line(lambda: Manifest.read(out).with_file(str(path)), "cubes", "squares")


def test_a_moved_file_is_the_same_experiment(began, sweep, tmp_path):
    folder, _ = began
    moved = tmp_path / "elsewhere.py"
    shutil.copy(folder / "mine.py", moved)
    table = api.run(moved, "smoke", out=tmp_path / "out", executor="local", quiet=True)
    assert len(table) == 4 and Manifest.read(tmp_path / "out").source.path == str(moved)


def test_a_manifest_with_an_invalid_source_is_refused(sweep):
    path = sweep / "out" / "manifest.json"
    whole = json.loads(path.read_text())
    for changed in ({"source": None}, {"source": {"path": 3, "sha256": "0"}}, {"source": {"path": "mine.py"}}):
        content = whole | changed
        del content["digest"]
        path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
        one_line(lambda: api.status(sweep / "out"), "manifest.json")


def test_status_without_the_lane_index_does_not_execute_the_file(sweep):
    (sweep / "out" / lane_index.NAME).unlink()
    one_line(lambda: api.status(sweep / "out"), lane_index.NAME, "resume")
    one_line(lambda: api.table_of(sweep / "out"), lane_index.NAME)
    assert executions(sweep) == []


def test_a_sweep_of_lvps_own_experiment_is_not_drawn_with_a_file(sweep):
    manifest = Manifest(sweep / "out", "width_vocab", "smoke", {}, {})
    one_line(lambda: manifest.with_file(str(sweep / "mine.py")), "lvp's own experiment width_vocab")
    assert executions(sweep) == []


def test_a_sweep_of_a_users_file_is_not_published(sweep):
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
        ("x = 1\n", "it defines none"),
        (FILE + "\nSECOND = __import__('dataclasses').replace(EXPERIMENT, name='cubes')", "it defines squares, cubes"),
        (FILE.replace('name="squares"', 'name="warmup"'), "lvp has an experiment called warmup"),
        (FILE.replace('name="squares"', 'name="../evil"'), "'../evil'"),
        (FILE.replace('corpus: str = "none"', "size: int = 1"), "with a corpus"),
        (
            FILE.replace('corpus: str = "none"', 'corpus: str = "none"; x: float = float("inf")'),
            "converted to JSON",
        ),
    ],
    ids=lambda text: None if len(text) > 40 else text,
)
def test_an_unusable_file_gives_a_one_line_error(text, says, tmp_path):
    path = written(tmp_path, text)
    one_line(lambda: api.run(path, "smoke", dry_run=True), str(path), says)


def test_a_missing_file_and_a_directory_give_one_line_errors(tmp_path):
    one_line(lambda: api.run(tmp_path / "none.py", "smoke"), str(tmp_path / "none.py"), "No such file")
    (tmp_path / "folder.py").mkdir()
    one_line(lambda: api.run(tmp_path / "folder.py", "smoke"), "folder.py", "directory")


def test_two_optimizers_with_one_name_are_refused():
    from experiments import width_vocab

    (first, second, *_), make = width_vocab.config.cells(width_vocab.TIERS["smoke"]), lambda learning_rate: None

    def named(planned, factory):
        return planned._replace(cell=dataclasses.replace(planned.cell, optimizer=OptimizerConfig("x", {}, (), factory)))

    user_experiments.check_cells([named(first, make), named(second, make)])
    one_line(
        lambda: user_experiments.check_cells([named(first, make), named(second, lambda learning_rate: None)]),
        "another optimizer with the name x",
    )
