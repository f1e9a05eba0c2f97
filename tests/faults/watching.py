"""What is seen of a sweep from outside while something is done to it."""

import time

import pytest

from lvp.errors import InputError
from sweeps.driver.manifest import Manifest
from tests.faults import ledger
from tests.sweeps.running import outcomes


class Watched:
    """Which records of a sweep stood when, to tell afterwards whether one was lost or written again."""

    def __init__(self, out):
        self.out, self.seen = out, {}

    def look(self) -> int:
        for path in self.out.glob("records/*.jsonl"):
            self.seen.setdefault(path.name, path.stat().st_mtime_ns)
        return len(self.seen)

    def assert_whole(self, fault: str, injected: int, undisturbed, lanes: int = 12) -> None:
        """No lane lost, repeated or wrong; and says so in the ledger, whatever it is."""
        self.look()
        now = {p.name: p.stat().st_mtime_ns for p in self.out.glob("records/*.jsonl")}
        rewritten = sum(now.get(name, when) != when for name, when in self.seen.items())
        right, ours = outcomes(undisturbed), outcomes(self.out)
        found = {
            "lost": len(right.keys() - ours.keys()),
            "repeated": max(rewritten, len(ours.keys() - right.keys())),
            "wrong": sum(right[lane] != ours[lane] for lane in right.keys() & ours.keys()),
        }
        ledger.record(fault, injected, **found)
        assert found == {"lost": 0, "repeated": 0, "wrong": 0}
        assert len(right) == lanes


def until(condition, process, seconds=300):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    return found


def at_work(out) -> int:
    return len(Manifest.read(out).read_progress()) if (out / "manifest.json").exists() else 0


def times(out):
    """When each record was written."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("records/*.jsonl")}


def refused(call) -> str:
    """The one line with which a call is refused."""
    with pytest.raises(InputError) as problem:
        call()
    assert "\n" not in str(problem.value)
    return str(problem.value)
