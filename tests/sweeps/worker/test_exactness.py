"""A lane's numbers are its own: whatever a worker ran before, in whatever order, and whoever prepares the data beside
it, they are the same to the bit."""

import dataclasses
import os
import subprocess
import sys

import pytest

from lvp import data
from sweeps.driver.manifest import Manifest
from sweeps.executors.local import Process
from sweeps.worker.worker import Settings
from tests.faults.damage import contents
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.running import ROOT, outcomes


@pytest.fixture
def settings(finished, cache, monkeypatch):
    """As the finished sweep's workers had them, but for their cores."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    packing = Manifest.read(finished[0]).packing
    return Settings(threads=packing["threads"], pin=True, compile_cache=str(cache / "xla"))


def anew(finished, out):
    """The finished sweep without its records."""
    manifest = Manifest.read(finished[0])
    copy = dataclasses.replace(manifest, out=out)
    copy.begin()
    copy.make_lane_directories()
    return manifest


@pytest.mark.slow
def test_lanes_in_any_order_in_used_and_fresh_workers(finished, settings, tmp_path):
    """All lanes of both cells from last to first in one worker, cells taking turns; then one lane alone in a fresh one:
    the bits of the sweep whose two workers took them in order."""
    manifest = anew(finished, tmp_path / "used")
    first, second = (list(entry.lanes) for entry in manifest.cells)
    pairs = zip(second[::-1], first[::-1], strict=True)
    order = [each for ours, theirs in pairs for each in ((1, ours), (0, theirs))]
    worker = Process(tmp_path / "used", settings, 0)
    try:
        for number, (cell, h) in enumerate(order):
            worker.call("run_trial", {"id": str(number), "cell": cell, "pack": 1, "lanes": [h]})
    finally:
        worker.end()
    assert outcomes(tmp_path / "used") == outcomes(finished[0])

    anew(finished, tmp_path / "fresh")
    last = order[-1]  # that the other worker trained after all others
    worker = Process(tmp_path / "fresh", settings, 0)
    try:
        worker.call("run_trial", {"id": "0", "cell": last[0], "pack": 1, "lanes": [last[1]]})
    finally:
        worker.end()
    assert outcomes(tmp_path / "fresh") == {last[1]: outcomes(finished[0])[last[1]]}


@pytest.mark.slow
def test_sweeps_that_prepare_one_corpus_at_once(tmp_path):
    """Two drivers on an empty cache: both come to the end, on the files that one alone makes."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "LVP_CACHE": str(tmp_path / "cache")}
    (tmp_path / "text").write_text(some_text(8000))
    words = [sys.executable, "-m", "sweeps", "run", "token_frequencies", "--tier", "smoke", "--executor", "local"]
    words += ["--corpus", f"text:{tmp_path / 'text'}", "--threads", "1", "--quiet"]
    words += ["--set", "vocabs=300,350", "first_rank=1"]
    drivers = [
        subprocess.Popen([*words, "--out", tmp_path / name], cwd=ROOT, env=environment, stderr=subprocess.PIPE)
        for name in "ab"
    ]
    for driver in drivers:
        _, stderr = driver.communicate(timeout=300)
        assert (driver.returncode, stderr) == (0, b"")

    def made(folder):
        """By name, but for locks."""
        return {path.relative_to(folder): x for path, x in contents(folder).items() if path.suffix != ".lock"}

    for vocab in (300, 350):
        asked = {"vocab": vocab, "slice_bytes": None, "valid_bytes": None, "cache": tmp_path / "alone"}
        data.prepare(f"text:{tmp_path / 'text'}", **asked)
    assert made(tmp_path / "cache" / "data") == made(tmp_path / "alone")
    first, second = (
        {h: (o["tokens"], o["shown_frequencies"]) for h, o in outcomes(tmp_path / name).items()} for name in "ab"
    )
    assert first == second and len(first) == 2
    assert Manifest.read(tmp_path / "a").datasets == Manifest.read(tmp_path / "b").datasets
