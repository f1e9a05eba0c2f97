"""The fingerprint of a run's environment: what determines its bits is recorded and compared, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lvp.errors import InputError
from lvp.sweeps import executors, fingerprint
from lvp.training import records
from tests.sweeps.own_files import TRAINED, anew, written  # noqa: F401  fixture
from tests.sweeps.running import ROOT, outcomes

OTHER = "--xla_cpu_enable_fast_math=false"  # a flag in the variable only: JAX has read the variable before


def test_flags_that_determine_bits_are_in_the_fingerprint(monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to=/home/me {fingerprint.CPU_FLAGS} {OTHER}")
    assert fingerprint.present()["flags"] == [OTHER]
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    assert fingerprint.present()["flags"] == [OTHER, "OPENBLAS_CORETYPE=Nehalem"]
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags"))
    for flag in ("--xla_a=1", "--xla_b=1"):  # XLA reads the file, so its content counts and not its path
        (tmp_path / "flags").write_text(flag)
        assert fingerprint.present()["flags"] == [flag]


@pytest.mark.parametrize(
    "part, before, says",
    [
        ("versions", {"jax": "0.0.1"}, "jax 0.0.1 (now "),
        ("flags", ["--xla_x=1"], "flags --xla_x=1 (now "),
        ("machine", "Z80", "machine Z80 (now "),
        ("devices", 8, "devices 8 (now 1)"),
        ("threads", 7, "threads 7 (now 1)"),
        ("program", "0" * 16, "program 0000000000000000 (now "),
    ],
)
def test_differences_name_both_values(part, before, says):
    now = fingerprint.of_program("text", SimpleNamespace(platform="cpu", device_kind="any"), 1, 1)
    earlier = now | {part: now["versions"] | before if part == "versions" else before}
    (text,) = fingerprint.differences(earlier, now)
    assert text.startswith(says) and fingerprint.differences(now, now) == []
    assert fingerprint.differences({"machine": now["machine"]}, now) == []  # only keys of both are compared


def test_a_sweep_in_another_environment_is_refused_or_named(small, interrupted, monkeypatch, tmp_path, capsys):
    """A run is trained in A, then in B, then in A again. Neither change is silent, and its record lists all three."""
    out = tmp_path / "out"
    monkeypatch.setenv("XLA_FLAGS", "")
    interrupted(lambda: small.run(out))
    (begun,) = (out / "checkpoints").iterdir()
    monkeypatch.setenv("XLA_FLAGS", OTHER)
    with pytest.raises(InputError, match=f"began with flags none .now {OTHER}.*give --allow-other-version") as refused:
        small.resume(out)
    assert "\n" not in str(refused.value) and not (out / "records" / f"{begun.name}.jsonl").exists()
    interrupted(lambda: small.resume(out, allow_other_version=True, quiet=False))
    assert "their records name the present environment" in capsys.readouterr().out
    monkeypatch.setenv("XLA_FLAGS", "")
    with pytest.raises(RuntimeError, match=f"run {begun.name} began with flags {OTHER} .now none.") as refused:
        small.resume(out)
    assert "\n" not in str(refused.value) and begun.exists()
    small.resume(out, allow_other_version=True)
    rows = {row["hash"]: row["provenance"]["environments"] for row in records.read(out / "records")}
    assert [each["flags"] for each in rows.pop(begun.name)] == [[], [OTHER], []]
    assert {len(environments) for environments in rows.values()} == {1}  # control: the other runs had one environment


def test_a_program_of_another_kind_is_refused(small, tmp_path):
    """Two workers whose code gives other programs: the second one trains nothing."""
    out = tmp_path / "out"
    small.run(out)
    for path in (out / "programs").iterdir():
        held = fingerprint.held(path.read_bytes())
        path.write_bytes(fingerprint.content(held | {"program": "0" * 16}))
    before = outcomes(out)
    lost = next(run for run, outcome in before.items() if "train_loss" in outcome)
    (out / "records" / f"{lost}.jsonl").unlink()
    with pytest.raises(RuntimeError, match="runs began with program 0000000000000000 .*--allow-other-version"):
        small.resume(out)
    assert not (out / "records" / f"{lost}.jsonl").exists()
    small.resume(out, allow_other_version=True)
    assert outcomes(out) == before


def test_variables_for_debugging_do_not_reach_workers(monkeypatch):
    for name in ("JAX_DEBUG_NANS", "JAX_ENABLE_X64", "JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.setenv(name, "1")
    named = set(executors.debugging())
    assert {"JAX_DEBUG_NANS", "JAX_ENABLE_X64"} <= named
    assert named.isdisjoint({"JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR"})


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_variables_for_debugging_do_not_change_or_stop_runs(command, monkeypatch, tmp_path, executor):
    """One of the runs diverges, which JAX_DEBUG_NANS would turn into an error."""
    path = written(tmp_path, ("0.01, 0.03, 0.1", "0.01, 9e15"), text=TRAINED)
    words = ("run", path, "--preset", "smoke", "--executor", executor, "--threads", "1", "--out")
    assert command(*words, tmp_path / "plain").returncode == 0
    for name in ("JAX_DEBUG_NANS", "JAX_ENABLE_X64", "JAX_DISABLE_JIT"):
        monkeypatch.setenv(name, "1")
    done = command(*words, tmp_path / "debugging")
    assert done.returncode == 0, done.stderr
    ours = outcomes(tmp_path / "debugging")
    assert ours == outcomes(tmp_path / "plain")
    assert sorted(outcome["status"] for outcome in ours.values()) == ["diverged", "finished", "finished"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, value, says",
    [
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=8", "flags none .now --xla_force_host"),
        ("XLA_FLAGS", "--xla_backend_optimization_level=0", "flags none .now --xla_backend_optimization_level=0"),
        ("OPENBLAS_CORETYPE", "Nehalem", "flags none .now OPENBLAS_CORETYPE=Nehalem"),
    ],
)
def test_other_flags_at_resume_are_one_line(command, monkeypatch, tmp_path, name, value, says):
    monkeypatch.setenv("XLA_FLAGS", "")
    path, out = written(tmp_path, text=TRAINED), tmp_path / "out"
    assert command("run", path, "--preset", "smoke", "--executor", "local", "--out", out).returncode == 0
    before = outcomes(out)
    lost = next((out / "records").iterdir())
    lost.unlink()
    monkeypatch.setenv(name, value)
    resume = ("resume", out, "--executor", "local", "--experiment", path)
    done = command(*resume)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--allow-other-version" in done.stderr
    assert re.search(says, done.stderr) and not lost.exists()
    done = command(*resume, "--allow-other-version")
    assert done.returncode == 0 and value in done.stdout and outcomes(out).keys() == before.keys()


@pytest.mark.slow
def test_a_docstring_changes_no_program_and_a_formula_does(cache, tmp_path):
    """Processes with copies of the package: the same program in another process, with another docstring, and with
    another activation function."""
    code, out = tmp_path / "code", tmp_path / "out"
    shutil.copytree(ROOT / "lvp", code / "lvp", ignore=shutil.ignore_patterns("results", "__pycache__"))
    path = written(tmp_path, text=TRAINED)
    environment = os.environ | {"PYTHONPATH": str(code), "LVP_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}

    def sweep(*words):
        words = [sys.executable, "-m", "lvp.sweeps", *words, "--executor", "inline"]
        return subprocess.run(words, cwd=code, env=environment, capture_output=True, text=True, check=False)

    def edit(name, old, new):
        text = (code / name).read_text()
        assert old in text
        (code / name).write_text(text.replace(old, new, 1))

    done = sweep("run", path, "--preset", "smoke", "--out", out)
    assert done.returncode == 0, done.stderr
    before = outcomes(out)
    lost = next(run for run, outcome in before.items() if "train_loss" in outcome)
    (out / "records" / f"{lost}.jsonl").unlink()
    edit("lvp/models/layers.py", '"""', '"""Edited. ')
    done = sweep("resume", out, "--experiment", path)
    assert done.returncode == 0 and outcomes(out) == before, done.stderr
    (out / "records" / f"{lost}.jsonl").unlink()
    edit("lvp/models/layers.py", "nn.gelu(", "nn.silu(")
    done = sweep("resume", out, "--experiment", path)
    assert done.returncode == 1 and "runs began with program " in done.stderr and lost not in outcomes(out)
