"""After a flip of any bit in a sweep's files, the same content is read, or the file is named: the step before is used,
or the run is trained again."""

import logging
import random

import pytest

from lvp.errors import InputError
from lvp.files import checkpoints, digests
from lvp.sweeps.store import Store
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


@pytest.mark.parametrize("count", [5, slow(100)])
def test_a_damaged_checkpoint_reads_the_same_or_is_passed_over(count, tmp_path, caplog):
    store = Store(tmp_path)
    store.save(CONFIGURATION, 1, STATE, [])
    digest = digests.digests_of_tree(STATE)
    injected = passed_over = 0
    whole = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    for number, path in enumerate(p for p in whole if whole[p]):
        for changed in damaged(whole[path], count, seed=number):
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


def test_a_step_with_damaged_metadata_is_passed_over(tmp_path, caplog):
    store = Store(tmp_path)
    for step in (1, 2):
        store.save(CONFIGURATION, step, STATE, [])
    path = tmp_path / "checkpoints" / CONFIGURATION / "step_000000002" / checkpoints.METADATA
    whole = path.read_bytes()
    for key in (b'"digests"', b'"configuration"', b'"custom_metadata"'):
        path.write_bytes(whole.replace(key, key.replace(b"i", b"h").replace(b"c", b"b")))
        with pytest.raises(checkpoints.Damaged, match="step_000000002"):
            store._load(CONFIGURATION, 2, SHAPES)
    assert store.latest([CONFIGURATION], SHAPES)[0] == 1 and "step_000000002" in caplog.text


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


@pytest.mark.parametrize("count", [1, slow(20)])
def test_a_sweep_with_a_damaged_checkpoint_uses_the_step_before(small, whole, tmp_path, monkeypatch, caplog, count):
    """A run of 8 steps is saved at two steps. The last one is damaged."""
    caplog.set_level(logging.WARNING)
    changes = {"checkpoint_seconds": 0.0, "steps": "40"}
    small(tmp_path / "whole", **changes)
    for number in range(count):
        watched, rng = Watched(out := tmp_path / str(number)), random.Random(number)

        def stop(*_):
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(Store, "add_record", stop)
            small(out, **changes)
        (run,) = out.glob("checkpoints/*")
        *earlier, last = sorted(run.iterdir())
        for path in last.rglob("*"):
            if path.is_file() and path.stat().st_size > 1:
                flip(path, rng)
        caplog.clear()
        small(out, **changes)
        assert str(last) in caplog.text and "the step before is used" in caplog.text
        (continued,) = [r for r in watched.store.read_records() if r["hash"] == run.name]
        assert continued["provenance"]["resumed_at_step"] == (int(earlier[-1].name[5:]) if earlier else 0)
        watched.assert_whole("a checkpoint is damaged", 1, outcomes(tmp_path / "whole"))


@pytest.mark.parametrize("damage", ["lost", "empty", "cut", "changed"])
def test_a_sweep_json_that_is_made_again(small, whole, copy, trained, damage):
    path, watched = copy / "sweep.json", Watched(copy)
    watched.look()
    content = {"empty": b"", "cut": path.read_bytes()[:99], "changed": path.read_bytes().replace(b"smoke", b"smok3")}
    path.unlink() if damage == "lost" else path.write_bytes(content[damage])
    if damage != "lost":
        with refused() as message:
            small(copy)
        assert f"{path} cannot be used" in message[0] and f"with --out {copy}" in message[0]
        path.unlink()  # the remedy of the message
    small(copy)
    assert trained == [] and path.read_bytes()
    watched.assert_whole("sweep.json is lost or damaged", 1, outcomes(whole))


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b'{"versions": 3}', "flipped"])
def test_a_damaged_fingerprint_of_a_program_is_written_again(small, whole, copy, trained, caplog, content):
    (path,) = copy.glob("programs/*")
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"program":"', b'"program":"0') if content == "flipped" else content)
    min(copy.glob("records/*.jsonl")).unlink()
    small(copy)
    assert len(trained) == 1 and path.read_bytes() == before and f"{path} is damaged" in caplog.text
    assert outcomes(copy) == outcomes(whole)
