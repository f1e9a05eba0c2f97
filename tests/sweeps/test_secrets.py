"""No file of a sweep contains the value of an environment variable."""

import pytest

from tests.faults.damage import contents
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.planted_secrets import SECRETS, files_with_secrets


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_no_file_contains_the_value_of_an_environment_variable(executor, command, monkeypatch, tmp_path):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text(some_text(4000))
    run = ("run", "token_frequencies", "--preset", "smoke", "--executor", executor, "--threads", "1", "--out", out)
    completed = command(*run, "--corpus", f"text:{text}", "--set", "vocabs=300,320", "first_rank=1")
    assert completed.returncode == 0, completed.stderr
    assert {"sweep.json", "table.csv"} <= {path.name for path in contents(out)}
    assert files_with_secrets(out) == set() and "planted" not in completed.stdout + completed.stderr
    # Control: a planted value is detected.
    (out / "note").write_text(f"{SECRETS['HF_TOKEN']}\n")
    assert files_with_secrets(out) == {"note"}
