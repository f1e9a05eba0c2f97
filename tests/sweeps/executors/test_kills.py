"""SIGKILL at random moments for the driver, a worker, or workers that write a checkpoint; and files damaged before a
resume. No finished lane is lost or trained again, and all lanes have the bits of an undisturbed sweep."""

import contextlib
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import psutil
import pytest

from lvp.training import Program, checkpoints
from sweeps.driver.manifest import Manifest
from tests.faults.damage import cut, flip
from tests.faults.ledger import record
from tests.sweeps.running import outcomes

RUN = ("run", "width_vocab", "--tier", "smoke")
OPTIONS = ("--executor", "local", "--threads", "1", "--quiet", "--checkpoint-seconds", "0")
STEPS = {"steps": "400"}
KILLS = 20


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """The outcomes of an undisturbed sweep."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = command(*RUN, *OPTIONS, "--out", out, **STEPS)
    assert done.returncode == 0, done.stderr
    return outcomes(out)


@dataclass
class Attacked:
    """A sweep that is killed and resumed."""

    command: object
    out: Path
    rng: random.Random
    kills: int = 0  # processes killed or files damaged so far
    seen: dict[str, int] = field(default_factory=dict)  # record → its modification time when it was first seen
    damaged: dict[str, int] = field(default_factory=dict)  # record that the test has damaged → its modification time
    repeated: int = 0  # records that were written again
    process: object = None  # the running driver

    def start(self) -> None:
        self.look()
        words = ("resume", self.out) if (self.out / "manifest.json").exists() else (*RUN, "--out", self.out)
        settings = {} if words[0] == "resume" else STEPS
        self.process = self.command(*words, *OPTIONS, start=True, **settings)

    def look(self) -> None:
        """Notes new records, and counts known records that were written again."""
        for path in self.out.glob("records/*.jsonl"):
            time_ = path.stat().st_mtime_ns
            if self.damaged.get(path.name) == time_:  # not written since the test damaged it
                continue
            self.repeated += self.seen.setdefault(path.name, time_) != time_

    def at_work(self) -> bool:
        """Waits until a worker trains. Returns False if the sweep ends before."""
        began = time.time()
        while self.process.poll() is None:
            assert time.time() - began < 300
            with contextlib.suppress(ValueError, OSError):
                if any(p.stat().st_mtime > self.since for p in self.out.glob("progress/*.json")):
                    return True
            time.sleep(0.02)
        return False

    @property
    def since(self) -> float:
        return psutil.Process(self.process.pid).create_time()

    def workers(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children()
        return []

    def ended(self, seconds: float) -> bool:
        deadline = time.time() + seconds
        while time.time() < deadline:
            if self.process.poll() is not None:
                return True
            time.sleep(0.01)
        return False

    def finish(self) -> None:
        """Runs the sweep to its end without further faults."""
        if self.process is not None:
            self.process.communicate(timeout=300)
        self.start()
        _, stderr = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, stderr
        self.look()


def kill_driver(sweep: Attacked) -> None:
    sweep.start()
    if not sweep.at_work() or sweep.ended(sweep.rng.uniform(0, 1.5)):
        return
    sweep.process.kill()
    sweep.process.communicate()
    sweep.kills += 1


def kill_workers_now_and_then(sweep: Attacked) -> None:
    sweep.start()
    while sweep.kills < KILLS and sweep.at_work() and not sweep.ended(sweep.rng.uniform(0.2, 3)):
        if workers := sweep.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                sweep.rng.choice(workers).kill()
                sweep.kills += 1


def kill_in_a_checkpoint(sweep: Attacked) -> None:
    """Kills all workers while a checkpoint is being written."""
    sweep.start()
    skip = sweep.rng.randrange(4)
    while sweep.process.poll() is None:
        begun = list(sweep.out.glob("checkpoints/*/*-tmp"))
        if not begun:
            continue
        if skip:
            skip -= 1
            time.sleep(0.05)
            continue
        for worker in sweep.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        if any(path.exists() for path in begun):
            sweep.kills += 1
        sweep.process.kill()
        sweep.process.communicate()
        return


def damage(path: Path, rng: random.Random) -> None:
    """Flips a bit of the file, cuts its end or removes it."""
    kind = rng.choice([flip, cut, None])
    if kind is None or not path.stat().st_size:
        path.unlink()
    else:
        path.write_bytes(kind(path.read_bytes(), rng))


def damage_a_checkpoint(sweep: Attacked) -> None:
    """Kills the driver, then damages a file of an unfinished lane's checkpoint."""
    sweep.start()
    skip = sweep.rng.randrange(4)
    while sweep.at_work():
        if not _steps(sweep.out):
            continue
        if skip:
            skip -= 1
            time.sleep(0.05)
            continue
        sweep.process.kill()
        sweep.process.communicate()
        time.sleep(0.5)  # the workers end after their driver
        if steps := _steps(sweep.out):
            files = sorted(path for path in sweep.rng.choice(steps).rglob("*") if path.is_file())
            damage(sweep.rng.choice(files), sweep.rng)
            sweep.kills += 1
        return


def _steps(out: Path) -> list[Path]:
    """The complete checkpoints of lanes without a record."""
    steps = (path for path in out.glob("checkpoints/*/step_*") if path.name[5:].isdigit())
    return sorted(path for path in steps if not (out / "records" / f"{path.parent.name}.jsonl").exists())


def damage_a_record(sweep: Attacked) -> None:
    """Kills the driver, then damages a record. Its lane is trained again."""
    sweep.start()
    while sweep.process.poll() is None and not list(sweep.out.glob("records/*.jsonl")):
        time.sleep(0.02)
    if sweep.ended(sweep.rng.uniform(0, 1.5)):
        return
    sweep.process.kill()
    sweep.process.communicate()
    sweep.look()
    if paths := sorted(sweep.out.glob("records/*.jsonl")):  # the driver may have renamed the only record
        path = sweep.rng.choice(paths)
        damage(path, sweep.rng)
        sweep.seen.pop(path.name, None)
        if path.exists():
            sweep.damaged[path.name] = path.stat().st_mtime_ns
        sweep.kills += 1


def attack(strike, command, tmp_path, whole, kills: int) -> tuple[int, int, int, int]:
    """Runs sweeps until there are `kills` faults. Returns the numbers of faults, lost lanes, repeated lanes and lanes
    with wrong bits."""
    rng, total, lost, repeated, wrong = random.Random(0), 0, 0, 0, 0
    while total < kills:
        sweep = Attacked(command, tmp_path / f"out{total}-{rng.randrange(10**6)}", rng)
        while total + sweep.kills < kills:
            strike(sweep)
            if sweep.process.poll() == 0:
                break
        sweep.finish()
        attacked = outcomes(sweep.out)
        total += sweep.kills
        lost += len(set(whole) - set(attacked))
        repeated += sweep.repeated + len(set(attacked) - set(whole))
        wrong += sum(attacked[h] != whole[h] for h in set(attacked) & set(whole))
    return total, lost, repeated, wrong


STRIKES = {
    "the driver is killed": kill_driver,
    "a worker is killed": kill_workers_now_and_then,
    "workers are killed while they write a checkpoint": kill_in_a_checkpoint,
    "a checkpoint is damaged": damage_a_checkpoint,
    "a record is damaged": damage_a_record,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", STRIKES)
def test_nothing_is_lost_repeated_or_changed(fault, command, tmp_path, whole):
    total, lost, repeated, wrong = attack(STRIKES[fault], command, tmp_path, whole, KILLS)
    record(fault, injected=total, lost=lost, repeated=repeated, wrong=wrong)
    assert total >= KILLS and (lost, repeated, wrong) == (0, 0, 0)


def _without_rng(state, step):
    return state | {"key": np.zeros_like(state["key"])}, step


def _without_position(state, step):
    return state, 1


@pytest.mark.slow
@pytest.mark.parametrize("forget", [_without_rng, _without_position])
def test_an_incomplete_checkpoint_changes_the_bits(forget, command, tmp_path, whole):
    """Negative control: without the RNG or the data position in a checkpoint, the test above would fail."""
    sweep = Attacked(command, tmp_path / "out", random.Random(1))
    while not (unfinished := _checkpoints(sweep.out)):
        kill_driver(sweep)
    for lane, step in unfinished.items():
        folder = sweep.out / "checkpoints" / lane
        entry = next(e for e in Manifest.read(sweep.out).cells if lane in e.lanes)
        state = jax.tree.map(np.asarray, checkpoints.load(folder, step, Program(entry.cell).lane_shapes(), lane))
        changed, at = forget(state, step)
        for old in checkpoints.steps(folder):
            checkpoints._drop([checkpoints._path(folder, old)])
        checkpoints.save(folder, at, changed, lane)
    sweep.finish()
    resumed = outcomes(sweep.out)
    assert {h for h in resumed if resumed[h] != whole[h]} == set(unfinished)


def _checkpoints(out: Path) -> dict[str, int]:
    """The last saved step of each lane without a record, if it is after step 1."""
    last_steps = {p.name: checkpoints.steps(p)[-1:] for p in out.glob("checkpoints/*")}
    return {h: s[0] for h, s in last_steps.items() if s and s[0] > 1 and not (out / "records" / f"{h}.jsonl").exists()}
