"""The one exception that means "what you gave us cannot be used"."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """A value from a user (argument, file, configuration) that cannot be used.

    Its message is one line that names the value and, where there is one, the way out. Command lines print it
    and exit with code 2; nothing has been written when it is raised.
    """


def unknown(kind: str, given: str, allowed: Iterable[str]) -> InputError:
    """The error for a name that is not among `allowed`, with the nearest one or, failing that, all of them."""
    allowed = list(allowed)
    near = difflib.get_close_matches(given, allowed, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(allowed)}"
    return InputError(f"unknown {kind} {given!r}; {hint}")
