"""Machines in network namespaces, and a switch in this process that delays, loses and blocks their packets.

The namespaces have no names. They end with their processes, and these end with the thread that made them, also after
SIGKILL.
"""

import concurrent.futures
import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000  # of Linux
PACKET = 65536  # bytes that a packet may have
OWN = ("--net", "--pid", "--mount", "--uts")
# The shell remains the first process, because it collects the exit status of orphans.
FIRST = 'hostname "$0" && mount -t tmpfs none /run && echo ready && sleep infinity; :'
CONNECT = """ip link set lo up && ip address add "$0"/24 dev net0 && ip link set net0 up txqueuelen 10000 &&
ip route add default dev net0"""


def problem() -> str | None:
    """Returns the reason that this process cannot make networks, or None."""
    if missing := [name for name in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(name) is None]:
        return f"networks of machines take the command {missing[0]}"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "networks of machines take a writable /dev/net/tun"
    if subprocess.run(["unshare", *OWN, "--fork", "true"], capture_output=True, check=False).returncode:
        return "networks of machines take root"
    return None


class Machine:
    """Processes with an address, process ids, a host name and a directory /run of their own. They share all other
    files with this process.

    The process `first` ends after all others.

    Attributes:
      address: the machine's IPv4 address.
      delay: seconds that a packet takes between the machine and the switch, in each direction.
      loss: the probability that a packet is lost there.
      cut: whether all packets are lost there.
    """

    def __init__(self, name: str, address: str):
        self.address, self.delay, self.loss, self.cut = address, 0.0, 0.0, False
        words = ["setpriv", "--pdeathsig=KILL", "unshare", *OWN, "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen([*words, "sh", "-c", FIRST, name], stdout=subprocess.PIPE)
        assert self.process.stdout is not None and self.process.stdout.readline() == b"ready\n"
        (self.first,) = psutil.Process(self.process.pid).children()
        self.tun = self._call(self._interface)
        subprocess.run([*self.within(), "sh", "-c", CONNECT, address], check=True)

    def within(self, directory: str | Path = "/") -> tuple[str, ...]:
        """Words before a command that runs it on the machine, in the working directory `directory`."""
        words = ("nsenter", f"--target={self.first.pid}", *OWN)
        return (*words, "sh", "-c", 'cd "$0" && exec "$@"', str(directory))

    def socket(self, kind: int) -> socket.socket:
        """Returns a socket of this process that is connected to the machine's network."""
        return self._call(lambda: socket.socket(socket.AF_INET, kind))

    def _call(self, function: Callable[[], Any]) -> Any:
        """Returns `function()`, called in the machine's network namespace. A thread has its own namespace."""

        def call():
            with open(f"/proc/{self.first.pid}/ns/net") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            return function()

        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(call).result()

    @staticmethod
    def _interface() -> int:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"net0", IFF_TUN | IFF_NO_PI))
        return tun

    def close(self) -> None:
        """Kills all processes of the machine, and waits for their end."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.first.kill()
        self.process.communicate()
        os.close(self.tun)


class Network(threading.Thread):
    """Machines 10.77.0.1, 10.77.0.2, … and their switch, until the end of the `with` block.

    Attributes:
      machines: the machines in the order of `names`.
      lost: the number of packets that were lost.
    """

    def __init__(self, *names: str, seed: int = 0):
        super().__init__(daemon=True)
        self.machines: list[Machine] = []
        self.lost, self.draws, self.closed = 0, random.Random(seed), threading.Event()
        self.names = names

    def __enter__(self) -> "Network":
        try:
            for i, name in enumerate(self.names, 1):
                self.machines.append(Machine(name, f"10.77.0.{i}"))
        except BaseException:
            self._close_machines()
            raise
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.closed.set()
        self.join()
        self._close_machines()

    def _close_machines(self) -> None:
        for machine in self.machines:
            machine.close()

    def run(self) -> None:
        sources = {machine.tun: machine for machine in self.machines}
        targets = {socket.inet_aton(machine.address): machine for machine in self.machines}
        travelling: list[tuple[float, int, int, bytes]] = []  # time of arrival, number, interface, packet
        numbers = itertools.count()
        while not self.closed.is_set():
            wait = max(travelling[0][0] - time.monotonic(), 0.0) if travelling else 0.1
            for tun in select.select(list(sources), [], [], min(wait, 0.1))[0]:
                packet = os.read(tun, PACKET)
                target = targets.get(packet[16:20])  # an IPv6 packet has other bytes there
                if target is None:
                    continue
                way = (sources[tun], target)
                if any(self._loses(machine) for machine in way):
                    self.lost += 1
                else:
                    arrival = time.monotonic() + sum(machine.delay for machine in way)
                    heapq.heappush(travelling, (arrival, next(numbers), target.tun, packet))
            while travelling and travelling[0][0] <= time.monotonic():
                _, _, tun, packet = heapq.heappop(travelling)
                with contextlib.suppress(OSError):  # the interface is not up yet
                    os.write(tun, packet)

    def _loses(self, machine: Machine) -> bool:
        return machine.cut or (machine.loss > 0 and self.draws.random() < machine.loss)
