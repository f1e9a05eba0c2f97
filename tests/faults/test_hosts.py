"""Changes of the machine during a sweep: interrupts, stopped processes, fewer cores, a wrong clock, other texts."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from lvp.errors import InputError
from sweeps.driver import api
from sweeps.driver.lock import only_driver
from sweeps.driver.manifest import Manifest
from sweeps.driver.options import Options
from sweeps.executors.cluster import Watch
from sweeps.worker.stop import Reason
from tests.faults.damage import contents
from tests.faults.watching import Watched
from tests.sweeps.running import ROOT

RUN = ("run", "width_vocab", "--preset", "smoke", "--executor", "local", "--threads", "1", "--quiet")
SLOWLY = ("--checkpoint-seconds", "0")


def at_work(process, out):
    """Waits until a worker trains."""
    deadline = time.monotonic() + 200
    while not list(out.glob("progress/*.json")):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.01)


# --- interrupts --------------------------------------------------------------------------------------------------


def test_every_interrupt_names_the_quoted_command(tmp_path):
    out = tmp_path / "a sweep; of mine"
    out.mkdir()
    with pytest.raises(KeyboardInterrupt) as interrupted, api._driving(out, Options(executor="local"), print):
        raise KeyboardInterrupt  # without a message, as Ctrl-C raises it
    assert f"`python -m sweeps resume '{out}' --executor local` continues from here" in str(interrupted.value)


@pytest.mark.slow
def test_three_interrupts_print_the_command(command, tmp_path):
    out = tmp_path / "a sweep"
    process = command(*RUN, *SLOWLY, "--out", out, start=True)
    at_work(process, out)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode == 130 and f"resume '{out}' --executor local` continues from here" in stderr


def lost(watch, monkeypatch, *, after: float, problem: OSError, joined: bool) -> list:
    """Runs the watch with a clock that shows 0 and `after` seconds. Returns the reasons for which it ended."""
    moments, looks, ended = iter([0.0, after]), iter([False]), []
    monkeypatch.setattr("time.monotonic", lambda: next(moments))
    monkeypatch.setattr("ray.is_initialized", lambda: joined)
    monkeypatch.setattr("ray._private.worker._global_node", object() if joined else None)
    monkeypatch.setattr(watch, "_problem", lambda node: problem)
    monkeypatch.setattr(watch.closed, "wait", lambda seconds: next(looks, True))
    monkeypatch.setattr("sweeps.executors.cluster.end", ended.append)
    watch.run()
    return ended


def test_the_message_about_a_local_ray_does_not_name_a_cluster(monkeypatch, capsys):
    watch = Watch(None, "`resume 'a sweep'` continues from here")
    assert lost(watch, monkeypatch, after=100.0, problem=TimeoutError(), joined=True) == [Reason.RAY_LOST]
    message = capsys.readouterr().err
    assert message == "sweeps: Ray on this machine no longer answers; `resume 'a sweep'` continues from here\n"


@pytest.mark.parametrize(
    "problem, joined, ends",
    [
        (ConnectionRefusedError(), False, True),  # no head listens
        (TimeoutError(), False, False),  # the network may be slow
        (ConnectionRefusedError(), True, False),  # the head may start again
    ],
)
def test_a_driver_that_joins_ends_soon_only_if_connections_are_refused(problem, joined, ends, monkeypatch):
    watch = Watch("127.0.0.1:6379", "")
    assert bool(lost(watch, monkeypatch, after=3.0, problem=problem, joined=joined)) is ends


def test_resume_of_a_finished_sweep_prints_one_line(small, copy, capsys):
    api.resume(copy)
    message = capsys.readouterr().out
    assert message == f"all lanes have records: nothing to do in {copy}\n"


# --- processes that are stopped ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["the driver", "the workers", "all"])
def test_stopped_processes_continue_with_the_same_bits(finished, command, tmp_path, whom):
    out = tmp_path / "out"
    process = command(*RUN, *SLOWLY, "--out", out, start=True)
    at_work(process, out)
    driver = psutil.Process(process.pid)
    workers = driver.children()
    chosen = {"the driver": [driver], "the workers": workers, "all": [driver, *workers]}[whom]
    for stopped in chosen:
        stopped.suspend()
    time.sleep(5)
    for stopped in chosen:
        with contextlib.suppress(psutil.NoSuchProcess):
            stopped.resume()
    watched = Watched(out)
    watched.look()
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    watched.assert_whole(f"{whom}: stopped for a while (SIGSTOP)", len(chosen), finished[0])


# --- cores -------------------------------------------------------------------------------------------------------

SUM = """
import os, sys
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(sys.argv[1])]))
from sweeps.worker.worker import Settings, Worker
Worker(sys.argv[2], Settings(threads=2))
import jax, jax.numpy as jnp
print(float(jax.jit(jnp.sum)(jax.random.normal(jax.random.key(0), (8, 200_000)))).hex())
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores")
@pytest.mark.slow
def test_a_worker_has_its_threads_on_a_machine_with_fewer_cores(tmp_path):
    """XLA splits a sum by the number of its threads."""
    surroundings = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    words = [sys.executable, "-c", SUM]
    sums = {
        cores: subprocess.run([*words, cores, tmp_path], cwd=ROOT, env=surroundings, capture_output=True, check=True)
        for cores in ("1", "2")
    }
    assert sums["1"].stdout == sums["2"].stdout


@pytest.mark.slow
def test_a_sweep_continues_with_one_core(finished, cache, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    for path in sorted(out.glob("records/*"))[::3]:
        path.unlink()
    watched = Watched(out)
    watched.look()
    words = [sys.executable, "-m", "sweeps", "resume", out, "--executor", "local", "--quiet"]
    surroundings = os.environ | {"JAX_PLATFORMS": "cpu", "LVP_CACHE": str(cache)}
    core = min(os.sched_getaffinity(0))
    pinned = ["-c", f"import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execv(sys.argv[1], sys.argv[1:])"]
    done = subprocess.run(
        [sys.executable, *pinned, *words], cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    watched.assert_whole("one core is left", 1, finished[0])


# --- clock and text ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clock_that_jumps_changes_no_bit(small, copy, whole, monkeypatch):
    gone = max(copy.glob("records/*"))
    gone.unlink()
    for path in (*copy.glob("records/*"), copy / "manifest.json"):
        os.utime(path, (4e9, 4e9))  # written in the future
    watched, clock = Watched(copy), time.time
    watched.look()
    jumps = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: clock() - 86_400 * next(jumps))  # each call is a day earlier
    api.resume(copy, options=Options(executor="local"), quiet=True)
    monkeypatch.undo()
    watched.assert_whole("the clock jumps", 1, whole, lanes=3)


@pytest.mark.parametrize("began", [0.0, 4e9])
def test_status_with_a_wrong_clock(copy, began):
    Manifest.read(copy).session_path.write_text(f'{{"time": {began}, "host": "here"}}\n')
    with only_driver(copy):
        text = api.status(copy)
    assert "3 of 3 lanes have a record" in text and "-" not in text.splitlines()[1].partition(": ")[2]


def test_a_changed_text_is_refused_and_no_file_changes(small, copy, text, whole):
    max(copy.glob("records/*")).unlink()
    before, content = contents(copy), text.read_text()
    try:
        text.write_text(content.swapcase())
        with pytest.raises(InputError, match="changed since the sweep in .* began; restore it") as changed:
            api.resume(copy, options=Options(executor="local"))
        text.unlink()
        with pytest.raises(InputError, match=str(text)) as gone:
            api.resume(copy, options=Options(executor="local"))
        assert "\n" not in str(changed.value) + str(gone.value)
        assert contents(copy) == before
    finally:
        text.write_text(content)
