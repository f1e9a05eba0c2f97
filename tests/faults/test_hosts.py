"""One core, a clock that jumps, and a text that changed or is missing."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from lvp import sweeps
from lvp.sweeps import fingerprint
from tests.faults.conftest import refused
from tests.faults.damage import contents
from tests.faults.ledger import Watched
from tests.sweeps.running import LOCAL, ROOT, outcomes


@pytest.mark.slow
def test_a_sweep_on_one_core_has_the_same_bits(finished, cache, tmp_path):
    out, whole = shutil.copytree(finished[0], tmp_path / "out"), outcomes(finished[0])
    watched = Watched(out)
    for path in sorted(out.glob("records/*"))[::3]:
        path.unlink()
    watched.look()
    core = min(os.sched_getaffinity(0))
    pinned = f"import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-m", "lvp.sweeps", "resume", out, *LOCAL, "--quiet"]
    surroundings = os.environ | {"JAX_PLATFORMS": "cpu", "LVP_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", pinned, *words], cwd=ROOT, env=surroundings, capture_output=True)
    assert done.returncode == 0, done.stderr
    watched.assert_whole("one core is left", 1, whole)


def test_a_clock_that_jumps_changes_no_bit(small, copy, whole, monkeypatch):
    max(copy.glob("records/*")).unlink()
    for path in (*copy.glob("records/*"), copy / "sweep.json"):
        os.utime(path, (4e9, 4e9))  # written in the future
    watched, clock, jumps = Watched(copy), time.time, iter(range(10**9))
    watched.look()
    monkeypatch.setattr(time, "time", lambda: clock() - 86_400 * next(jumps))  # each call is a day earlier
    small(copy, checkpoint_seconds=0.0)
    monkeypatch.undo()
    watched.assert_whole("the clock jumps", 1, outcomes(whole))


def test_a_changed_text_is_refused_and_no_file_changes(small, copy, text):
    max(copy.glob("records/*")).unlink()
    before, content = contents(copy), text.read_text()
    try:
        text.write_text(content.swapcase())
        with refused() as message:
            sweeps.resume(copy, executor="inline", quiet=True)
        assert "changed since the sweep in" in message[0] and "restore it" in message[0]
        text.unlink()
        with refused() as message:
            sweeps.resume(copy, executor="inline", quiet=True)
        assert str(text) in message[0]
        assert contents(copy) == before
    finally:
        text.write_text(content)


def test_a_sweep_in_this_process_keeps_its_number_of_cores(small, copy, monkeypatch):
    """XLA splits sums by the cores of the process: other cores give other bits."""
    min(copy.glob("records/*")).unlink()
    monkeypatch.setattr(fingerprint, "visible_cores", lambda: 7)
    with refused(RuntimeError) as message:
        small(copy)
    assert "(now 7)" in message[0] and "--allow-other-version" in message[0]
    small(copy, allow_other_version=True)
