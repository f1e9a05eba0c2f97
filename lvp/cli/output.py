"""Standard output and standard error that do not end the command if they are closed, full or lack a character."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_RAISING = ("strict", "surrogateescape")  # error handlers of Python that raise for characters such as η


class Output:
    """A stream that drops text after its first error, and replaces characters that its encoding lacks.

    The attribute `lost` holds the error.
    """

    def __init__(self, stream: TextIO | None):
        self.lost: OSError | None = None
        self._missing = stream is None  # Python has no stream for a descriptor that is closed at start
        self._stream: Any = stream or open(os.devnull, "w", encoding="utf-8")
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _RAISING:
            stream.reconfigure(errors="replace")

    def write(self, text: str) -> int:
        if self._missing and self.lost is None:
            self.lost = OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, call, *arguments) -> None:
        try:
            call(*arguments)
        except OSError as error:
            self.lost = self.lost or error
            # The stream's buffer keeps its text and would raise again when the process ends.
            with contextlib.suppress(OSError), open(os.devnull, "w", encoding="utf-8") as null:
                os.dup2(null.fileno(), self._stream.fileno())

    def __getattr__(self, name: str):
        return getattr(self._stream, name)


@contextlib.contextmanager
def outputs() -> Iterator[tuple[Output, Output]]:
    """Makes sys.stdout and sys.stderr `Output`s for the block."""
    for number in range(3):  # a file that is opened later must not get the number of a standard stream
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    with contextlib.redirect_stdout(Output(sys.stdout)) as out, contextlib.redirect_stderr(Output(sys.stderr)) as err:
        try:
            yield out, err
        finally:
            out.flush()
            err.flush()
