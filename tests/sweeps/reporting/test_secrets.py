"""Values of environment variables are in none of a sweep's files."""

import pytest

from sweeps.reporting import results
from tests.faults.damage import contents
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.planted_secrets import SECRETS, files_with_secrets


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_no_value_of_the_environment_is_written(executor, command, monkeypatch, tmp_path):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text(some_text(4000))
    run = ("run", "token_frequencies", "--tier", "smoke", "--executor", executor, "--threads", "1", "--out", out)
    done = command(*run, "--corpus", f"text:{text}", "--set", "vocabs=300,320", "first_rank=1")
    assert done.returncode == 0, done.stderr
    assert {"manifest.json", "trials.jsonl", "table.csv"} <= {path.name for path in contents(out)}
    assert files_with_secrets(out) == set() and "planted" not in done.stdout + done.stderr

    monkeypatch.setattr(results, "COMMITTED", tmp_path / "results")
    folder = results.publish(out)
    assert sorted(path.name for path in contents(folder)) == ["records.jsonl", "sweep.json"]
    assert files_with_secrets(folder) == set()
    (folder / "note").write_text(f"{SECRETS['HF_TOKEN']}\n")
    assert files_with_secrets(folder) == {"note"}
