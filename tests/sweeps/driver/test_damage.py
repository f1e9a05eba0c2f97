"""Damaged files of a sweep are named, and only their lanes are trained again."""

import random
import shutil

import pytest

from lvp.files import append_line, whole_lines
from sweeps.driver.manifest import Manifest
from sweeps.reporting import results
from tests.faults.damage import cut, flip
from tests.sweeps.running import outcomes


@pytest.fixture
def copy(finished, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    return Manifest.read(out)


@pytest.mark.parametrize("damage", [flip, cut, lambda content, rng: b""], ids=["flipped", "cut", "empty"])
def test_only_a_damaged_record_is_renamed(copy, damage):
    rng, whole = random.Random(0), outcomes(copy.out)
    for _ in range(40):
        path = rng.choice(sorted(copy.out.glob("records/*.jsonl")))
        content = path.read_bytes()
        path.write_bytes(damage(content, rng))
        problems = copy.rename_damaged()
        if problems:  # a flipped bit in a line end can be harmless
            assert len(problems) == 1 and str(path) in problems[0] and "\n" not in problems[0]
            assert not path.exists() and path.with_suffix(".damaged").exists()
            assert set(outcomes(copy.out)) == set(whole) - {path.stem}
        else:
            assert damage is flip and outcomes(copy.out) == whole
        path.with_suffix(".damaged").unlink(missing_ok=True)
        path.write_bytes(content)


def test_a_record_under_another_lanes_name_is_damaged(copy):
    first, second = sorted(copy.out.glob("records/*.jsonl"))[:2]
    shutil.copy(first, second)
    assert [str(second) in problem for problem in copy.rename_damaged()] == [True]


@pytest.mark.slow
def test_resume_repairs_damaged_files(copy, command, command_here, finished):
    cut_one, flipped = sorted(copy.out.glob("records/*.jsonl"))[:2]
    cut_one.write_bytes(cut_one.read_bytes()[:200])
    flipped.write_bytes(flipped.read_bytes().replace(b'"status":"finished"', b'"status":"finishes"'))
    with open(copy.out / "trials.jsonl", "a") as log:
        log.write('{"trial": "0001", "sec')
    undamaged = {p: p.stat().st_mtime_ns for p in copy.out.glob("records/*.jsonl") if p not in (cut_one, flipped)}
    assert "2 records cannot be read" in command_here("status", copy.out).stdout
    done = command("resume", copy.out, "--executor", "local")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("renamed to *.damaged, its lane is trained again") == 2
    assert outcomes(copy.out) == outcomes(finished[0])
    assert all(p.stat().st_mtime_ns == t for p, t in undamaged.items())
    assert "damaged records, renamed: " in command_here("status", copy.out).stdout


def test_an_incomplete_last_line_of_a_log_is_ignored_and_then_removed(tmp_path):
    log = tmp_path / "log.jsonl"
    assert whole_lines(log) == []
    for line in ("a", "b"):
        append_line(log, line)
    log.write_bytes(log.read_bytes() + b"c, cut sh")
    assert whole_lines(log) == ["a", "b"]
    append_line(log, "d")
    assert log.read_text() == "a\nb\nd\n"


def test_a_sweep_with_a_damaged_record_is_not_published(copy, monkeypatch, tmp_path):
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "results")
    path = next(copy.out.glob("records/*.jsonl"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="11 of 12 lanes"):
        results.publish(copy.out)
