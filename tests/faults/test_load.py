"""A sweep of two thousand trivial lanes: overhead per lane (printed), the driver's memory, and the time of
`status`."""

import json
import os
import statistics
import subprocess
import sys
import time

import psutil
import pytest

from lvp.training import records
from sweeps.driver import api
from sweeps.driver.manifest import Manifest
from tests.sweeps.running import ROOT

LANES = 2000
TRIVIAL = {
    "corpus": "zipf:1",
    "widths": "8,12",
    "rates": "0.001,0.003,0.01,0.03,0.1",
    "seeds": ",".join(map(str, range(LANES // 10))),
    "steps": "2",
    "vocab_per_width": "32",
    "layers": "1",
    "context": "8",
    "head_dim": "4",
    "batch": "2",
    "slice_bytes": "4000",
    "valid_bytes": "400",
}


def watched(process, out):
    """Returns samples of (number of records, the driver's resident bytes), one every half second while the sweep
    runs."""
    driver, samples = psutil.Process(process.pid), []
    while process.poll() is None:
        finished = sum(1 for _ in out.glob("records/*.jsonl"))
        try:
            samples.append((finished, driver.memory_info().rss))
        except psutil.NoSuchProcess:
            break
        time.sleep(0.5)
    return samples


@pytest.fixture(scope="module", params=["local", "ray"])
def loaded(request, tmp_path_factory):
    """Returns (directory, seconds of the whole command, samples of the driver's memory) of the sweep."""
    folder = tmp_path_factory.mktemp(request.param)
    words = ["run", "width_vocab", "--preset", "smoke", "--executor", request.param, "--threads", "1", "--out"]
    command = [
        sys.executable,
        "-m",
        "sweeps",
        *words,
        folder / "out",
        "--set",
        *(f"{k}={v}" for k, v in TRIVIAL.items()),
    ]
    variables = os.environ | {"LVP_CACHE": str(folder / "cache"), "JAX_PLATFORMS": "cpu"}
    started = time.perf_counter()
    with open(folder / "output", "w") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=output)
        samples = watched(process, folder / "out")
    assert process.returncode == 0, (folder / "output").read_text()[-2000:]
    return folder / "out", time.perf_counter() - started, samples


@pytest.mark.slow
def test_the_drivers_memory_is_bounded(loaded):
    """While lanes train, the driver's memory grows by less than 100 MB. The test prints the overhead per lane: the time
    outside of training."""
    out, wall, samples = loaded
    manifest = Manifest.read(out)
    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert manifest.num_lanes == len(manifest.finished()) == LANES and len(trials) <= 200
    training, workers = sum(t["training_seconds"] for t in trials), manifest.packing["workers"]
    overhead = (wall - training / workers) / LANES
    running = [rss for finished, rss in samples if 0 < finished < LANES]
    growth = (max(running) - running[0]) / 2**20
    drawn = (max(rss for _, rss in samples) - running[-1]) / 2**20
    print(
        f"{wall:.1f} s, training {training:.1f} s on {workers} workers, {len(trials)} trials: {1e3 * overhead:.1f} ms"
    )
    print(f"driver: {running[0] / 2**20:.0f} MB at first, {growth:.0f} MB more at last, {drawn:.0f} to draw")
    assert growth < 100


@pytest.mark.slow
def test_status_costs_less_than_three_reads_of_the_records(loaded):
    """Compares the CPU time of `status` with the time of reading all records. The two calls alternate."""
    out, *_ = loaded
    ratios = []
    for _ in range(5):
        begin = time.process_time()
        text = api.status(out)
        middle = time.process_time()
        assert len(records.read(out / "records")) == LANES
        ratios.append((middle - begin) / (time.process_time() - middle))
    assert f"{LANES} of {LANES} lanes have a record" in text
    done = subprocess.run([sys.executable, "-m", "sweeps", "status", out], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[0] == text.splitlines()[0]
    assert statistics.median(ratios) < 3


@pytest.mark.slow
def test_tracked_lanes_are_not_written_again(loaded):
    out, *_ = loaded

    def files():
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*tfevents*")}

    started = time.perf_counter()
    folder = api.track(out, quiet=True)
    first, written, started = time.perf_counter() - started, files(), time.perf_counter()
    api.track(out, quiet=True)
    again = time.perf_counter() - started
    print(f"tracking: {1e3 * first / LANES:.1f} ms a lane; {again:.2f} s for tracked lanes")
    assert len(written) == LANES and files() == written
    assert again < first / 4
