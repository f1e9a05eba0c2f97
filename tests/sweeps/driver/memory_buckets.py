"""Buckets in the memory of a test's process, with the same conditional writes as a server's."""

import pytest

from lvp.files import buckets
from sweeps.driver import lease, working_copy


@pytest.fixture
def memory(monkeypatch):
    """Puts all objects into a store in memory, and makes the times of leases short. Returns the store."""
    store = pytest.importorskip("obstore.store", reason="needs pip install -e '.[buckets]'").MemoryStore()

    def at(address, patience=1.0):
        bucket = buckets.Bucket(address, patience)
        bucket.store = store
        return bucket

    for module in (lease, working_copy):
        monkeypatch.setattr(module, "Bucket", at)
    for name, seconds in {"SECONDS": 1.0, "RENEWAL": 0.1, "POLL": 0.02}.items():
        monkeypatch.setattr(lease, name, seconds)
    return store


def objects(store) -> dict[str, bytes]:
    """The contents of all objects by name."""
    entries = [entry for page in store.list() for entry in page]
    return {entry["path"]: bytes(store.get(entry["path"]).bytes()) for entry in entries}
