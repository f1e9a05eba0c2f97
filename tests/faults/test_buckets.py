"""Sweeps in a bucket of an S3-compatible server, with faults between them and the server."""

import random

import pytest

from lvp.files.buckets import Bucket, BucketError
from lvp.sweeps import commands, committed
from lvp.sweeps.store import Store
from tests.faults.conftest import refused
from tests.faults.ledger import record
from tests.faults.s3 import KEY, SECRET
from tests.marking import all_slow_but
from tests.sweeps.running import LOCAL, outcomes


def test_a_sweep_in_a_bucket(small, whole, address, trained, monkeypatch, tmp_path, capfd):
    """Its records have the bits of those in a directory. All commands work with the address alone, and no secret is
    written."""
    assert len(small(address)) == 3
    assert outcomes(address) == outcomes(whole) and len(trained) == 3
    names = {entry.name for entry in Bucket(address).objects()}
    assert {"sweep.json", "table.csv", "figure.png"} <= names and not any("checkpoints/" in name for name in names)
    assert "3 of 3 runs have a record" in commands.status(address) and len(commands.table_of(address)) == 3
    assert len(small(address)) == 3 and len(trained) == 3
    monkeypatch.setattr(committed, "COMMITTED", tmp_path / "results")
    assert commands.publish(address).is_dir()
    with refused() as message:
        small(address, steps="9")
    assert f"{address} holds another sweep" in message[0] and f"resume {address}`" in message[0]
    with refused() as message:
        small(address.rpartition("/")[0])
    assert "holds other files" in message[0]
    assert not any(SECRET.encode() in Bucket(address).read(name)[0] for name in names)
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err and KEY not in shown.out + shown.err


def test_a_damaged_record_is_named_and_trained_again(small, whole, address, trained, caplog):
    small(address)
    run, bucket = min(outcomes(whole)), Bucket(address)
    bucket.write(f"records/{run}.jsonl", bucket.read(f"records/{run}.jsonl")[0].replace(b'"status"', b'"stetus"'))
    del trained[:]
    small(address)
    assert trained == [run] and outcomes(address) == outcomes(whole)
    assert f"{address}/records/{run}.jsonl" in caplog.text and bucket.read(f"records/{run}.damaged")


# --- faults of the network and of the server ---------------------------------------------------------------------


def seldom(answer: str, methods=("GET", "PUT", "DELETE"), share=0.2, seed=0):
    """A fault that gives `answer` to a share of the requests."""
    draw = random.Random(seed)
    return lambda request: answer if request.method in methods and draw.random() < share else None


def hidden(request):
    return "hide records/" if "list-type" in request.query else None


FAULTS = {
    "a bucket answers 503": seldom("503 ServiceUnavailable"),
    "a bucket slows down": seldom("503 SlowDown", share=0.4),
    "a bucket answers 429": seldom("429 TooManyRequests"),
    "a bucket answers 500": seldom("500 InternalError"),
    "an upload is cut": seldom("cut request", methods=("PUT",)),
    "a download is cut": seldom("cut answer", methods=("GET",)),
    "the answer of an upload is lost": seldom("cut answer", methods=("PUT",), share=0.4),
    "listings omit records": hidden,
}


@pytest.mark.parametrize("fault", all_slow_but({"the answer of an upload is lost", "listings omit records"}, FAULTS))
def test_faults_of_the_server(small, whole, address, proxy, trained, fault):
    """No run is lost, repeated or wrong, also not in a second session that has one run to train."""
    answers, name = [], f"records/{min(outcomes(whole))}.jsonl"

    def faulty(request):
        answers.append(FAULTS[fault](request))
        return answers[-1]

    proxy.fault = faulty
    small(address, checkpoint_seconds=0.0)
    proxy.fault = lambda request: None
    assert outcomes(address) == outcomes(whole) and len(trained) == 3
    Bucket(address).delete([name])
    proxy.fault, proxy.requests = faulty, []
    small(address, checkpoint_seconds=0.0)
    proxy.fault = lambda request: None
    assert any(answers)  # control: the proxy caused faults
    written = {r.name for r in proxy.requests if r.method == "PUT" and "/records/" in r.name and r.status == 200}
    right, ours = outcomes(whole), outcomes(address)
    lost, wrong = len(right.keys() - ours.keys()), sum(right.get(run) != ours[run] for run in ours)
    repeated = len(trained) - 4 + len([each for each in written if not each.endswith(name)])
    record(fault, 2, lost, repeated, wrong)
    assert (lost, repeated, wrong) == (0, 0, 0)


def test_stale_listings_without_reads_by_name_repeat_runs(small, address, proxy, trained, monkeypatch):
    """Control of `listings omit records`."""
    small(address)
    proxy.fault = hidden
    monkeypatch.setattr(Store, "record", lambda *_: None)
    with refused(RuntimeError):
        small(address)
    assert len(trained) == 6


@pytest.mark.parametrize("answer", ["403 ExpiredToken", "400 ExpiredToken"])
def test_expired_credentials(small, whole, address, proxy, trained, answer):
    """The sweep ends with one line that names the error. With new credentials it continues."""
    proxy.fault = lambda request: answer if proxy.times("PUT", "/records/") >= 1 else None
    with refused(RuntimeError, OSError) as message:
        small(address)
    assert "ExpiredToken" in message[0] and SECRET not in message[0] and KEY not in message[0]
    proxy.fault, proxy.requests = lambda request: None, []
    small(address)
    assert outcomes(address) == outcomes(whole) and proxy.times("PUT", "/records/") == 2


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_credentials_that_expire_while_processes_train(command, finished, address, proxy, executor):
    """Drivers and workers print one line and no traceback."""
    proxy.fault = lambda request: "403 ExpiredToken" if proxy.times("PUT", "/records/") >= 1 else None
    words = ("run", "width_vocab", "--preset", "smoke", "--executor", executor, "--threads", "1", "--quiet")
    done = command(*words, "--out", address)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "ExpiredToken" in done.stderr, done.stderr
    proxy.fault = lambda request: None
    done = command(*words, "--out", address)
    assert done.returncode == 0 and outcomes(address) == outcomes(finished[0]), done.stderr


def test_a_server_that_fails_is_an_error_of_the_machine(address, proxy):
    proxy.fault = lambda request: "503 SlowDown"
    with pytest.raises(BucketError, match=r"the server fails \(503 SlowDown\)") as error:
        Bucket(address, patience=0.5).read("sweep.json")
    assert not error.value.refused and SECRET not in str(error.value)


# --- bad input ---------------------------------------------------------------------------------------------------


def test_a_read_only_bucket(small, address, proxy):
    def read_only(request):
        return "403 AccessDenied" if request.method != "GET" else None

    proxy.fault = read_only
    with refused() as message:
        small(address)
    assert "403 AccessDenied" in message[0] and "permissions" in message[0]
    assert not any(r.method != "GET" and r.status == 200 for r in proxy.requests)
    proxy.fault = lambda request: None
    small(address)
    proxy.fault = read_only
    assert "3 of 3 runs" in commands.status(address) and len(commands.table_of(address)) == 3


@pytest.mark.parametrize(
    "place, problem",
    [
        ("s3://", "names no bucket"),
        ("s4://bucket/x", "unknown scheme 's4'; did you mean s3"),
        ("s3://k:planted@bucket/x", "the bucket's address contains credentials"),
        ("s3://lvp-tests-without-bucket/x", "the bucket does not exist"),
    ],
)
def test_an_address_that_cannot_be_used(command_here, proxy, place, problem):
    run = ("run", "width_vocab", "--preset", "smoke", *LOCAL, "--out", place)
    for words in (run, ("resume", place), ("status", place)):
        done = command_here(*words)
        assert done.returncode in (1, 2) and problem in done.stderr and done.stderr.count("\n") == 1, done
        assert "planted" not in done.stdout + done.stderr
    assert not any(r.method != "GET" for r in proxy.requests)


def test_an_address_that_is_no_sweep(command_here, address):
    for words in ("resume", "status", "figure", "publish"):
        done = command_here(words, address)
        assert done.returncode == 2 and f"{address} has no sweep.json" in done.stderr and done.stderr.count("\n") == 1


def test_endpoint_and_credentials_name_their_variables(command_here, address, monkeypatch):
    for name, problem in {
        "AWS_ALLOW_HTTP": "set AWS_ALLOW_HTTP=true",
        "AWS_ACCESS_KEY_ID": "set AWS_ACCESS_KEY_ID",
    }.items():
        with monkeypatch.context() as patched:
            patched.delenv(name)
            done = command_here("status", address)
        assert done.returncode in (1, 2) and problem in done.stderr and done.stderr.count("\n") == 1, done
