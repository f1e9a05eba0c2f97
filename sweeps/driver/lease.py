"""The lease that allows one driver per sweep in a bucket.

The lease is the object `.lease`. A driver creates it with If-None-Match, renews it with If-Match, and releases it when
it ends. A driver that was killed does not release it. Another driver takes the sweep when it has seen no renewal for
`SECONDS` by its own clock, so clocks of machines are not compared.
"""

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from lvp.errors import InputError, printable
from lvp.files.buckets import Bucket, BucketError, Version, refusals
from sweeps.driver.working_copy import WorkingCopy

log = logging.getLogger(__name__)
NAME = ".lease"
SECONDS = 60.0  # time without renewal after which another driver takes the sweep
RENEWAL = SECONDS / 4  # seconds between renewals
POLL = SECONDS / 30  # seconds between looks at another driver's lease
LOST = "lost"  # content of session.json after the lease was lost: workers then stop without saving


class Lease:
    """Holds the lease during the block. One thread renews it, and one uploads the driver's files. If the lease is lost,
    `WorkingCopy.problem` gives the reason."""

    def __init__(self, copy: WorkingCopy, say: Callable[[str], None]):
        self.copy, self.say = copy, say
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self._renew, self._upload)]
        self.bucket = Bucket(copy.bucket.address, patience=RENEWAL / 2)
        self.token, self.number = secrets.token_hex(8), 0
        self.version: Version = {}
        self.renewed = 0.0  # time.monotonic() before the last renewal
        self.ended = threading.Event()

    def _content(self, released: bool = False) -> bytes:
        """The next content of the lease. No two contents are equal."""
        self.number += 1
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "token": self.token, "number": self.number}
        return json.dumps(holder | {"released": released}).encode()

    def __enter__(self) -> "Lease":
        with refusals():
            self.renewed = time.monotonic()
            self.version = self.bucket.create(NAME, self._content()) or self._take_over()
            self._check_conditions()
            try:
                self.copy.pull()
            except BaseException:
                self._release()
                raise
        for thread in self.threads:
            thread.start()
        return self

    def _take_over(self) -> Version:
        """Replaces a lease that is released, or that is not renewed for `SECONDS`, and returns the new version.

        Raises:
          InputError: another driver renews the lease.
        """
        deadline = time.monotonic() + SECONDS
        first: Version | None = None
        while True:
            seen = self.bucket.read(NAME)
            self.renewed = time.monotonic()
            if seen is None:
                version = self.bucket.create(NAME, self._content())
            else:
                content, entry = seen
                if not _released(content):
                    if first is None:
                        self.say(f"waiting up to {SECONDS:.0f} s for the lease of another driver ({_holder(content)})")
                    first = first or entry.version
                    if entry.version != first:
                        raise InputError(f"{self.bucket.address} is run by another driver ({_holder(content)})")
                    if time.monotonic() < deadline:
                        time.sleep(POLL)
                        continue
                version = self.bucket.replace(NAME, self._content(), entry.version)
            if version is None:
                raise InputError(
                    f"{self.bucket.address} is run by another driver, which has just begun: wait until it ends"
                )
            return version

    def _check_conditions(self) -> None:
        """Raises InputError if the server ignores the conditions of writes."""
        before, self.version = self.version, self._renewal()
        if self.bucket.create(NAME, b"{}") or self.bucket.replace(NAME, b"{}", before):
            self.bucket.delete([NAME])
            raise InputError(
                f"{self.bucket.address}: the server ignores If-None-Match or If-Match, so two drivers could run the "
                "sweep; use a server with conditional writes (docs/clusters.md)"
            )

    def _renewal(self, released: bool = False) -> Version:
        """Renews the lease and returns its version. Raises RuntimeError if another driver has it."""
        version = self.bucket.replace(NAME, self._content(released), self.version)
        if version is None and (seen := self.bucket.read(NAME)) and _fields(seen[0]).get("token") == self.token:
            # An earlier renewal succeeded although its answer was lost.
            version = self.bucket.replace(NAME, self._content(released), seen[1].version)
        if version is None:
            raise RuntimeError(f"another driver has taken over {self.bucket.address}, so this driver stopped")
        return version

    def _renew(self) -> None:
        while not self.ended.wait(RENEWAL) and self.copy.problem is None:
            started = time.monotonic()
            try:
                self.version = self._renewal()
                self.renewed = started
            except BucketError as error:
                if (age := time.monotonic() - self.renewed) > SECONDS / 2:  # the next try could end after `SECONDS`
                    self.copy.problem = f"{error}: the lease was not renewed for {age:.0f} s"
            except RuntimeError as error:
                self.copy.problem = str(error)
        while self.copy.problem:  # again and again, because the driver may write its session at the same time
            (self.copy.out / "session.json").write_text(LOST)
            if self.ended.wait(1.0):
                return

    def _upload(self) -> None:
        while not self.ended.wait(RENEWAL) and self.copy.problem is None:
            try:
                self.copy.push()
            except OSError as error:
                log.warning("%s; the upload is tried again", error)
            except RuntimeError as error:
                self.copy.problem = str(error)

    def __exit__(self, kind: type | None, *_: Any) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()
        try:
            self.copy.push()
        except (OSError, RuntimeError):
            if kind is None:  # an earlier error is more important
                raise
        finally:
            self._release()

    def _release(self) -> None:
        """Releases the lease. Without an answer of the server, it ends after `SECONDS`."""
        with contextlib.suppress(BucketError, RuntimeError):
            self._renewal(released=True)


def _released(content: bytes) -> bool:
    return bool(_fields(content).get("released"))


def _holder(content: bytes) -> str:
    fields = _fields(content)
    return printable(f"host {fields.get('host', '?')}, pid {fields.get('pid', '?')}")


def _fields(content: bytes) -> dict:
    """The fields of a lease; none if it is damaged."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def driver(copy: WorkingCopy) -> str:
    """Host and pid of the driver that holds the lease; "" if no driver has renewed it in the last `SECONDS`.

    Compares the server's clock with this machine's clock. No result depends on the answer.
    """
    seen = copy.bucket.read(NAME)
    if seen is None or _released(seen[0]) or time.time() - seen[1].modified > SECONDS:
        return ""
    return _holder(seen[0])
