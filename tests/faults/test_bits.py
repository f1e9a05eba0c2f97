"""After a flip of any bit in a sweep's files, the same content is read, or the file is named: the step before is used,
or the run is trained again."""

import json
import logging
import random
import time
from types import SimpleNamespace

import pytest

from lvp import sweeps
from lvp.errors import InputError
from lvp.files import digests
from lvp.sweeps import commands, work
from lvp.sweeps.store import Store
from lvp.sweeps.sweep import FORMAT
from lvp.training import records
from tests.faults.conftest import refused
from tests.faults.kill_points import Killed
from tests.faults.ledger import Watched, record
from tests.faults.small_files import FILES
from tests.faults.small_state import CONFIGURATION, SHAPES, STATE
from tests.marking import slow
from tests.sweeps.running import outcomes


def damaged(content, count, seed=0):
    """Yields the content with one bit flipped, for each bit or for a sample of `count` bits. Then yields it without a
    byte, cut, and empty."""
    rng = random.Random(seed)
    bits = range(8 * len(content))
    for bit in bits if count is None else sorted(rng.sample(bits, min(count, len(bits)))):
        yield content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]
    for at in rng.sample(range(len(content)), min(20 if count is None else count // 4, len(content))):
        yield content[:at] + content[at + 1 :]
        yield content[:at]
    yield b""


@pytest.mark.parametrize("count", [200, slow(None)])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_refused_or_reads_the_same(file, count, tmp_path):
    make, read = FILES[file]
    path = make(tmp_path)
    content, whole = path.read_bytes(), read(path)
    injected = named = wrong = 0
    for changed in damaged(content, count):
        path.write_bytes(changed)
        injected += 1
        try:
            found = read(path)
            named += found is None
            wrong += found is not None and found != whole
        except InputError as error:
            assert len(str(error).splitlines()) == 1 and (file == "a record" or str(path) in str(error))
            named += 1
        assert path.read_bytes() == changed
    record(f"{file}: a bit is flipped, a byte is lost or the end is cut off", injected, wrong=wrong)
    assert named > 100 and not wrong
    path.write_bytes(content)
    assert read(path) == whole


@pytest.mark.slow
def test_a_damaged_checkpoint_reads_the_same_or_is_passed_over(tmp_path, caplog):
    store = Store(tmp_path)
    store.save(CONFIGURATION, 1, STATE, [])
    digest = digests.digests_of_tree(STATE)
    injected = passed_over = 0
    whole = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    for number, path in enumerate(p for p in whole if whole[p]):
        for changed in damaged(whole[path], 100, seed=number):
            for file, content in (whole | {path: changed}).items():  # a step that cannot be used was removed
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            injected += 1
            caplog.clear()
            if (latest := store.latest([CONFIGURATION], SHAPES)) is None:
                (message,) = [r.getMessage() for r in caplog.records if r.name == "lvp.sweeps.store"]
                assert str(tmp_path / "checkpoints" / CONFIGURATION / "step_000000001") in message
                assert "\n" not in message
                passed_over += 1
            else:
                assert digests.digests_of_tree(latest[1][0]) == digest
    path.write_bytes(whole[path])
    record("a file of a checkpoint: a bit is flipped, a byte is lost or the end is cut off", injected)
    assert passed_over > 10 and store.latest([CONFIGURATION], SHAPES)[0] == 1


def flip(path, rng):
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content) // 2)] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("count", [2, slow(20)])
def test_a_sweep_with_damaged_records_trains_only_their_runs(small, whole, copy, trained, caplog, count):
    rng, watched = random.Random(0), Watched(copy)
    for _ in range(count):
        del trained[:], watched.seen
        watched.seen = {}
        path = rng.choice(sorted(copy.glob("records/*.jsonl")))
        others = watched._present()
        flip(path, rng)
        small(copy)
        watched.seen = {name: was for name, was in others.items() if path.name not in name}
        assert trained == [path.stem] and f"{copy}/records/{path.name}" in caplog.text
        assert path.with_suffix(".damaged").exists()
        watched.assert_whole("a record is damaged", 1, outcomes(whole))


@pytest.mark.slow
def test_a_sweep_with_a_damaged_checkpoint_uses_the_step_before(small, tmp_path, monkeypatch, caplog):
    """A run of 40 steps is saved at two steps. The last one is damaged."""
    caplog.set_level(logging.WARNING)
    changes = {"checkpoint_seconds": 0.0, "steps": "40"}
    small(tmp_path / "whole", **changes)
    for number in range(20):
        watched, rng = Watched(out := tmp_path / str(number)), random.Random(number)

        def stop(*_):
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(Store, "add_record", stop)
            # A save that takes no time is due after every chunk.
            patched.setattr(work, "time", SimpleNamespace(perf_counter=lambda: 0.0, time=time.time))
            patched.setattr(work, "_speed", lambda *_: {})
            small(out, **changes)
        (run,) = out.glob("checkpoints/*")
        before, last = sorted(run.iterdir())
        for path in last.rglob("*"):
            if path.is_file() and path.stat().st_size > 1:
                flip(path, rng)
        caplog.clear()
        small(out, **changes)
        assert str(last) in caplog.text and "the step before is used" in caplog.text
        (continued,) = [r for r in watched.store.read_records() if r["hash"] == run.name]
        assert continued["provenance"]["resumed_at_step"] == int(before.name[5:]) > 0
        watched.assert_whole("a checkpoint is damaged", 1, outcomes(tmp_path / "whole"))


def signed(held):
    held = {name: value for name, value in held.items() if name != "digest"}
    return json.dumps(held | {"digest": records.config_hash(held)}).encode()


DAMAGED = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:99],
    "changed": lambda whole: whole.replace(b"smoke", b"smok3"),
    "another format": lambda whole: signed(json.loads(whole) | {"format": FORMAT + 1}),
    "another shape": lambda whole: signed(json.loads(whole) | {"settings": {}}),
}


@pytest.mark.parametrize("damage", ["lost", *DAMAGED])
def test_a_sweep_json_that_is_made_again(small, whole, copy, trained, damage):
    path, watched = copy / "sweep.json", Watched(copy)
    watched.look()
    before = path.read_bytes()
    if damage != "lost":
        path.write_bytes(DAMAGED[damage](before))
        for command in (small, commands.status, sweeps.resume):
            with refused() as message:
                command(copy)
            assert f"{path} cannot be used" in message[0]
            assert f"remove it and repeat the `run` command with --out {copy}: finished runs keep" in message[0]
    path.unlink()  # the remedy of the message
    small(copy)
    assert trained == [] and path.read_bytes() == before
    watched.assert_whole("sweep.json is lost or damaged", 1, outcomes(whole))


@pytest.mark.parametrize("content", [b"", "flipped"])
def test_a_damaged_fingerprint_of_a_program_is_written_again(small, whole, copy, trained, caplog, content):
    (path,) = copy.glob("programs/*")
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"program":"', b'"program":"0') if content == "flipped" else content)
    min(copy.glob("records/*.jsonl")).unlink()
    small(copy)
    assert len(trained) == 1 and path.read_bytes() == before and f"{path} is damaged" in caplog.text
    assert outcomes(copy) == outcomes(whole)
