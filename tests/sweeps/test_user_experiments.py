"""Experiments in users' files: runs that depend on results, errors and changes."""

import dataclasses
import shutil

import pytest

from lvp import sweeps
from lvp.errors import InputError
from lvp.experiments.common import user_experiments
from lvp.files.places import Directory
from lvp.sweeps import commands
from lvp.sweeps.sweep import Sweep
from lvp.training import OptimizerConfig, records
from tests.sweeps.own_files import FILE, FOLLOW_UP, MORE, ONE_MORE, anew, executions, written  # noqa: F401  fixture

WITH_FOLLOW_UP = FOLLOW_UP, ("\n\n\nEXPERIMENT", ONE_MORE)


def inline(path, out, **options):
    return sweeps.run(path, "smoke", out=out, executor="inline", **{"quiet": True, **options})


def one_line(call, *says):
    """Asserts that a call raises a one-line InputError with these words."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and all(word in message for word in says), message


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_workers_execute_the_file(command, executor, tmp_path):
    path, out = written(tmp_path, *WITH_FOLLOW_UP), tmp_path / "out"
    done = command("run", path, "--preset", "smoke", "--executor", executor, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "sum 21" in done.stdout and "1 runs that depend on these results" in done.stdout
    assert sorted(sweeps.table_of(out)["y"]) == [0, 1, 4, 16]
    assert executions(tmp_path) >= 2  # once per process
    assert {row["experiment"] for row in records.read(out / "records")} == {"squares"}
    lost = sorted((out / "records").iterdir())[0]
    lost.unlink()
    path.write_text(path.read_text() + "\n# changed\n")  # the control: the present file decides
    done = command("resume", out, "--executor", executor, "--experiment", path)
    assert done.returncode == 2 and "changed since the sweep" in done.stderr and not lost.exists()


def test_a_follow_up_without_a_limit_is_called_once(tmp_path):
    """The square of the largest square of 0, 1 and 2 is 16, and follow_up is not called for it."""
    path, out = written(tmp_path, *WITH_FOLLOW_UP), tmp_path / "out"
    table = inline(path, out)
    assert sorted(table["y"]) == [0, 1, 4, 16]
    assert "3 of 3 runs have a record\n1 further runs, which depend on results" in commands.status(out)
    before = {file.name: file.read_bytes() for file in (out / "records").iterdir()}
    for name in before:
        (out / "records" / name).unlink()
        assert len(sweeps.resume(out, executor="inline", quiet=True, experiment=path)) == 4
        assert {file.name for file in (out / "records").iterdir()} == before.keys()


def test_a_follow_up_is_called_until_it_adds_no_run(tmp_path, capsys):
    """Each round squares the largest square below 100: 0, 1 and 4, then 16, then 256."""
    limit = (
        FOLLOW_UP[1]
        + "\n    limit=lambda config: [settings(config)[0]._replace(runs=[{'x': i} for i in range(MOST)])],"
    )

    def swept(most, out, **options):
        path = written(tmp_path, (FOLLOW_UP[0], limit.replace("MOST", str(most))), ("\n\n\nEXPERIMENT", MORE))
        return inline(path, out, **options), path

    table, path = swept(100, tmp_path / "out", quiet=False)
    printed = capsys.readouterr().out
    assert sorted(table["y"]) == [0, 1, 4, 16, 256] and "at most 100 runs with those that depend" in printed
    assert printed.count("1 runs that depend on these results") == 2
    assert sorted(swept(4, tmp_path / "four")[0]["y"]) == [0, 1, 4, 16]  # the limit ends the rounds

    # Records of another sweep are taken for all rounds: nothing is calculated again.
    earlier, out = records.read(tmp_path / "out" / "records"), tmp_path / "reused"
    assert len(swept(100, out, reuse=tmp_path / "out" / "records", quiet=False)[0]) == 5
    assert records.read(out / "records") != [] and not (out / "programs").exists()
    assert [row["outcome"] for row in records.read(out / "records")] == [row["outcome"] for row in earlier]


@pytest.mark.parametrize(
    "change, expected",
    [
        (('"y": run["x"]', '"loss at step": {20: 2.0, 100: 1.0}, "y": run["x"]'), {"20": 2.0, "100": 1.0}),
        (('[{"x": i} for', '[{"x": i, "rates": {2: 0.1, 10: 0.2}} for'), None),
    ],
    ids=["outcome", "run"],
)
def test_whole_numbers_may_be_keys(tmp_path, change, expected):
    """JSON has text keys, which sort differently. Records stay valid: `resume` calculates nothing."""
    path, out = written(tmp_path, change), tmp_path / "out"
    inline(path, out)
    before = {file: file.stat().st_mtime_ns for file in (out / "records").iterdir()}
    sweeps.resume(out, executor="inline", quiet=True, experiment=path)
    assert {file: file.stat().st_mtime_ns for file in (out / "records").iterdir()} == before and len(before) == 3
    assert all(row["outcome"].get("loss at step") == expected for row in records.read(out / "records"))


def test_the_reserved_key_of_an_outcome_is_refused(tmp_path):
    path, out = written(tmp_path, ('{"y": run["x"]', '{"status": 0, "y": run["x"]')), tmp_path / "out"
    with pytest.raises(RuntimeError, match="3 runs failed: .* returns the key 'status', which is reserved; rename it"):
        inline(path, out)
    assert not list(out.glob("records/*"))


def test_a_changed_file_starts_another_sweep(tmp_path, capsys):
    path, out = written(tmp_path), tmp_path / "out"
    inline(path, out)
    path.write_text(path.read_text().replace("sum {", "total {"))
    one_line(lambda: sweeps.resume(out, experiment=path), str(path), "changed since the sweep", "new sweep")
    one_line(lambda: inline(path, out), "holds another sweep: squares", "(its experiment file differs)")
    commands.figure(out, path)
    assert "total 5" in capsys.readouterr().out
    path.write_text(path.read_text().replace('name="squares"', 'name="cubes"'))
    one_line(lambda: commands.figure(out, path), "defines cubes", "sweep of squares")


def test_a_moved_file_is_the_same_experiment(tmp_path):
    path, out = written(tmp_path), tmp_path / "out"
    inline(path, out)
    moved = tmp_path / "elsewhere.py"
    path.rename(moved)
    one_line(lambda: sweeps.resume(out, experiment=path), str(path), "No such file")
    assert len(inline(moved, out)) == 3 == len(sweeps.resume(out, executor="inline", quiet=True, experiment=moved))


def test_a_sweep_of_lvps_own_experiment_takes_no_file(finished, tmp_path):
    path = written(tmp_path)
    for call in (commands.figure, commands.page, lambda out, file: sweeps.resume(out, experiment=file)):
        one_line(lambda call=call: call(finished[0], path), "lvp's own experiment width_vocab: omit --experiment")
    assert executions(tmp_path) == 0


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
        (FILE.replace('corpus: str = "none"', 'corpus: str = "none"; x: float = float("inf")'), "converted to JSON"),
        (FILE.replace('SettingRuns("squares"', 'SettingRuns("\\033[2J"'), "printable characters only"),
    ],
    ids=lambda text: None if len(text) > 40 else text,
)
def test_an_unusable_file_gives_a_one_line_error(text, says, tmp_path):
    path = written(tmp_path, text=text)
    one_line(lambda: inline(path, tmp_path / "out", dry_run=True), "" if "printable" in says else str(path), says)


def test_a_missing_file_and_a_directory_give_one_line_errors(tmp_path):
    one_line(lambda: inline(tmp_path / "none.py", tmp_path / "out"), str(tmp_path / "none.py"), "No such file")
    (tmp_path / "folder.py").mkdir()
    one_line(lambda: inline(tmp_path / "folder.py", tmp_path / "out"), "folder.py", "directory")


def test_two_optimizers_with_one_name_are_refused():
    from lvp.experiments import width_vocab

    (first, second, *_), make = width_vocab.config.settings(width_vocab.PRESETS["smoke"]), lambda learning_rate: None

    def named(planned, factory):
        return planned._replace(
            setting=dataclasses.replace(planned.setting, optimizer=OptimizerConfig("x", {}, (), factory))
        )

    user_experiments.check_settings([named(first, make), named(second, make)])
    one_line(
        lambda: user_experiments.check_settings([named(first, make), named(second, lambda learning_rate: None)]),
        "another optimizer named x",
    )


def test_a_copy_of_a_directory_is_a_sweep(tmp_path):
    """Nothing in a directory depends on its place."""
    path = written(tmp_path)
    inline(path, tmp_path / "out")
    moved = shutil.move(tmp_path / "out", tmp_path / "moved")
    assert "3 of 3 runs have a record" in commands.status(moved)
    assert len(sweeps.resume(moved, executor="inline", quiet=True, experiment=path)) == 3


@pytest.mark.parametrize("written_last", [Sweep.create, Directory.write])
def test_a_driver_killed_at_the_beginning_leaves_a_usable_directory(written_last, tmp_path, monkeypatch):
    """It is killed while it writes sweep.json or the copy of the user's file."""
    path, out = written(tmp_path), tmp_path / "out"
    owner = Sweep if written_last is Sweep.create else Directory

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(owner, written_last.__name__, killed)
        inline(path, out)
    assert len(inline(path, out)) == 3 and (out / "sweep.json").exists()
