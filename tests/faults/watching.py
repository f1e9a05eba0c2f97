"""Observes a sweep from outside while a fault is injected."""

import time

import pytest

from lvp.errors import InputError
from sweeps.driver.manifest import Manifest
from tests.faults import ledger
from tests.sweeps.running import outcomes


class Watched:
    """The times at which a sweep's records were first seen, to detect a record that is lost or written again."""

    def __init__(self, out):
        self.out, self.seen = out, {}

    def look(self) -> int:
        for path in self.out.glob("records/*.jsonl"):
            self.seen.setdefault(path.name, path.stat().st_mtime_ns)
        return len(self.seen)

    def assert_whole(self, fault: str, injected: int, undisturbed, lanes: int = 12) -> None:
        """Asserts that no lane is lost, repeated or wrong. Writes the counts to the ledger in any case."""
        self.look()
        now = {p.name: p.stat().st_mtime_ns for p in self.out.glob("records/*.jsonl")}
        rewritten = sum(now.get(name, when) != when for name, when in self.seen.items())
        right, ours = outcomes(undisturbed), outcomes(self.out)
        counts = {
            "lost": len(right.keys() - ours.keys()),
            "repeated": max(rewritten, len(ours.keys() - right.keys())),
            "wrong": sum(right[lane] != ours[lane] for lane in right.keys() & ours.keys()),
        }
        ledger.record(fault, injected, **counts)
        assert counts == {"lost": 0, "repeated": 0, "wrong": 0}
        assert len(right) == lanes


def until(condition, process, seconds=300):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    return result


def at_work(out) -> int:
    return len(Manifest.read(out).read_progress()) if (out / "manifest.json").exists() else 0


def refused(call) -> str:
    """Asserts that a call raises a one-line InputError, and returns its message."""
    with pytest.raises(InputError) as problem:
        call()
    assert "\n" not in str(problem.value)
    return str(problem.value)
