"""The one exception that means "what you gave us cannot be used"."""

import difflib
import re
from collections.abc import Iterable

_MOST = 80  # characters of a value that are shown
# Control characters, lone surrogates, and what ends a line or turns its direction.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class InputError(ValueError):
    """A value from a user (argument, file, configuration) that cannot be used.

    Its message is one line that names the value and, where there is one, the way out. Command lines print it
    and exit with code 2; nothing has been written when it is raised.
    """

    def __init__(self, message: object):
        super().__init__(printable(str(message)))


def printable(text: str) -> str:
    """The text as one line, with escapes for line ends and control characters, which names of files may hold."""
    return _UNSHOWN.sub(lambda match: repr(match[0])[1:-1], text)


def shown(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def unknown(kind: str, given: object, allowed: Iterable[str]) -> InputError:
    """The error for a name that is not among `allowed`, with the nearest one or, failing that, all of them."""
    allowed = list(allowed)
    near = difflib.get_close_matches(str(given), allowed, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(allowed)}"
    return InputError(f"unknown {kind} {shown(given)}; {hint}")
