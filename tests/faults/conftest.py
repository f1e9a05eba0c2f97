"""Fixtures: sweeps of three runs in the test's process, and an S3 server with a proxy (`tests.faults.s3`)."""

import contextlib
import fcntl
import shutil

import pytest

from lvp import sweeps
from lvp.errors import InputError
from lvp.sweeps import forecast, report
from lvp.sweeps.work import Worker
from tests.faults.s3 import BUCKET, proxy, server  # noqa: F401  fixtures
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.running import TINY, keep_programs, outcomes

SMALL = TINY | {"widths": "16", "seeds": "0", "steps": "8"}
OPTIONS = {"executor": "inline", "pack": 1, "quiet": True}
SIX = {"widths": "16", "steps": "20000"}  # six runs of several seconds, so that many kills hit one
RUN = ("run", "width_vocab", "--preset", "smoke", "--threads", "1", "--checkpoint-seconds", "0.3", "--quiet")


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "some-text.txt"  # of this process: a test changes it
    path.write_text(some_text(20_000), encoding="utf-8")
    return path


@contextlib.contextmanager
def small_sweeps(text, cache):
    """Yields the function that the fixture `small` describes."""

    def run(out, **changes):
        return sweeps.run("width_vocab", "smoke", out=out, corpus=f"text:{text}", **(SMALL | OPTIONS | changes))

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LVP_CACHE", str(cache))
        patched.setattr(report.Report, "files", lambda _: ({"table.csv": b"table", "figure.png": b"figure"}, "", []))
        patched.setattr(forecast, "matrix_product_flops", lambda: 1e9)
        keep_programs(patched)
        yield run


@pytest.fixture(scope="module")
def small(text, cache):
    """small(out, **changes) runs a sweep of three runs with its worker in this process, without figure and forecast."""
    with small_sweeps(text, cache) as run:
        yield run


@pytest.fixture(scope="session")
def whole(text, cache, tmp_path_factory):
    """The directory of an undisturbed sweep of three runs."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with small_sweeps(text, cache) as run:
        run(out)
    assert len(outcomes(out)) == 3
    return out


@pytest.fixture(scope="session")
def six_runs(command, shared):
    """The outcomes of an undisturbed sweep of `SIX`. One worker process of pytest-xdist runs it."""
    out = shared / "six-runs"
    with open(shared / "six-runs.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = command(*RUN, "--executor", "local", "--out", out, **SIX)  # the second time it has its records
    assert done.returncode == 0, done.stderr
    return outcomes(out)


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def address(proxy, tmp_path):  # noqa: F811
    """An address in the bucket of the S3 server."""
    return f"s3://{BUCKET}/runs/{tmp_path.name}"


@pytest.fixture
def trained(monkeypatch):
    """The runs whose training began in this process, once for each time."""
    runs, train = [], Worker._train

    def counted(worker, setting, pack):
        runs.extend(pack.runs)
        return train(worker, setting, pack)

    monkeypatch.setattr(Worker, "_train", counted)
    return runs


@contextlib.contextmanager
def refused(*kinds):
    """Asserts that the block raises a one-line error. Yields a list, to which its message is added."""
    message: list[str] = []
    with pytest.raises(kinds or InputError) as problem:
        yield message
    message.append(str(problem.value))
    assert "\n" not in message[0], message
