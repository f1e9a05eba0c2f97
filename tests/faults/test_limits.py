"""Limits of the shell (ulimit): a sweep ends with a one-line error, and continues without the limit to the same
outcomes."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults.ledger import record_finished, times
from tests.sweeps.running import ROOT, TINY, outcomes

pytestmark = pytest.mark.slow

USER = 65534
# Limits on processes have no effect on root, so another user runs the sweep and reads this user's packages.
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
AS_USER += ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def sweep(limit, home, *words):
    """Runs a command of `sweeps` under a limit. Returns (exit code, stderr)."""
    prefix = AS_USER if limit.startswith("-u") and os.geteuid() == 0 else ()
    command = f'ulimit {limit} && exec "$@"' if limit else 'exec "$@"'
    environment = {"JAX_PLATFORMS": "cpu", "HOME": str(home), "LVP_CACHE": str(home / "cache")}
    done = subprocess.run(
        [*prefix, "bash", "-c", command, "bash", sys.executable, "-m", "sweeps", *map(str, words)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    return done.returncode, done.stderr


@pytest.fixture
def home():
    """A directory that another user can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("limit", ["-n 8", "-n 12", "-u 3", "-u 12", "-v 1200000"])
def test_a_sweep_under_a_limit_ends_with_a_one_line_error_and_continues_without_it(limit, finished, cache, home):
    out = home / "out"
    shutil.copytree(cache, home / "cache")  # compiled programs
    if limit.startswith("-u") and os.geteuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, USER, USER)
    settings = [f"--set={k}={v}" for k, v in TINY.items()]
    local = ["--executor", "local", "--threads", "1", "--quiet"]
    code, stderr = sweep(limit, home, "run", "width_vocab", "--preset", "smoke", "--out", out, *local, *settings)
    assert code == 1 and stderr.startswith("sweeps: ") and stderr.count("\n") == 1, stderr
    records_before, whole = times(out), outcomes(finished[0])
    code, stderr = sweep("", home, "run", "width_vocab", "--preset", "smoke", "--out", out, *local, *settings)
    assert code == 0, stderr
    assert outcomes(out) == whole
    record_finished(f"a limit of the shell (ulimit {limit[:2]})", 1, out, records_before, whole)
