"""Ctrl-C and SIGTERM: one line with the command that continues, exit code 130, and the same bits after it."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from lvp.files import checkpoints
from lvp.sweeps import progress
from lvp.training import records
from tests.marking import slow
from tests.sweeps.running import ROOT, outcomes, workers

RUN = ("run", "width_vocab", "--preset", "smoke")
# Only a process that is asked to stop saves. A run takes long enough to be interrupted in any case.
OPTIONS = ("--threads", "1", "--checkpoint-seconds", "1e9", "--quiet")
LONG = {"widths": "16", "seeds": "0", "rates": "0.01,0.03,0.1", "steps": "30000"}


@pytest.mark.parametrize("after", [0.3, slow(1.0)])
def test_ctrl_c_during_the_imports_is_one_line(after, tmp_path):
    """The imports take seconds, in which a Python program would print its stack."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lvp.sweeps", "run", "width_vocab", "--out", tmp_path / "out"],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with open(f"/proc/{process.pid}/status") as status:
        caught = re.compile(r"^SigCgt:\s*(\w+)$", re.MULTILINE)
        while not int(caught.search(status.read())[1], 16) & 1 << signal.SIGINT - 1:  # Python itself is starting
            status.seek(0)
            assert process.poll() is None
            time.sleep(0.01)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "sweeps: interrupted\n") and not (tmp_path / "out").exists()


# Modules with dataclasses run `exec(TEXT)` when they are imported. Python ends such programs by the signal. It ignores
# an interrupt in a finalizer.
@pytest.mark.parametrize("during", ['exec("raise KeyboardInterrupt")', "Finalized()\ntime.sleep(60)"])
def test_an_interrupt_during_an_import_is_not_lost(during, tmp_path):
    text = """
import sys
import time
from lvp.cli.parser import Parser, run_command

class Finalized:
    def __del__(self):
        raise KeyboardInterrupt

def command(arguments):
    import imported

parser = Parser(prog="x")
parser.set_defaults(function=command)
if __name__ == "__main__":
    sys.exit(run_command(parser, []))
"""
    (tmp_path / "program.py").write_text(text)
    (tmp_path / "imported.py").write_text(f"import time\nfrom program import Finalized\n{during}\n")
    done = subprocess.run(
        [sys.executable, "-m", "program"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        capture_output=True,
        text=True,
        timeout=50,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert (done.returncode, done.stderr) == (130, "x: interrupted\n")


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    done = command(*RUN, "--executor", "local", *OPTIONS, "--out", out, **LONG)
    assert done.returncode == 0, done.stderr
    return outcomes(out)


def steps(out):
    """Run → the last saved step."""
    return {path.name: checkpoints.steps(path)[-1] for path in out.glob("checkpoints/*") if checkpoints.steps(path)}


def wait_for_training(process, out):
    deadline = time.monotonic() + 300
    while not list(out.glob("programs/*")):  # a worker compiles its program, and then trains
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_an_interrupted_sweep_continues_with_the_same_bits(command, undisturbed, tmp_path, executor, number):
    out = tmp_path / "out"
    process = command(*RUN, "--executor", executor, *OPTIONS, "--out", out, start=True, **LONG)
    wait_for_training(process, out)
    assert process.poll() is None and not outcomes(out)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (130, "") and not outcomes(out), stderr
    saved = steps(out)
    assert saved and all(0 < step < 30000 for step in saved.values())
    (again,) = re.findall(
        r"^sweeps: interrupted; `python -m lvp.sweeps (.*)` continues from here$", stderr, re.MULTILINE
    )
    assert stderr.count("\n") == 1
    done = command(*shlex.split(again), "--quiet")
    assert done.returncode == 0, done.stderr
    assert outcomes(out) == undisturbed
    resumed = {row["hash"]: row["provenance"]["resumed_at_step"] for row in records.read(out / "records")}
    assert {run: step for run, step in resumed.items() if step} == saved


@pytest.mark.slow
def test_a_stopped_worker_saves_and_another_continues(command, undisturbed, tmp_path):
    out = tmp_path / "out"
    process = command(*RUN, "--executor", "local", *OPTIONS, "--out", out, start=True, **LONG)
    wait_for_training(process, out)
    for worker in workers(process):
        worker.terminate()
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0 and outcomes(out) == undisturbed, stderr
    # No other checkpoint was due.
    assert any(row["provenance"]["resumed_at_step"] for row in records.read(out / "records"))


@pytest.fixture
def heard():
    """A background job of a shell inherits ignored signals, and an ignored signal stays ignored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number, times", [(signal.SIGINT, 1), (signal.SIGHUP, 1), (signal.SIGINT, 2)])
def test_an_interrupt_in_this_process_saves_the_runs(small, heard, tmp_path, monkeypatch, number, times):
    """A second interrupt does not wait for the save."""
    out = tmp_path / "out"

    def interrupt(news, progress):
        if progress.pack.label == "runs":
            for _ in range(times):
                signal.raise_signal(number)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt, match="continues from here"):
        patched.setattr(progress.News, "report", interrupt)
        small.run(out, checkpoint_seconds=1e9, steps=1500)
    assert bool(steps(out)) == (times == 1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if number == signal.SIGINT:
        small.resume(out)
        small.run(tmp_path / "whole", steps=1500)
        assert outcomes(out) == outcomes(tmp_path / "whole")


def test_an_interrupt_after_the_last_run_is_not_lost(small, heard, tmp_path, monkeypatch):
    def interrupt(news, progress):
        if progress.done and len(outcomes(tmp_path / "out")) == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress.News, "report", interrupt)
    with pytest.raises(KeyboardInterrupt, match="continues from here"):
        small.run(tmp_path / "out")
