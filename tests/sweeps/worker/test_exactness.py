"""A lane's bits do not depend on what its worker ran before, on the order of lanes, or on other processes that prepare
the same data."""

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
    """The settings of the finished sweep's workers."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    packing = Manifest.read(finished[0]).packing
    return Settings(threads=packing["threads"], pin=True, compile_cache=str(cache / "xla"))


def without_records(finished, out):
    """Makes the directory `out` of the finished sweep without its records, and returns the finished manifest."""
    manifest = Manifest.read(finished[0])
    copy = dataclasses.replace(manifest, out=out)
    copy.begin()
    copy.make_lane_directories()
    return manifest


@pytest.mark.slow
def test_bits_do_not_depend_on_order_or_on_earlier_lanes(finished, settings, tmp_path):
    """One worker trains all lanes from last to first, alternating between the cells. A new worker trains one lane. All
    have the bits of the finished sweep, whose two workers trained the lanes in order."""
    manifest = without_records(finished, tmp_path / "used")
    first, second = (list(entry.lanes) for entry in manifest.cells)
    pairs = zip(second[::-1], first[::-1], strict=True)
    order = [lane for second_lane, first_lane in pairs for lane in ((1, second_lane), (0, first_lane))]
    worker = Process(tmp_path / "used", settings, 0)
    try:
        for number, (cell, h) in enumerate(order):
            worker.call("run_trial", {"id": str(number), "cell": cell, "pack": 1, "lanes": [h]})
    finally:
        worker.end()
    assert outcomes(tmp_path / "used") == outcomes(finished[0])

    without_records(finished, tmp_path / "new")
    last = order[-1]  # the other worker trained it last
    worker = Process(tmp_path / "new", settings, 0)
    try:
        worker.call("run_trial", {"id": "0", "cell": last[0], "pack": 1, "lanes": [last[1]]})
    finally:
        worker.end()
    assert outcomes(tmp_path / "new") == {last[1]: outcomes(finished[0])[last[1]]}


@pytest.mark.slow
def test_two_sweeps_prepare_one_corpus_at_the_same_time(tmp_path):
    """Two drivers start with an empty cache. Both finish, and the cache has the same files as after `data.prepare` in
    one process."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "LVP_CACHE": str(tmp_path / "cache")}
    (tmp_path / "text").write_text(some_text(8000))
    words = [sys.executable, "-m", "sweeps", "run", "token_frequencies", "--preset", "smoke", "--executor", "local"]
    words += ["--corpus", f"text:{tmp_path / 'text'}", "--threads", "1", "--quiet"]
    words += ["--set", "vocabs=300,350", "first_rank=1"]
    drivers = [
        subprocess.Popen([*words, "--out", tmp_path / name], cwd=ROOT, env=environment, stderr=subprocess.PIPE)
        for name in "ab"
    ]
    for driver in drivers:
        _, stderr = driver.communicate(timeout=300)
        assert (driver.returncode, stderr) == (0, b"")

    def files(folder):
        """The contents of a directory's files by path, without lock files."""
        return {path.relative_to(folder): x for path, x in contents(folder).items() if path.suffix != ".lock"}

    for vocab in (300, 350):
        settings = {"vocab": vocab, "slice_bytes": None, "valid_bytes": None, "cache": tmp_path / "alone"}
        data.prepare(f"text:{tmp_path / 'text'}", **settings)
    assert files(tmp_path / "cache" / "data") == files(tmp_path / "alone")
    first, second = (
        {h: (o["tokens"], o["shown_frequencies"]) for h, o in outcomes(tmp_path / name).items()} for name in "ab"
    )
    assert first == second and len(first) == 2
    assert Manifest.read(tmp_path / "a").datasets == Manifest.read(tmp_path / "b").datasets
