"""Sweeps under faults: SIGKILL at random moments of the driver, of a worker, or of workers that write a checkpoint, and
files that are damaged before a resume. No finished lane is lost or trained again, and all lanes have the bits of a
sweep without faults."""

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

RUN = ("run", "width_vocab", "--preset", "smoke")
OPTIONS = ("--executor", "local", "--threads", "1", "--quiet", "--checkpoint-seconds", "0")
STEPS = {"steps": "400"}
NUM_FAULTS = 20


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    """Returns the outcomes of a sweep without faults."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    completed = command(*RUN, *OPTIONS, "--out", out, **STEPS)
    assert completed.returncode == 0, completed.stderr
    return outcomes(out)


@dataclass
class FaultySweep:
    """A sweep that has faults and is resumed after each."""

    command: object
    out: Path
    rng: random.Random
    settings: dict[str, str] = field(default_factory=lambda: STEPS)
    num_faults: int = 0  # processes killed or files damaged so far
    first_written: dict[str, int] = field(default_factory=dict)  # record → modification time when first seen
    damaged: dict[str, int] = field(default_factory=dict)  # damaged record → modification time after the damage
    repeated: int = 0  # records that were written again
    process: object = None  # the running driver

    def start(self) -> None:
        self.note_records()
        words = ("resume", self.out) if (self.out / "manifest.json").exists() else (*RUN, "--out", self.out)
        settings = {} if words[0] == "resume" else self.settings
        self.process = self.command(*words, *OPTIONS, start=True, **settings)

    def note_records(self) -> None:
        """Notes new records, and counts known records that were written again."""
        for path in self.out.glob("records/*.jsonl"):
            modified = path.stat().st_mtime_ns
            if self.damaged.get(path.name) == modified:  # not written since the test damaged it
                continue
            self.repeated += self.first_written.setdefault(path.name, modified) != modified

    def wait_for_training(self) -> bool:
        """Waits until a worker trains. Returns False if the driver ends before."""
        began = time.time()
        while self.process.poll() is None:
            assert time.time() - began < 300
            with contextlib.suppress(ValueError, OSError):
                if any(p.stat().st_mtime > self.driver_started for p in self.out.glob("progress/*.json")):
                    return True
            time.sleep(0.02)
        return False

    @property
    def driver_started(self) -> float:
        """The Unix time at which the running driver started."""
        return psutil.Process(self.process.pid).create_time()

    def workers(self) -> list[psutil.Process]:
        """Returns the child processes of the driver."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children()
        return []

    def ended(self, seconds: float) -> bool:
        """Waits for at most `seconds`. Returns whether the driver has ended."""
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
        self.note_records()


def kill_driver(sweep: FaultySweep) -> None:
    """Kills the driver at a random moment while a worker trains."""
    sweep.start()
    if not sweep.wait_for_training() or sweep.ended(sweep.rng.uniform(0, 1.5)):
        return
    sweep.process.kill()
    sweep.process.communicate()
    sweep.num_faults += 1


def kill_workers_repeatedly(sweep: FaultySweep) -> None:
    """Kills a random worker at random moments, until the sweep ends or has had `NUM_FAULTS` faults."""
    sweep.start()
    while sweep.num_faults < NUM_FAULTS and sweep.wait_for_training() and not sweep.ended(sweep.rng.uniform(0.2, 3)):
        if workers := sweep.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                sweep.rng.choice(workers).kill()
                sweep.num_faults += 1


def kill_while_a_checkpoint_is_written(sweep: FaultySweep) -> None:
    """Kills all workers while a checkpoint is written, then the driver."""
    sweep.start()
    skip = sweep.rng.randrange(4)
    while sweep.process.poll() is None:
        temporary = list(sweep.out.glob("checkpoints/*/*-tmp"))
        if not temporary:
            continue
        if skip:
            skip -= 1
            time.sleep(0.05)
            continue
        for worker in sweep.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        if any(path.exists() for path in temporary):
            sweep.num_faults += 1
        sweep.process.kill()
        sweep.process.communicate()
        return


def damage(path: Path, rng: random.Random) -> None:
    """Flips a bit of the file, cuts off its end, or removes it."""
    change = rng.choice([flip, cut, None])  # None removes the file
    if change is None or not path.stat().st_size:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes(), rng))


def damage_a_checkpoint(sweep: FaultySweep) -> None:
    """Kills the driver, then damages a file of an unfinished lane's checkpoint."""
    sweep.start()
    skip = sweep.rng.randrange(4)
    while sweep.wait_for_training():
        if not _saved_steps(sweep.out):
            continue
        if skip:
            skip -= 1
            time.sleep(0.05)
            continue
        sweep.process.kill()
        sweep.process.communicate()
        time.sleep(0.5)  # the workers end after their driver
        if saved := _saved_steps(sweep.out):
            # A worker that ends while it removes a step leaves a directory without files.
            if files := sorted(path for path in sweep.rng.choice(saved).rglob("*") if path.is_file()):
                damage(sweep.rng.choice(files), sweep.rng)
                sweep.num_faults += 1
        return


def _saved_steps(out: Path) -> list[Path]:
    """Returns the directories of complete checkpoints of lanes without a record."""
    steps = (path for path in out.glob("checkpoints/*/step_*") if path.name[5:].isdigit())
    return sorted(path for path in steps if not (out / "records" / f"{path.parent.name}.jsonl").exists())


def damage_a_record(sweep: FaultySweep) -> None:
    """Kills the driver, then damages a record. Its lane is trained again."""
    sweep.start()
    while sweep.process.poll() is None and not list(sweep.out.glob("records/*.jsonl")):
        time.sleep(0.02)
    if sweep.ended(sweep.rng.uniform(0, 1.5)):
        return
    sweep.process.kill()
    sweep.process.communicate()
    sweep.note_records()
    if paths := sorted(sweep.out.glob("records/*.jsonl")):  # the driver may have renamed the only record
        path = sweep.rng.choice(paths)
        damage(path, sweep.rng)
        sweep.first_written.pop(path.name, None)
        if path.exists():
            sweep.damaged[path.name] = path.stat().st_mtime_ns
        sweep.num_faults += 1


def inject_faults(inject, command, tmp_path, undisturbed, num_faults: int) -> tuple[int, int, int, int]:
    """Runs sweeps until they had `num_faults` faults. Returns the numbers of faults, lost lanes, repeated lanes and
    lanes with wrong bits."""
    rng, total, lost, repeated, wrong = random.Random(0), 0, 0, 0, 0
    while total < num_faults:
        sweep = FaultySweep(command, tmp_path / f"out{total}-{rng.randrange(10**6)}", rng)
        while total + sweep.num_faults < num_faults:
            inject(sweep)
            if sweep.process.poll() == 0:
                break
        sweep.finish()
        resumed = outcomes(sweep.out)
        total += sweep.num_faults
        lost += len(set(undisturbed) - set(resumed))
        repeated += sweep.repeated + len(set(resumed) - set(undisturbed))
        wrong += sum(resumed[lane] != undisturbed[lane] for lane in set(resumed) & set(undisturbed))
    return total, lost, repeated, wrong


FAULTS = {
    "the driver is killed": kill_driver,
    "a worker is killed": kill_workers_repeatedly,
    "workers are killed while they write a checkpoint": kill_while_a_checkpoint_is_written,
    "a checkpoint is damaged": damage_a_checkpoint,
    "a record is damaged": damage_a_record,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_repeated_or_changed(fault, command, tmp_path, undisturbed):
    total, lost, repeated, wrong = inject_faults(FAULTS[fault], command, tmp_path, undisturbed, NUM_FAULTS)
    record(fault, injected=total, lost=lost, repeated=repeated, wrong=wrong)
    assert total >= NUM_FAULTS and (lost, repeated, wrong) == (0, 0, 0)


def _without_key(state, step):
    return state | {"key": np.zeros_like(state["key"])}, step


def _without_position(state, step):
    return state, 1


@pytest.mark.slow
@pytest.mark.parametrize("forget", [_without_key, _without_position])
def test_an_incomplete_checkpoint_changes_the_bits(forget, command, tmp_path):
    """Control: if a checkpoint lacks the random key or the position in the data, the bits of its lane change."""
    long = {"steps": "40000", "widths": "16", "rates": "0.01,0.03,0.1", "seeds": "0"}  # lanes have several checkpoints
    reference = command(*RUN, *OPTIONS, "--out", tmp_path / "reference", **long)
    assert reference.returncode == 0, reference.stderr
    sweep = FaultySweep(command, tmp_path / "out", random.Random(1), settings=long)
    sweep.start()
    while not _checkpoints(sweep.out):
        assert not sweep.ended(0.02), "the sweep ended before the test saw a checkpoint"
    sweep.process.kill()
    sweep.process.communicate()
    unfinished = _checkpoints(sweep.out)
    for lane, step in unfinished.items():
        folder = sweep.out / "checkpoints" / lane
        entry = next(entry for entry in Manifest.read(sweep.out).cells if lane in entry.lanes)
        state = jax.tree.map(np.asarray, checkpoints.load(folder, step, Program(entry.cell).lane_shapes(), lane))
        changed, changed_step = forget(state, step)
        for old in checkpoints.steps(folder):
            checkpoints._drop([checkpoints._path(folder, old)])
        checkpoints.save(folder, changed_step, changed, lane)
    sweep.finish()
    resumed = outcomes(sweep.out)
    whole = outcomes(tmp_path / "reference")
    assert unfinished and {lane for lane in resumed if resumed[lane] != whole[lane]} == set(unfinished)


def _checkpoints(out: Path) -> dict[str, int]:
    """Returns the last saved step of each lane without a record, if it is above 1."""
    last_steps = {p.name: checkpoints.steps(p)[-1:] for p in out.glob("checkpoints/*")}
    recorded = {path.stem for path in (out / "records").glob("*.jsonl")}
    return {lane: last[0] for lane, last in last_steps.items() if last and last[0] > 1 and lane not in recorded}
