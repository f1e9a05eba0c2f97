"""Sweeps in a bucket of an S3-compatible server, with faults between them and the server."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lvp import training
from lvp.files.buckets import Bucket, BucketError
from lvp.training import records
from sweeps.driver import api, lease, working_copy
from sweeps.driver.manifest import Manifest
from sweeps.executors.machine_check import MachineCheck
from sweeps.reporting import results
from sweeps.worker.stop import Reason
from sweeps.worker.worker import Settings, Worker
from tests.faults import network
from tests.faults.ledger import record
from tests.faults.s3 import BUCKET, KEY, SECRET, Proxy, environment, proxy, server  # noqa: F401  fixtures
from tests.faults.watching import refused
from tests.marking import all_slow_but
from tests.sweeps.running import LOCAL, ROOT, TINY, outcomes


@pytest.fixture
def address(proxy, tmp_path):  # noqa: F811
    return f"s3://{BUCKET}/runs/{tmp_path.name}"


@pytest.fixture
def trained(monkeypatch):
    """The lanes of the packs that this process trains."""
    lanes, run = [], Worker._run_pack

    def counted(worker, manifest, index, hashes, pack):
        lanes.extend(hashes)
        return run(worker, manifest, index, hashes, pack)

    monkeypatch.setattr(Worker, "_run_pack", counted)
    return lanes


def outcomes_at(address) -> dict[str, dict]:
    with working_copy.opened(address) as out:
        return outcomes(out)


def names_at(address) -> set[str]:
    """The names of all objects of a sweep, with their folders."""
    with working_copy.opened(address) as out:
        entries = [entry for page in working_copy.get(out).bucket.store.list() for entry in page]
        return {entry["path"] for entry in entries}


def options():
    return api.Options(executor="local")


# --- without faults ----------------------------------------------------------------------------------------------


def test_a_sweep_in_a_bucket(small, whole, address, proxy, trained, monkeypatch, tmp_path, capfd):  # noqa: F811
    """The records of a sweep in a bucket have the same bits as those in a directory. All commands work with nothing but
    the bucket, and no secret is written."""
    assert len(small(address)) == 3
    assert outcomes_at(address) == outcomes(whole) and len(trained) == 3
    names = names_at(address)
    assert {"manifest.json", "table.csv", "figure.png", "session.json", ".lease"} <= names
    assert not any(name.startswith("checkpoints/") for name in names)
    assert "3 of 3 lanes have a record" in api.status(address) and "no driver is running" in api.status(address)
    assert len(api.table_of(address)) == 3
    assert len(api.resume(address, options=options())) == len(small(address)) == 3 and len(trained) == 3
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "results")
    assert len(records.read(results.publish(address))) == 3

    refusal = refused(lambda: small(address, steps="9"))
    assert f"{address} holds another sweep" in refusal and f"resume {address}`" in refusal
    parent = address.rpartition("/")[0]
    assert "holds files that do not belong to this sweep" in refused(lambda: small(parent))
    with working_copy.opened(address) as out:
        store = working_copy.get(out).bucket.store
        assert not any(SECRET.encode() in bytes(store.get(name).bytes()) for name in names_at(address))
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err and KEY not in shown.out + shown.err


def test_a_damaged_record_is_named_and_trained_again(small, whole, address, trained, capfd):
    small(address)
    with working_copy.opened(address) as out:
        path = min(out.glob("records/*.jsonl"))
        store = working_copy.get(out).bucket.store
        store.put(f"records/{path.name}", path.read_bytes().replace(b'"status"', b'"stetus"'))
    del trained[:]
    api.resume(address, options=options())
    assert trained == [path.stem] and outcomes_at(address) == outcomes(whole)
    assert f"{address}/records/{path.name}" in capfd.readouterr().out
    assert f"records/{path.stem}.damaged" in names_at(address)


def test_a_lost_manifest_is_restored_from_its_copy(small, whole, address, trained):
    small(address)
    with working_copy.opened(address) as out:
        working_copy.get(out).bucket.delete(
            ["manifest.json", next(iter(f"records/{p.name}" for p in out.glob("records/*")))]
        )
    assert f"resume {address}` restores it" in refused(lambda: api.status(address))
    api.resume(address, options=options(), quiet=True)
    assert outcomes_at(address) == outcomes(whole) and len(trained) == 4


# --- another machine ---------------------------------------------------------------------------------------------


def machine(folder: Path, port: int) -> dict[str, str]:
    """Returns the environment of a process with its own home, temporary directory and cache."""
    variables = environment(port) | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    for name, place in {"HOME": "home", "TMPDIR": "tmp", "LVP_CACHE": "cache"}.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        variables[name] = str(folder / place)
    return os.environ | variables


def sweeps(folder: Path, port: int, *words, within: Sequence[str] = ()) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    command = [*within, sys.executable, "-m", "sweeps", *map(str, words)]
    return subprocess.Popen(command, cwd=folder, env=machine(folder, port), **pipes)


@pytest.fixture
def two_machines(server, proxy):  # noqa: F811
    """Yields, for two machines in network namespaces that reach only the bucket, the proxy and `Machine.within`."""
    if reason := network.problem():
        pytest.skip(reason)
    with network.Network("first", "second") as machines, contextlib.ExitStack() as stack:
        yield [(stack.enter_context(Proxy(server, machine=m)), m.within) for m in machines.machines]


@pytest.mark.slow
def test_a_killed_driver_is_continued_by_another_machine(address, two_machines, tmp_path):
    """SIGKILL of the driver and its workers. A machine with its own network, processes and files resumes the sweep from
    its checkpoints to the bits of an undisturbed sweep. No secret is in a file, an output, an object or the list of
    processes."""
    (own, within), (other, within_other) = two_machines
    settings = [f"--set={k}={v}" for k, v in (TINY | {"widths": "16", "seeds": "0", "steps": "400"}).items()]
    run = ("run", "width_vocab", "--preset", "smoke", *LOCAL, "--checkpoint-seconds", "0")
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    reach = f"import socket; socket.create_connection(('127.0.0.1', {own.port}))"
    by_machine = [subprocess.run([*w("/"), sys.executable, "-c", reach]).returncode for w in (within, within_other)]
    assert by_machine[0] == 0 < by_machine[1]  # control: the machines share no network

    driver = sweeps(first, own.port, *run, "--out", address, *settings, within=within(first))
    deadline = time.monotonic() + 250
    while not saved_after_a_record(own):
        assert driver.poll() is None and time.monotonic() < deadline, driver.communicate()
        time.sleep(0.02)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if readable(path)]
    assert not any(SECRET.encode() in line for line in lines)
    os.killpg(driver.pid, signal.SIGKILL)
    before, _ = driver.communicate()
    time.sleep(1)  # workers end after their driver
    recorded = own.times("PUT", "/records/")
    assert 0 < recorded < 3

    resumed = sweeps(second, other.port, "resume", address, *LOCAL, within=within_other(second))
    stdout, stderr = resumed.communicate(timeout=280)
    assert resumed.returncode == 0, stderr
    assert "waiting up to" in stdout
    resumed_records = other.times("PUT", "/records/")
    assert resumed_records == 3 - recorded and other.times("GET", "/checkpoints/") > 0

    undisturbed = sweeps(second, other.port, *run, "--out", second / "out", *settings)
    assert undisturbed.wait(280) == 0, undisturbed.communicate()
    ours, right = outcomes_at(address), outcomes(second / "out")
    counts = {
        "lost": len(right.keys() - ours.keys()),
        "repeated": recorded + resumed_records - len(right),
        "wrong": sum(right[h] != ours[h] for h in ours),
    }
    record("the driver of a sweep in a bucket is killed, and another machine resumes", 1, **counts)
    assert counts == {"lost": 0, "repeated": 0, "wrong": 0}
    with working_copy.opened(address) as out:
        resumed_at = [r["provenance"]["resumed_at_step"] for r in Manifest.read(out).read_records()]
    assert max(resumed_at) > 0

    for folder in (first, second):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert SECRET not in before + stdout + stderr and KEY not in before + stdout + stderr


def saved_after_a_record(proxy) -> int:  # noqa: F811
    """The number of checkpoints that were written since the last record, and 0 without a record."""
    done = [r.name for r in list(proxy.requests) if r.method == "PUT" and r.status == 200]
    written = ["/records/" in name for name in done if "/records/" in name or "/checkpoints/" in name]
    return written[::-1].index(True) if any(written) else 0


def readable(path: Path) -> bool:
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


# --- faults of the network and of the server ---------------------------------------------------------------------


def seldom(answer: str, methods=("GET", "PUT", "DELETE"), share=0.2, seed=0):
    """A fault that gives `answer` to a share of the requests."""
    draw = random.Random(seed)
    return lambda request: answer if request.method in methods and draw.random() < share else None


FAULTS = {
    "a bucket answers 503": seldom("503 ServiceUnavailable"),
    "a bucket slows down": seldom("503 SlowDown", share=0.4),
    "a bucket answers 429": seldom("429 TooManyRequests"),
    "a bucket answers 500": seldom("500 InternalError"),
    "an upload is cut": seldom("cut request", methods=("PUT",)),
    "the answer of an upload is lost": seldom("cut answer", methods=("PUT",), share=0.4),
    "listings omit records": lambda request: "hide records/" if "list-type" in request.query else None,
}


@pytest.mark.parametrize("fault", all_slow_but({"the answer of an upload is lost", "listings omit records"}, FAULTS))
def test_faults_of_the_server(small, whole, address, proxy, trained, fault):  # noqa: F811
    """No lane is lost, repeated or wrong, also not in a second session that has one lane to train."""
    answers = []

    def faulty(request):
        answers.append(FAULTS[fault](request))
        return answers[-1]

    proxy.fault = faulty
    small(address)
    with working_copy.opened(address) as out:
        bucket = working_copy.get(out).bucket
    proxy.fault = lambda request: None
    assert outcomes_at(address) == outcomes(whole)
    name = sorted(name for name in names_at(address) if name.startswith("records/"))[1]
    bucket.delete([name])
    proxy.fault, proxy.requests = faulty, []
    api.resume(address, options=options(), quiet=True)
    proxy.fault = lambda request: None
    assert any(answers)  # control: the proxy caused faults
    written = {r.name for r in proxy.requests if r.method == "PUT" and "/records/" in r.name and r.status == 200}
    right, ours = outcomes(whole), outcomes_at(address)
    counts = {
        "lost": len(right.keys() - ours.keys()),
        "repeated": len(trained) - 4 + len(written - {f"{address.partition(BUCKET)[2][1:]}/{name}"}),
        "wrong": sum(right[lane] != ours[lane] for lane in right.keys() & ours.keys()),
    }
    record(fault, 2, **counts)
    assert counts == {"lost": 0, "repeated": 0, "wrong": 0}


def test_stale_listings_without_reading_by_name_repeat_lanes(small, address, proxy, trained, monkeypatch):  # noqa: F811
    """Control of `listings omit records`: without reads by name, finished lanes are trained again."""
    small(address)
    proxy.fault = FAULTS["listings omit records"]
    monkeypatch.setattr(Manifest, "fetch_records", lambda *_: None)
    api.resume(address, options=options(), quiet=True)
    assert len(trained) == 6


@pytest.mark.parametrize("answer", ["403 ExpiredToken", "400 ExpiredToken"])
def test_expired_credentials(small, whole, address, proxy, trained, answer):  # noqa: F811
    """The sweep ends with one line that names the error. With new credentials it continues."""
    proxy.fault = lambda request: answer if proxy.times("PUT", "/records/") >= 1 else None
    with pytest.raises((RuntimeError, OSError)) as problem:
        small(address)
    message = str(problem.value)
    assert "ExpiredToken" in message and "\n" not in message and SECRET not in message and KEY not in message
    proxy.fault = lambda request: None
    proxy.requests = []
    released(address)
    api.resume(address, options=options(), quiet=True)
    assert outcomes_at(address) == outcomes(whole) and proxy.times("PUT", "/records/") == 2


def released(address) -> None:
    """Deletes the lease of a driver that could not release it, so that the test need not wait until it expires."""
    with working_copy.opened(address) as out:
        working_copy.get(out).bucket.delete([lease.NAME])


def test_a_server_that_fails_is_an_error_of_the_machine(address, proxy):  # noqa: F811
    proxy.fault = lambda request: "503 SlowDown"
    with pytest.raises(BucketError, match=r"the server fails \(503 SlowDown\)") as error:
        Bucket(address, patience=0.5).read("manifest.json")
    assert not error.value.refused and SECRET not in str(error.value)


# --- bad input ---------------------------------------------------------------------------------------------------


def test_a_read_only_bucket(small, address, proxy):  # noqa: F811
    proxy.fault = lambda request: "403 AccessDenied" if request.method != "GET" else None
    message = refused(lambda: small(address))
    assert "403 AccessDenied" in message and "permissions" in message
    assert not any(r.method != "GET" and r.status == 200 for r in proxy.requests)
    proxy.fault = lambda request: None
    small(address)
    proxy.fault = lambda request: "403 AccessDenied" if request.method != "GET" else None
    assert "3 of 3 lanes" in api.status(address) and len(api.table_of(address)) == 3


@pytest.mark.parametrize(
    "place, problem",
    [
        ("s3://", "names no bucket"),
        ("s4://bucket/x", "unknown scheme 's4'; did you mean s3"),
        ("s3://k:planted@bucket/x", "the bucket's address contains credentials"),
        ("s3://lvp-tests-without-bucket/x", "the bucket does not exist"),
    ],
)
def test_an_address_that_cannot_be_used(command_here, proxy, place, problem):  # noqa: F811
    for words in (
        ("run", "width_vocab", "--preset", "smoke", *LOCAL, "--out", place),
        ("resume", place),
        ("status", place),
    ):
        done = command_here(*words)
        assert done.returncode == 2 and problem in done.stderr and done.stderr.count("\n") == 1, done
        assert "planted" not in done.stdout + done.stderr
    assert not any(r.method != "GET" for r in proxy.requests)


def test_an_address_that_is_no_sweep(command_here, address):
    for words in ("resume", "status", "figure", "publish"):
        done = command_here(words, address)
        assert (
            done.returncode == 2 and f"{address} has no manifest.json" in done.stderr and done.stderr.count("\n") == 1
        )


def test_workers_that_share_a_mesh_need_a_shared_directory(address, text, monkeypatch):
    monkeypatch.setattr("sweeps.driver.options._check_answers", lambda address: None)
    cluster = api.Options(ray_address="localhost:6379", mesh="data=2", hosts=2)
    for call in (
        lambda: api.run("width_vocab", "smoke", out=address, options=cluster, corpus=f"text:{text}", quiet=True),
        lambda: api.resume(address, options=cluster),
    ):
        assert "need a directory that all machines share" in refused(call)


# --- workers of other machines -----------------------------------------------------------------------------------


def test_a_worker_elsewhere_writes_the_same_record(small, whole, address, monkeypatch, tmp_path):  # noqa: F811
    """It has nothing but the bucket: it prepares the data, and resumes from the checkpoint of another machine."""
    small(address)
    with working_copy.opened(address) as out:
        manifest = Manifest.read(out)
        lane = min(manifest.finished())
        working_copy.get(out).bucket.delete([f"records/{lane}.jsonl"])
        settings = Settings(pin=False, session=manifest.session(), bucket=address, checkpoint_seconds=0.0)
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    trial = {"id": "0000", "cell": 0, "lanes": [lane], "pack": 1}
    with monkeypatch.context() as interrupted:
        interrupted.setattr(Worker, "_stop_reason", lambda *_: Reason.ASKED_BY_DRIVER)
        with pytest.raises(training.Preempted):
            Worker(out, settings).run_trial(trial)
    assert any(name.startswith(f"checkpoints/{lane}/") for name in names_at(address))
    worker = Worker(out, settings)
    assert worker.out != out and worker.run_trial(trial)["lanes"] == 1
    assert outcomes_at(address) == outcomes(whole)
    assert not any(name.startswith("checkpoints/") for name in names_at(address))
    with working_copy.opened(address) as out:
        (record,) = Manifest.read(out).read_records([lane])
    assert record["provenance"]["resumed_at_step"] > 0


def test_a_machine_that_cannot_run_the_sweep_is_named(small, address, text, proxy, monkeypatch, tmp_path):  # noqa: F811
    small(address)
    with working_copy.opened(address) as out:
        check = MachineCheck.for_manifest(Manifest.read(out), address)
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    assert check.problem() is None
    assert f"does not see the same {address} as the driver" in replace(check, session="other").problem()
    proxy.fault = lambda request: "403 AccessDenied"
    assert "cannot run the sweep" in check.problem() and "check the credentials" in check.problem()
    proxy.fault = lambda request: None
    worker, content = (
        Worker(tmp_path / "none", Settings(pin=False, session=check.session, bucket=address)),
        text.read_text(),
    )
    worker.prepare()
    try:
        text.write_text(content[:-100])
        worker._datasets = {}
        problem = refused(worker.prepare)
    finally:
        text.write_text(content)
    assert "corpus of" in problem and "changed since the sweep" in problem
    worker.leave()
    assert not worker.out.exists()
