"""The command for accelerators runs all parts on a CPU, without the packages that such a machine may lack."""

import json
import math
import os
import subprocess
import sys
import tarfile

import pytest

from tests.benchmarks.accelerator import right
from tests.benchmarks.accelerator.rows import Rows, settings, table
from tests.benchmarks.accelerator.sizes import SMALL
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.running import ROOT

ABSENT = ("ray", "tensorflow_datasets", "array_record", "tensorboardX", "pydantic", "psutil", "torch")
BLOCKER = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r}))\n"


@pytest.fixture
def without_packages(tmp_path, monkeypatch):
    """Python processes cannot import `ABSENT`."""
    (tmp_path / "blocker").mkdir()
    (tmp_path / "blocker" / "sitecustomize.py").write_text(BLOCKER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "blocker"), str(ROOT)]))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    for name in ABSENT:  # control
        assert subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode == 1


@pytest.mark.slow
def test_all_parts_run_on_a_cpu_without_the_packages(without_packages, tmp_path):
    (tmp_path / "text").write_text(some_text(8000))
    words = [sys.executable, "-m", "tests.benchmarks.accelerator", "--small", "--out", tmp_path / "out"]
    words += ["--work", tmp_path / "work", "--corpus", f"text:{tmp_path / 'text'}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    messages = (tmp_path / "out" / "messages.log").read_text()
    assert done.returncode == 0, messages[-3000:]
    found = json.loads((tmp_path / "out" / "accelerator.json").read_text())
    assert [part["ended"] for part in found["parts"].values()] == ["finished"] * 5
    assert found["device"]["platform"] == "cpu" and found["corpus"] == "text"
    for name in ("right", "bits"):
        assert all(row["holds"] for row in found["parts"][name]["rows"] if "time /" not in row["quantity"])
    skipped = [row["quantity"] for part in found["parts"].values() for row in part["rows"] if "skipped" in row]
    assert skipped == ["PyTorch"]
    assert (tmp_path / "out" / "figure.png").exists() and found["table"] == (tmp_path / "out" / "table.md").read_text()
    with tarfile.open(tmp_path / "out" / "sweep.tar.gz") as archive:
        assert sum(name.endswith(".jsonl") and "/records/" in name for name in archive.getnames()) == 6
    assert len(list((tmp_path / "out").iterdir())) <= 8  # few files, so that they are easy to copy


def test_a_wrong_kernel_is_noticed(tmp_path, monkeypatch):
    rows = Rows(tmp_path / "rows.json", 60)
    fused = right.fused_attention
    monkeypatch.setattr(right, "fused_attention", lambda q, k, v, *shape: fused(q, 1.05 * k, v, *shape))
    right.attention(rows, SMALL)
    assert len(rows.rows) == 4 and not any(row["holds"] for row in rows.rows)


def test_rows_say_whether_their_bounds_hold(tmp_path):
    rows = Rows(tmp_path / "rows.json", 60)
    rows.add("within", 1.0, most=2.0)
    rows.add("above", 3.0, "ms", most=2.0)
    rows.add("below", 3.0, "×", least=4.0, raw={"times": [1.0, math.inf]})
    rows.add("not finite", math.nan, most=2.0)
    rows.add("without a bound", 7.0)
    with rows.attempt("raises"):
        raise ValueError("two\nlines")
    rows.skip("left out", "no time")
    assert json.loads((tmp_path / "rows.json").read_text()) == rows.rows
    assert [settings(row)[3] for row in rows.rows] == ["holds", *["does not hold"] * 3, "", "failed", "skipped"]
    assert settings(rows.rows[2])[1:3] == ("3×", "≥ 4×") and settings(rows.rows[5])[1] == "ValueError: two"
    assert rows.rows[2]["raw"] == {"times": [1.0, None]}
    assert len(table(rows.rows).splitlines()) == 2 + len(rows.rows)
