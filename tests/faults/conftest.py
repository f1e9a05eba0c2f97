"""Fixtures: a Ray cluster for one test, a sweep of six lanes without faults, and a sweep of three lanes in the test's
process."""

import shutil

import pytest

import sweeps
from sweeps.driver import api
from tests.faults import kill_points
from tests.faults.clusters import LONG, Cluster, without_faults
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.running import TINY

SMALL = TINY | {"widths": "16", "seeds": "0", "steps": "8"}
OPTIONS = {"executor": "local", "pack": 1, "threads": 1, "quiet": True}


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    # If an earlier Ray left a token, `ray start` would require it, and a driver with an address would not send it.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Cluster(elsewhere) as made:
        yield made


@pytest.fixture(scope="session")
def six_lanes(command, tmp_path_factory):
    """The directory of the sweep of six lanes (`clusters.LONG`) without Ray and without faults."""
    return without_faults(command, tmp_path_factory.mktemp("six-lanes") / "out", **LONG)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(some_text(20_000))
    return path


@pytest.fixture(scope="module")
def small(text, cache):
    """small(out, **changes) runs a sweep of three lanes with its worker in this process."""

    def run(out, **changes):
        return sweeps.run("width_vocab", "smoke", out=out, corpus=f"text:{text}", **(SMALL | OPTIONS | changes))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "_holds_accelerator", lambda: "gpu")  # the worker runs in the driver's process
        patched.setenv("LVP_CACHE", str(cache))
        yield run


@pytest.fixture(scope="module")
def undisturbed(small, tmp_path_factory):
    """The directory of an undisturbed sweep of three lanes, and its kill points."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patched, kill_points.in_this_process(patched, out) as points:
        small(out)
    return out, points


@pytest.fixture
def whole(undisturbed):
    return undisturbed[0]


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "out")
    return tmp_path / "out"
