"""A Ray cluster of its own for every test that asks for one."""

import pytest

from tests.faults.clusters import Cluster


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    # Otherwise `ray start` asks for a token if an earlier Ray left one, and a driver with an address shows none.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Cluster(elsewhere) as made:
        yield made
