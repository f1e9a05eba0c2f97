"""After a flip of any bit in a sweep's small files, the same content is read or a one-line error names the file."""

import random

import pytest

from lvp.errors import InputError
from lvp.files import digests
from lvp.training import checkpoints
from tests.faults.ledger import record
from tests.faults.small_files import FILES
from tests.faults.small_state import CONFIGURATION, SHAPES, STATE


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


some_or_every = pytest.mark.parametrize("count", [200, pytest.param(None, marks=pytest.mark.slow)])


@some_or_every
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_named_or_reads_the_same(file, count, tmp_path):
    make, read = FILES[file]
    path = make(tmp_path)
    content, whole = path.read_bytes(), read(path)
    injected = named = wrong = 0
    for changed in damaged(content, count):
        path.write_bytes(changed)
        injected += 1
        try:
            wrong += read(path) != whole
        except InputError as error:
            assert str(path) in str(error)
            assert len(str(error).splitlines()) == 1
            named += 1
        assert path.read_bytes() == changed
    record(f"{file}: a bit is flipped, a byte is lost or the end is cut off", injected, 0, 0, wrong)
    assert named > 100 and not wrong
    path.write_bytes(content)
    assert read(path) == whole


@pytest.mark.parametrize("count", [12, pytest.param(None, marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_reads_the_same_or_the_previous_step_is_used(count, tmp_path, caplog):
    checkpoints.save(tmp_path, 1, STATE, CONFIGURATION)
    digest, files = digests.digests_of_tree(STATE), [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size]
    injected = passed_over = 0
    for number, path in enumerate(sorted(files)):
        content = path.read_bytes()
        for changed in damaged(content, count, seed=number):
            path.write_bytes(changed)
            injected += 1
            passed_over += loads_or_falls_back(tmp_path, digest, caplog)
        path.write_bytes(content)
    record("a file of a checkpoint: a bit is flipped, a byte is lost or the end is cut off", injected, 0, 0, wrong=0)
    assert passed_over > 10
    assert checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])[0] == 1


def loads_or_falls_back(folder, digest, caplog):
    """Whether the load skips the only step."""
    caplog.clear()
    latest = checkpoints.latest([folder], SHAPES, [CONFIGURATION])
    if latest is None:
        (message,) = [r.getMessage() for r in caplog.records if r.name == checkpoints.__name__]
        assert "step_000000001" in message and "\n" not in message
        return True
    assert digests.digests_of_tree(latest[1][0]) == digest
    return False


def test_a_step_with_damaged_metadata_is_skipped(tmp_path, caplog):
    for step in (1, 2):
        checkpoints.save(tmp_path, step, STATE, CONFIGURATION)
    path = tmp_path / "step_000000002" / checkpoints._METADATA
    for key in (b'"digests"', b'"configuration"', b'"custom_metadata"'):
        whole = path.read_bytes()
        path.write_bytes(whole.replace(key, key.replace(b"i", b"h").replace(b"c", b"b")))
        assert checkpoints.load(tmp_path, 1, SHAPES, CONFIGURATION)
        with pytest.raises(checkpoints.Damaged, match="step_000000002"):
            checkpoints.load(tmp_path, 2, SHAPES, CONFIGURATION)
        path.write_bytes(whole)
    path.write_bytes(path.read_bytes().replace(b'"digests"', b'"dIgests"'))
    assert checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])[0] == 1 and "step_000000002" in caplog.text
