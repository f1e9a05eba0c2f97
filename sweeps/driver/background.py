"""A thread that works during a block."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Calls work(ended) in a thread during the block. At its end, sets the event `ended` and waits for the thread."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
