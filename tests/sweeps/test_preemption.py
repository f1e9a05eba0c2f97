"""SIGTERM: what is being trained is saved before the process ends, and goes on from there."""

import shutil
import signal
import time

import psutil

from lvp import checkpoints
from sweeps.manifest import Manifest

# Lanes that would take an hour, and no checkpoint that is not asked for.
LONG = ("run", "width_vocab", "--tier", "smoke", "--executor", "local", "--threads", "1", "--checkpoint-seconds", "1e9")


def _until(condition, process, seconds=120):
    deadline = time.time() + seconds
    while not (found := condition()):
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.05)
    return found


def _at_work(out) -> dict[str, int]:
    """The furthest step that workers have reported, by lane."""
    found = {}
    for said in Manifest.read(out).read_progress() if (out / "manifest.json").exists() else ():
        lane = said["lanes"][0]
        found[lane] = max(said["step"], found.get(lane, 0))
    return {lane: step for lane, step in found.items() if step}


def test_what_a_driver_that_was_killed_has_asked_for_counts_no_more(finished, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    before = list((out / "records").iterdir())
    before[0].unlink()
    (out / "leave").touch()
    done = command("resume", out, "--executor", "local", "--quiet")
    assert done.returncode == 0, done.stderr
    assert not (out / "leave").exists() and set((out / "records").iterdir()) == set(before)


def test_a_worker_that_is_told_to_go_saves_and_another_goes_on_from_there(command, tmp_path):
    out = tmp_path / "out"
    process = command(*LONG, "--quiet", "--out", out, start=True, steps="10000000")
    _until(lambda: len(_at_work(out)) == 2, process)
    worker = psutil.Process(process.pid).children()[0]
    worker.terminate()
    saved = _until(lambda: [p for p in out.glob("checkpoints/*") if checkpoints.steps(p)], process)
    _until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, process)
    (lane,) = (p.name for p in saved)
    (step,) = checkpoints.steps(saved[0])
    assert step > 0
    # Two are at work again, one of them with the same lane, further on.
    _until(lambda: _at_work(out).get(lane, 0) > step, process)
    assert len(psutil.Process(process.pid).children()) == 2
    # And the driver, told so, has both save.
    at = _at_work(out)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "resume" in stderr
    assert len(at) == 2 and all(checkpoints.steps(out / "checkpoints" / h)[-1] >= step for h, step in at.items())
    assert not list(out.glob("records/*"))
