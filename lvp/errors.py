"""InputError, the exception for unusable input."""

import difflib
import re
from collections.abc import Iterable

_MOST = 80  # largest number of characters of a value in a message
# Control characters, lone surrogates, line ends, and marks of text direction.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class InputError(ValueError):
    """A value from a user (argument, file, configuration) that cannot be used.

    Its message is one line with the value and, if possible, the remedy. Command lines print the message and exit with
    code 2.
    """

    def __init__(self, message: object):
        super().__init__(printable(str(message)))


def refuse(problems: Iterable[str]) -> None:
    """Refuses an input that has problems.

    Raises:
      InputError: there are problems. The message has the first five.
    """
    listed = list(problems)
    if listed:
        raise InputError("; ".join(listed[:5]) + (f"; and {len(listed) - 5} more" if listed[5:] else ""))


def printable(text: str) -> str:
    """The text as one line. File names may hold line ends and control characters, which are escaped."""
    return _UNSHOWN.sub(lambda match: repr(match[0])[1:-1], text)


def shown(value: object) -> str:
    """The `repr` of a value, cut after 80 characters."""
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def unknown(kind: str, given: object, allowed: Iterable[str]) -> InputError:
    """The error for a name that is not in `allowed`; it gives the nearest allowed name, or all of them."""
    allowed = list(allowed)
    near = difflib.get_close_matches(str(given), allowed, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(allowed)}"
    return InputError(f"unknown {kind} {shown(given)}; {hint}")
