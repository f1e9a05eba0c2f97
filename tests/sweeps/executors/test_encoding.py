"""`python -m sweeps tokenize` without a cluster. `tests/faults/test_tokenizing.py` starts a cluster."""

import ray

from tests.lvp.data.tokens.texts import some_text


def test_a_missing_cluster_is_one_line_and_writes_nothing(tmp_path, monkeypatch, command_here):
    def refuse(*_, **__):
        raise ConnectionError("no cluster\nat this address")

    monkeypatch.setattr(ray, "init", refuse)
    (tmp_path / "t.txt").write_text(some_text(500))
    out = tmp_path / "out"
    done = command_here(
        "tokenize", f"text:{tmp_path / 't.txt'}", "--vocab", 260, "--out", out, "--ray-address", "here:1"
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "cannot join the Ray cluster at here:1: no cluster (" in done.stderr
    assert not out.exists()
