"""Signal handlers for the time of a block."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def handled(handler: Callable[[int, Any], Any], *numbers: int) -> Iterator[None]:
    """Handles signals in the block.

    Ignored ones stay ignored, as under `nohup`, except SIGTERM. Outside the main thread, where Python allows no
    handlers, it does nothing.
    """
    here = threading.current_thread() is threading.main_thread()
    chosen = [n for n in numbers if here and (n == signal.SIGTERM or signal.getsignal(n) is not signal.SIG_IGN)]
    before = {n: signal.signal(n, handler) for n in chosen}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)
