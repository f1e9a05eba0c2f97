"""The network of the tests: delay, loss and partitions, and that nothing is left behind."""

import concurrent.futures
import contextlib
import os
import random
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests.faults import network
from tests.faults.network import Network
from tests.sweeps.running import ROOT

DATAGRAMS = 200


@pytest.fixture(scope="module")
def possible():
    if reason := network.problem():
        pytest.skip(reason)


@pytest.fixture
def pair(possible):
    """Returns a network of two machines."""
    with Network("left", "right") as made:
        yield made


def exchange(pair, number: int = DATAGRAMS) -> set[int]:
    """Sends datagrams from the left machine to the right, and returns the numbers of the datagrams
    that arrive."""
    left, right = pair.machines
    before, arrived, deadline = pair.lost, set(), time.monotonic() + 60
    with left.socket(socket.SOCK_DGRAM) as sender, right.socket(socket.SOCK_DGRAM) as receiver:
        receiver.bind((right.address, 5000))
        receiver.settimeout(0.1)
        for i in range(number):
            sender.sendto(i.to_bytes(4, "big"), (right.address, 5000))
        while len(arrived) + pair.lost - before < number:
            assert time.monotonic() < deadline
            with contextlib.suppress(TimeoutError):
                arrived.add(int.from_bytes(receiver.recv(4), "big"))
    return arrived


def transfer(pair, data: bytes) -> bytes:
    """Sends data from the left machine to the right over TCP. Returns the data that arrive."""
    left, right = pair.machines
    with right.socket(socket.SOCK_STREAM) as listener, left.socket(socket.SOCK_STREAM) as sender:
        listener.bind((right.address, 5000))
        listener.listen()
        sender.settimeout(60)

        def receive():
            connection, _ = listener.accept()
            with connection:
                return b"".join(iter(lambda: connection.recv(65536), b""))

        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            arrived = thread.submit(receive)
            sender.connect((right.address, 5000))
            sender.sendall(data)
            sender.shutdown(socket.SHUT_WR)
            return arrived.result(60)


def test_nothing_is_lost_without_faults(pair):
    data = random.Random(0).randbytes(3_000_000)
    assert exchange(pair) == set(range(DATAGRAMS))
    assert transfer(pair, data) == data
    assert pair.lost == 0


def test_a_round_trip_takes_the_delay_twice(pair):
    left, right = pair.machines
    left.delay, right.delay = 0.05, 0.1
    with left.socket(socket.SOCK_DGRAM) as near, right.socket(socket.SOCK_DGRAM) as far:
        far.bind((right.address, 5000))
        far.settimeout(10)
        near.settimeout(10)
        began = time.monotonic()
        near.sendto(b"question", (right.address, 5000))
        far.sendto(b"answer", far.recvfrom(100)[1])
        assert near.recv(100) == b"answer"
    assert time.monotonic() - began >= 2 * (left.delay + right.delay)


def test_lost_datagrams_and_whole_tcp_data(pair):
    pair.machines[1].loss = 0.1
    assert 0 < len(exchange(pair)) < DATAGRAMS
    before, data = pair.lost, random.Random(0).randbytes(300_000)
    assert transfer(pair, data) == data
    assert pair.lost > before > 0


def test_a_partition_stops_all_datagrams_and_ends(pair):
    for machine in pair.machines:
        machine.cut = True
        assert exchange(pair, 10) == set()
        machine.cut = False
        assert exchange(pair, 10) == set(range(10))


def test_commands_run_on_their_machine(pair, tmp_path):
    words = [*pair.machines[1].within(tmp_path), "sh", "-c", "hostname; pwd; hostname -I; ls /run"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["right", str(tmp_path), "10.77.0.2"]


def test_machines_end_with_the_process_that_made_them(possible):
    program = """
import os, signal
from tests.faults.network import Network
with Network("alone") as made:
    print(made.machines[0].first.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    deadline = time.monotonic() + 20
    while psutil.pid_exists(int(done.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_closed_machines_leave_no_process(possible):
    with Network("other") as other:
        machine = other.machines[0]
        command = subprocess.Popen([*machine.within(), "sleep", "infinity"])
        deadline = time.monotonic() + 20
        while not (processes := psutil.Process(command.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    command.wait(20)
    processes += [machine.first, psutil.Process(os.getpid())]
    assert [p.is_running() for p in processes] == [False, False, True]
