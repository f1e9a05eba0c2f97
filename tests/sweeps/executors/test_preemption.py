"""SIGTERM: a process saves its pack before it ends, and training continues from that checkpoint."""

import shutil
import signal

import psutil
import pytest

from lvp.training import checkpoints
from sweeps.driver.manifest import Manifest
from tests.faults.watching import until

# No checkpoint is written unless a process is asked to stop.
LONG = ("run", "width_vocab", "--preset", "smoke", "--threads", "1", "--checkpoint-seconds", "1e9", "--quiet")


def _at_work(out) -> dict[str, int]:
    """The last step that workers have reported, by lane."""
    steps = {}
    for progress in Manifest.read(out).read_progress() if (out / "manifest.json").exists() else ():
        lane = progress["lanes"][0]
        steps[lane] = max(progress["step"], steps.get(lane, 0))
    return {lane: step for lane, step in steps.items() if step}


@pytest.mark.slow
def test_resume_ignores_the_stop_request_of_a_killed_driver(finished, command, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    before = list((out / "records").iterdir())
    before[0].unlink()
    (out / "leave").touch()
    done = command("resume", out, "--executor", "local", "--quiet")
    assert done.returncode == 0, done.stderr
    assert not (out / "leave").exists() and set((out / "records").iterdir()) == set(before)


def _workers(out) -> list[psutil.Process]:
    """The workers that have reported progress and have not removed it."""
    return [psutil.Process(int(p.stem.rpartition("-")[2])) for p in out.glob("progress/*.json")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "executor, stop",
    [
        ("local", signal.SIGTERM),
        ("ray", signal.SIGTERM),
        ("ray", signal.SIGINT),
    ],
)
def test_a_terminated_worker_saves_and_another_worker_continues(command, tmp_path, executor, stop):
    out = tmp_path / "out"
    process = command(*LONG, "--executor", executor, "--out", out, start=True, steps="10000000")
    until(lambda: len(_at_work(out)) == 2, process)
    worker = _workers(out)[0]
    worker.terminate()
    saved = until(lambda: [p for p in out.glob("checkpoints/*") if checkpoints.steps(p)], process)
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, process)
    (lane,) = (p.name for p in saved)
    (step,) = checkpoints.steps(saved[0])
    assert step > 0
    # Two workers train again. One of them continues the lane after the saved step.
    until(lambda: _at_work(out).get(lane, 0) > step, process)
    until(lambda: len(_at_work(out)) == 2, process)
    assert worker not in _workers(out) and len(_workers(out)) == 2
    # After an interrupt of the driver, both workers save.
    at = _at_work(out)
    process.send_signal(stop)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "resume" in stderr
    assert len(at) == 2 and all(checkpoints.steps(out / "checkpoints" / h)[-1] >= step for h, step in at.items())
    assert not list(out.glob("records/*"))
