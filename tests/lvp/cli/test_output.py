"""A command completes if its output is closed or full, or lacks characters. Its exit code tells whether standard output
was lost."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.faults.ledger import record
from tests.sweeps.running import ROOT, TINY, outcomes

COMMAND = """
import sys, time
from pathlib import Path
from lvp.cli.parser import Parser, add_command, run_command
from lvp.errors import InputError

def make(arguments):
    for i in range(3000):
        print("line", i, flush=i % 100 == 0)
        print("progress", i, file=sys.stderr)
    with open(sys.argv[1], "w") as file:
        file.write("whole")
    if sys.argv[2] != "0":
        raise InputError("refused")

top = Parser(prog="toy")
add_command(top.add_subparsers(), "make", make, "makes a file")
sys.exit(run_command(top, sys.argv[3:]))
"""
# Redirections, and the exit code of a command that succeeds.
REDIRECTIONS = {
    ">/dev/null": 0,
    ">/dev/full": 1,
    ">&-": 1,
    "| head -1": 1,
    "2>/dev/full": 0,
    "2>&-": 0,
    "2>&1 | head -1": 1,
    ">/dev/full 2>/dev/full": 1,
    "<&- >&- 2>&-": 1,
}


def shell(redirection, *words, timeout=100):
    """Runs a Python process with a shell's redirections. Returns (exit code, stdout, stderr)."""
    command = f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}'
    words = ["bash", "-c", command, "bash", sys.executable, *map(str, words)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("fails", [0, 2])
@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_a_command_completes_with_lost_output(redirection, fails, tmp_path):
    code, stdout, stderr = shell(redirection, "-c", COMMAND, tmp_path / "made", fails, "make")
    assert (tmp_path / "made").read_text() == "whole"
    assert code == (fails or REDIRECTIONS[redirection])
    messages = [line for line in stderr.splitlines() if not line.startswith("progress")]
    lost = redirection in (">/dev/full", ">&-")
    refused = fails and "2>" not in redirection
    assert messages == ["toy: refused"] * bool(refused) + messages[bool(refused) :]
    assert len(messages) == bool(refused) + lost
    assert not lost or messages[-1].startswith("toy: standard output was lost: ")
    if ">" not in redirection.replace("2>", ""):
        assert stdout.startswith("line 0\n") and stdout.count("\n") == (1 if "|" in redirection else 3000)


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", ">/dev/full 2>/dev/full"])
@pytest.mark.parametrize("words", [["--help"], ["make", "--help"], ["nothing"]])
def test_help_is_lost_like_other_output(redirection, words, tmp_path):
    code, stdout, stderr = shell(redirection, "-c", COMMAND, tmp_path / "made", 0, *words)
    assert not (tmp_path / "made").exists()  # the command was not called
    assert code == (1 if "--help" in words else 2) and "Traceback" not in stderr and "Exception" not in stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_characters_that_the_output_lacks_are_replaced(encoding):
    words = [sys.executable, "-m", "lvp", "recommend", "--width=64", "--vocab=512", "--hidden-lr=.1", "--evidence"]
    text = {}
    for name in ("utf-8", encoding):
        environment = os.environ | {"PYTHONIOENCODING": name}
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=100)
        text[name] = done.stdout.decode(name)
    assert "√" in text["utf-8"] and "√" not in text[encoding]
    assert text[encoding] == text["utf-8"].encode(encoding, "replace").decode(encoding)


@pytest.mark.slow
def test_a_figure_is_drawn_without_output(finished, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns("figure.*", "table.csv", "workers"))
    code, _, stderr = shell(">/dev/full", "-m", "lvp.sweeps", "figure", out)
    assert (code, stderr) == (1, "sweeps: standard output was lost: No space left on device\n")
    for name in ("table.csv", "figure.png", "figure.svg"):
        assert (out / name).read_bytes() == (finished[0] / name).read_bytes()


@pytest.mark.slow
def test_a_sweep_trains_and_draws_without_output(finished, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("LVP_CACHE", str(cache))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    whole, settings = outcomes(finished[0]), [f"--set={k}={v}" for k, v in TINY.items()]
    lost = wrong = 0
    for number, (redirection, expected) in enumerate(REDIRECTIONS.items()):
        out = tmp_path / str(number)
        words = ["run", "width_vocab", "--preset", "smoke", "--executor", "local", "--threads", "1", "--out", out]
        code, _, stderr = shell(redirection, "-m", "lvp.sweeps", *words, *settings, timeout=300)
        assert code == expected and "Traceback" not in stderr and "Errno" not in stderr
        assert (out / "figure.png").exists()
        lost += len(whole) - len(outcomes(out))
        wrong += sum(outcome != whole[run] for run, outcome in outcomes(out).items())
    record("the output is full or closed", injected=len(REDIRECTIONS), lost=lost, repeated=0, wrong=wrong)
    assert (lost, wrong) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("redirection", REDIRECTIONS)
@pytest.mark.parametrize(
    "words",
    [["lvp", "recommend", "--width=64", "--vocab=512", "--hidden-lr=.1", "--evidence"], ["lvp.sweeps", "status"]],
)
def test_short_commands_return_their_exit_code(words, redirection, finished):
    directory = [finished[0]] if words == ["lvp.sweeps", "status"] else []
    code, _, stderr = shell(redirection, "-m", *words, *directory)
    # A short text may be in the pipe before its reader ends.
    assert code == REDIRECTIONS[redirection] or "|" in redirection and code == 0
    assert stderr.count("\n") <= 1 and "Traceback" not in stderr and "Errno" not in stderr
