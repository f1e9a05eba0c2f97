"""Settings of all kinds in one sweep: calculations beside training, passes through the data, scored texts, and runs
that depend on results."""

import json

import pytest

from lvp import sweeps
from lvp.training import records
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.own_files import TRAINED, written
from tests.sweeps.running import LOCAL, outcomes


def test_a_calculation_and_training_in_one_sweep(small, capsys, tmp_path):
    """A step takes 2 · 12 tokens. The number of steps is known once the data are prepared."""
    out = tmp_path / "out"
    table = small.run(out, epochs="0.25", steps="1", rates="0.01", pack=3, quiet=False)
    assert "1 sums, 1 losses" in capsys.readouterr().out
    held = json.loads((out / "sweep.json").read_text())
    assert held["packing"]["lanes_per_program"] == {"sums": 1, "runs": 3}  # a calculation has no program
    assert {label: data is None for label, data in held["datasets"].items()} == {"sums": True, "runs": False}
    assert list(table["sum"].dropna()) == [5] and table["blind"].dropna().all()
    trained = table[table["sum"].isna()]
    assert len(trained) == 1 and all(trained[c].notna().all() for c in ("train_loss", "valid_loss", "run.seed"))
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
