"""One driver at a time holds a sweep in a bucket."""

import contextlib
import os
import socket
import threading
import time

import pytest

from lvp.errors import InputError
from sweeps.driver import lease, working_copy
from tests.sweeps.driver.memory_buckets import memory, objects  # noqa: F401  fixture

ADDRESS = "s3://bucket/sweep"


@pytest.fixture
def copies(memory):  # noqa: F811
    """Two working copies of one sweep, as two machines have them."""
    with working_copy.opened(ADDRESS) as one, working_copy.opened(ADDRESS) as other:
        yield working_copy.get(one), working_copy.get(other)


def held(copy):
    return lease.Lease(copy, lambda line: None)


def killed(holder):
    """Ends a driver that holds a lease without releasing it."""
    holder.__enter__()
    holder.ended.set()
    for thread in holder.threads:
        thread.join()


def test_a_second_driver_gets_a_one_line_error_with_host_and_pid(copies):
    one, other = copies
    with held(one):
        with pytest.raises(InputError) as problem, held(other):
            pass
        assert f"{ADDRESS} is run by another driver (host {socket.gethostname()}, pid {os.getpid()})" == str(
            problem.value
        )
        assert lease.driver(other) == f"host {socket.gethostname()}, pid {os.getpid()}"
        assert one.problem is None
    assert lease.driver(other) == ""
    with held(other):  # a released lease is taken at once
        pass


class Clock:
    """The module `time` for a driver that waits: `sleep` only adds to the time, and may cause an event."""

    def __init__(self, event=lambda now: None):
        self.now, self.event, self.time = 0.0, event, time.time

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.event(self.now)


def test_the_lease_of_a_killed_driver_is_taken_after_its_time(copies, monkeypatch):
    one, other = copies
    killed(held(one))
    lines, clock = [], Clock()
    monkeypatch.setattr(lease, "time", clock)
    with lease.Lease(other, lines.append):
        assert lease.SECONDS <= clock.now < lease.SECONDS + 2 * lease.POLL
        assert len(lines) == 1 and "waiting" in lines[0]


def test_a_lease_that_is_released_meanwhile_is_taken(copies, monkeypatch):
    one, other = copies
    holder = held(one)
    killed(holder)
    clock = Clock(lambda now: holder._release() if now > 0.5 * lease.SECONDS else None)
    monkeypatch.setattr(lease, "time", clock)
    with held(other):
        assert clock.now < 0.6 * lease.SECONDS


def test_a_lease_that_is_renewed_meanwhile_is_not_taken(copies, monkeypatch):
    one, other = copies
    holder = held(one)
    killed(holder)

    def renew(now):
        holder.version = holder._renewal()

    monkeypatch.setattr(lease, "time", Clock(lambda now: renew(now) if now > 0.9 * lease.SECONDS else None))
    with pytest.raises(InputError, match="run by another driver"), held(other):
        pass


def test_a_driver_that_lost_its_lease_stops(copies):
    one, other = copies
    suspended = held(one)
    killed(suspended)
    with held(other):
        suspended.ended.clear()
        thread = threading.Thread(target=suspended._renew, daemon=True)
        thread.start()
        until(lambda: one.problem)
        assert one.problem == f"another driver has taken over {ADDRESS}, so this driver stopped"
        until((one.out / "session.json").exists)
        assert (one.out / "session.json").read_text() == lease.LOST  # workers stop without saving
        (one.out / "manifest.json").write_text("{}")
        with pytest.raises(RuntimeError, match="has taken over"):
            one.push()
        assert other.problem is None
    suspended.ended.set()
    thread.join()


def test_a_driver_that_cannot_renew_its_lease_stops(copies, monkeypatch):
    one, _ = copies
    with held(one) as holder:

        def replace(*_):
            raise lease.BucketError("the server does not answer", refused=False)

        monkeypatch.setattr(holder.bucket, "replace", replace)
        until(lambda: one.problem)
        assert "the lease was not renewed" in one.problem
        one.problem = None


def test_a_renewal_whose_answer_was_lost_is_no_loss(copies, monkeypatch):
    one, _ = copies
    with held(one) as holder:
        replace, lost = holder.bucket.replace, []

        def without_answer(*words):
            if len(lost) % 3 == 0:
                lost.append(replace(*words))
                raise lease.BucketError("the connection was cut", refused=False)
            lost.append(None)
            return replace(*words)

        monkeypatch.setattr(holder.bucket, "replace", without_answer)
        until(lambda: len(lost) > 6)
        assert one.problem is None


def test_drivers_that_begin_at_the_same_time(copies, monkeypatch):
    """Exactly one driver begins. On a server that ignores conditions, both would begin."""
    assert [begun(copies) for _ in range(5)] == [1] * 5

    def without_conditions(bucket, name, content, mode):
        bucket.write(name, content)
        return {"e_tag": str(time.monotonic())}

    monkeypatch.setattr("lvp.files.buckets.Bucket._put", without_conditions)
    monkeypatch.setattr(lease.Lease, "_check_conditions", lambda self: None)
    assert begun(copies) == 2


def begun(copies) -> int:
    """Returns the number of drivers that get the lease when two start together. Each holds it until both have tried."""
    barrier, results = threading.Barrier(2), []

    def drive(copy):
        with contextlib.ExitStack() as stack:
            barrier.wait()
            try:
                stack.enter_context(held(copy))
                results.append(1)
            except InputError:
                results.append(0)
            barrier.wait()
        copy.problem = None

    threads = [threading.Thread(target=drive, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


@pytest.mark.parametrize("condition", ["create", "replace"])
def test_a_server_without_conditional_writes_is_refused(memory, monkeypatch, condition):  # noqa: F811
    from lvp.files.buckets import Bucket

    conditional = Bucket._put

    def ignoring(bucket, name, content, mode):
        if (mode == "create") == (condition == "create"):
            bucket.write(name, content)
            return conditional(bucket, name, content, "create")  # its present version
        return conditional(bucket, name, content, mode)

    monkeypatch.setattr(Bucket, "_put", ignoring)
    with working_copy.opened(ADDRESS) as out, pytest.raises(InputError, match="conditional writes"):
        held(working_copy.get(out)).__enter__()
    assert objects(memory) == {}


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
