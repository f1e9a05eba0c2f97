"""Sweeps of images: records with accuracies and fingerprints, resume, errors."""

import pytest

from lvp.sweeps import commands, committed
from lvp.training import records

# With one worker the program is compiled only once.
RUN = ("run", "large_updates", "--preset", "smoke", "--executor", "local", "--threads", "2", "--set", "groups=standard")


@pytest.mark.slow
def test_images_make_records_and_resume(command, cache, monkeypatch, tmp_path):
    out = tmp_path / "out"
    done = command(*RUN, "--out", out)
    assert done.returncode == 0, done.stderr
    rows = records.read(out / "records")
    trained = [r for r in rows if "first_scale" in r["config"]["lane"]]  # the other run is a calculation
    assert len(rows) == 3 and {r["config"]["lane"]["first_scale"] for r in trained} == {1.0, 128.0}
    for row in trained:
        assert row["config"]["cell"]["steps"] == 1438 // 128  # an epoch without the last, incomplete batch
        assert 0 <= row["outcome"]["accuracy"] <= 1 and "valid_bits_per_byte" not in row["outcome"]
        assert list(row["config"]["data"]) == ["images"] and len(row["config"]["data"]["images"]) == 64
        assert row["config"]["cell"]["data"]["corpus"] == "digits"
    deleted, kept = (out / "records" / f"{row['hash']}.jsonl" for row in trained)
    before = rows, kept.stat().st_mtime_ns
    deleted.unlink()
    assert command("resume", out, "--executor", "local").returncode == 0
    again = records.read(out / "records"), kept.stat().st_mtime_ns
    assert [r["outcome"] for r in again[0]] == [r["outcome"] for r in before[0]] and again[1] == before[1]
    monkeypatch.setattr(committed, "COMMITTED", tmp_path / "committed")
    published = (commands.publish(out) / "sweep.json").read_text()
    assert '"spec": "digits"' in published and str(cache) not in published


@pytest.mark.parametrize(
    "words, says",
    [
        (("--set", "image=8"), "model.image must be (16, 16, 1) for the training images, got (8, 8, 1)"),
        (("--corpus", "cifar10:missing"), "no CIFAR-10 at"),
        (("--corpus", "wikitext2"), "unknown images 'wikitext2'"),
    ],
)
def test_images_that_do_not_fit_give_a_one_line_error(words, says, command_here, tmp_path):
    done = command_here(*RUN, *words, "--out", tmp_path / "out")
    assert done.returncode == 2 and not done.stdout.startswith("Traceback")
    (line,) = done.stderr.strip().splitlines()
    assert says in line and not (tmp_path / "out").exists()
