"""A thread that detects that the sweep's directory was moved, removed or unmounted, or that the lease was lost."""

import _thread
import signal
import threading

from sweeps.driver import working_copy
from sweeps.driver.manifest import Manifest
from sweeps.worker.stop import Reason, lost

INTERVAL = 0.5  # seconds


class DirectoryWatch(threading.Thread):
    """Interrupts the main thread when the sweep's directory has gone or the lease is lost."""

    def __init__(self, manifest: Manifest, session: str):
        super().__init__(daemon=True)
        self.manifest, self.session, self.ended = manifest, session, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(INTERVAL):
            copy = working_copy.get(self.manifest.out)
            if lost(self.manifest, self.session) is Reason.MOVED or (copy and copy.problem):
                # SIGINT may be ignored: a shell starts background processes this way.
                handled = (n for n in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(n)))
                _thread.interrupt_main(next(handled, signal.SIGINT))
                return

    def __enter__(self) -> "DirectoryWatch":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.join()
