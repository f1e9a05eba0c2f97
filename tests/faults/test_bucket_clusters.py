"""Ray clusters whose machines share a bucket and no directory."""

import json
import os
import signal
import subprocess

import pytest

from lvp.files.buckets import Bucket
from sweeps.driver import working_copy
from sweeps.driver.manifest import Manifest
from tests.faults.clusters import LONG, OPTIONS, RUN
from tests.faults.ledger import record
from tests.faults.s3 import BUCKET, SECRET, proxy, server  # noqa: F401  fixtures
from tests.faults.watching import until
from tests.sweeps.running import outcomes

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(proxy, tmp_path):  # noqa: F811
    return Bucket(f"s3://{BUCKET}/runs/{tmp_path.name}")


@pytest.fixture
def elsewhere(bucket, cache, tmp_path, monkeypatch):
    """Returns words that run the command after them on a machine `second`, with other temporary files and cache.

    The variables of the bucket are set before the cluster starts, because its machines inherit them."""
    if os.geteuid() or subprocess.run(["unshare", "--mount", "--uts", "true"], check=False).returncode:
        pytest.skip("a machine with files of its own takes root and unshare")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("LVP_CACHE", str(cache))
    hide = f"hostname second && mount -t tmpfs none {temporary} && mount -t tmpfs none {cache}"
    return ("unshare", "--mount", "--uts", "sh", "-c", f'{hide} && exec "$@"', "sh")


def hosts_at_work(bucket) -> set[str]:
    return {entry.name.removeprefix("progress/").rpartition("-")[0] for entry in bucket.listed("progress/")}


def checkpoints(bucket) -> set[str]:
    """The names of all checkpoints. The server lists folders of deleted objects, too."""
    return {entry["path"] for page in bucket.store.list("checkpoints/") for entry in page}


def assert_whole(bucket, proxy, undisturbed, fault: str, injected: int) -> list[dict]:  # noqa: F811
    """Asserts that the sweep has the undisturbed sweep's outcomes, each written once, and returns its records."""
    with working_copy.opened(bucket.address) as out:
        records, ours, right = Manifest.read(out).read_records(), outcomes(out), outcomes(undisturbed)
    counts = {"lost": len(right.keys() - ours.keys()), "wrong": sum(right[h] != ours[h] for h in right.keys() & ours)}
    # The server refuses a second record, but the proxy sees the request.
    uploads = [r for r in proxy.requests if r.method == "PUT" and "/records/" in r.name]
    counts["repeated"] = len(uploads) - len(ours)
    record(fault, injected, **counts)
    assert counts == {"lost": 0, "wrong": 0, "repeated": 0} and len(ours) == 6
    return records


def test_machines_that_share_only_a_bucket(six_lanes, command, elsewhere, cluster, bucket, proxy):  # noqa: F811
    """A machine is killed, the driver is interrupted, and the other machine resumes the sweep."""
    words = (*OPTIONS, "--ray-address", cluster.address)
    node = cluster.add(*elsewhere)
    process = command(*RUN, *words, "--out", bucket.address, start=True, **LONG)
    until(lambda: "second" in hosts_at_work(bucket) and len(hosts_at_work(bucket)) == 2, process)
    node.kill()
    node = cluster.add(*elsewhere)
    until(lambda: proxy.times("PUT", "/records/"), process)
    until(lambda: checkpoints(bucket), process)

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert f"resume {bucket.address}" in stderr and "Traceback" not in stderr
    assert checkpoints(bucket)
    recorded = proxy.times("PUT", "/records/")
    assert recorded < 6

    process = command("resume", bucket.address, *words, start=True, within=elsewhere)
    _, stderr = process.communicate(timeout=900)
    assert process.returncode == 0, stderr
    records = assert_whole(bucket, proxy, six_lanes, "machine that shares only a bucket killed; driver interrupted", 2)
    assert not checkpoints(bucket)
    assert max(r["provenance"]["resumed_at_step"] for r in records) > 0
    reports = bucket.read("trials.jsonl")[0].decode().splitlines()
    assert {json.loads(line)["host"] for line in reports} > {"second"}
    lines = subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    assert SECRET not in lines + stderr
