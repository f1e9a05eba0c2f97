"""Settings of all kinds in one sweep: calculations beside training, passes through the data, scored texts, and runs
that depend on results."""

import json
from itertools import product

import pytest

from lvp import experiments, sweeps
from lvp.experiments import leaderboard
from lvp.experiments.common.transferred_entries import ENTRIES, chosen_entries, run_of
from lvp.sweeps import driver
from lvp.sweeps.store import Store
from lvp.training import records
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.own_files import TRAINED, written
from tests.sweeps.running import LOCAL, outcomes


def times(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "records").iterdir()}


def test_a_calculation_and_training_in_one_sweep(small, capsys, tmp_path):
    out = tmp_path / "out"
    table = small.run(out, pack=3, quiet=False)
    assert "1 sums, 3 losses" in capsys.readouterr().out
    held = json.loads((out / "sweep.json").read_text())
    assert held["packing"]["lanes_per_program"] == {"sums": 1, "runs": 3}  # a calculation has no program
    assert {label: data is None for label, data in held["datasets"].items()} == {"sums": True, "runs": False}
    assert list(table["sum"].dropna()) == [5] and table["blind"].dropna().all()
    trained = table[table["sum"].isna()]
    assert len(trained) == 3 and all(trained[c].notna().all() for c in ("train_loss", "valid_loss", "run.seed"))


def test_passes_through_the_data_give_the_number_of_steps(small, tmp_path):
    """A step takes 2 · 12 tokens. The number of steps is known once the data are prepared."""
    out = tmp_path / "out"
    small.run(out, epochs="0.25", steps="1", rates="0.01")
    held = json.loads((out / "sweep.json").read_text())
    tokens = held["datasets"]["runs"]["num_tokens"]
    (row,) = (row for row in records.read(out / "records") if "curve_losses" in row["outcome"])
    assert row["config"]["cell"]["steps"] == row["outcome"]["steps"] == round(0.25 * tokens / 24) > 1
    assert [setting["steps"] for setting in held["settings"]] == [1, row["outcome"]["steps"]]


@pytest.mark.slow
def test_a_scored_text_is_named_by_its_content(cache, monkeypatch, tmp_path):
    """Records hold the fingerprint of the scored text and not its path. A moved text has the same runs."""
    monkeypatch.setenv("LVP_CACHE", str(cache))
    text, hashes = some_text(20_000), []
    for folder, scored in (("a", text[:3000]), ("b", text[:3000]), ("c", text[3000:6000])):
        place = tmp_path / folder
        place.mkdir()
        (place / "train.txt").write_text(text)
        (place / "scored.txt").write_text(scored)
        data = f"DataConfig(config.corpus, None, scored='text:{place / 'scored.txt'}')"
        path = written(
            place,
            ("DataConfig(config.corpus, 4000, 800)", data),
            ("vocab=40", "vocab=300"),
            ('"zipf:1"', repr(f"text:{place / 'train.txt'}")),
            ("(0.01, 0.03, 0.1)", "(0.01,)"),
            text=TRAINED,
        )
        sweeps.run(path, "smoke", out=place / "out", executor="inline", quiet=True)
        (row,) = (r for r in records.read(place / "out" / "records") if "curve_losses" in r["outcome"])
        assert row["config"]["cell"]["data"]["scored"] == row["config"]["cell"]["data"]["corpus"] == "text"
        assert any(name.startswith("perplexity_by_") for name in row["outcome"])
        hashes.append(row["hash"])
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.slow
def test_calculations_of_lvp_on_two_executors(command, tmp_path):
    """The fit of the frequencies is left out: its last bits depend on the alignment of LAPACK's arrays."""
    keys = ("tokens", "unseen", "peak_ratio", "shown_ranks", "shown_frequencies")
    counts = []
    for executor in ("local", "ray"):
        words = ("run", "token_frequencies", "--preset", "smoke", "--executor", executor, "--out", tmp_path / executor)
        done = command(*words, vocabs="256,300")
        assert done.returncode == 0, done.stderr
        rows = records.read(tmp_path / executor / "records")
        assert len(rows) == 2 and all(len(row["config"]["data"]["tokenizer"]) == 64 for row in rows)
        assert all(row["provenance"]["seconds"] > 0 for row in rows)
        counts.append({row["hash"]: [row["outcome"][key] for key in keys] for row in rows})
    assert counts[0] == counts[1]


@pytest.mark.slow
def test_tuned_rules_follow_and_resume(command, tmp_path):
    """The runs of the judging seed have the constants that are best among the runs of the selecting seed."""
    out = tmp_path / "out"
    words = ("run", "leaderboard", "--preset", "smoke", *LOCAL, "--out", out)
    done = command(*words, reference_constants="0.1", slice_bytes="10000")
    assert done.returncode == 0, done.stderr
    before, sweep = outcomes(out), driver.existing(Store(out))
    added = len(before) - sweep.planned
    assert added > 0 and f"{added} runs that depend on these results" in done.stdout
    loaded = experiments.load("leaderboard")
    config = experiments.restored(loaded, sweep.preset, sweep.config)
    entries, table = chosen_entries(config.entries, ENTRIES), sweeps.table_of(out)
    tuned = leaderboard.analysis.read(table, config, entries)
    runs = [row["config"]["lane"] for row in records.read(out / "records")]
    for (_, size), (name, each) in product(config.sizes.items(), tuned.entries.items()):
        (seed,) = config.judging_seeds
        assert records.configuration(run_of(config, entries[name], size, each.constant, seed)) in runs

    # One record of each kind is lost. Only these two runs are trained again, with the same bits.
    first = {run for setting in sweep.settings for run in setting["runs"]}
    lost = min(first), min(before.keys() - first)
    for run in lost:
        (out / "records" / f"{run}.jsonl").unlink()
    kept = times(out)
    done = command("resume", out, "--executor", "local")
    assert done.returncode == 0, done.stderr
    assert outcomes(out) == before and times(out).items() > kept.items()


@pytest.mark.slow
def test_an_adaptive_sweep_trains_some_runs_of_the_grid(command, tmp_path):
    """The second sweep has one more width. The runs of the other widths, later rounds among them, are reused."""
    rates = {"rates": "0.003,0.01,0.03,0.1,0.3", "design": "adaptive"}
    run, first, second = ("run", "width_vocab", "--preset", "smoke", *LOCAL, "--out"), tmp_path / "1", tmp_path / "2"
    done = command(*run, first, widths="16,24", **rates)
    assert done.returncode == 0, done.stderr
    before = outcomes(first)
    assert "at most 20 runs" in done.stdout and "runs that depend on these results" in done.stdout
    assert len(json.loads((first / "sweep.json").read_text())["settings"]) == 2 and 8 <= len(before) < 20
    assert "nothing to train" in command("resume", first, "--executor", "local").stdout
    done = command(*run, second, "--reuse", first / "records", widths="16,24,32", **rates)
    assert done.returncode == 0, done.stderr
    after = outcomes(second)
    assert before.items() < after.items() and done.stdout.count("runs have a record of another sweep") >= 2
