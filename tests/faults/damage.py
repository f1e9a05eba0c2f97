"""Hypothesis strategies for damaged files, and the check that a reader returns a result or a one-line error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lvp.errors import InputError

NUMBERS = st.one_of(st.integers(-3, 400), st.sampled_from([2**31, 2**53, 2**64, -(2**70)]), st.floats())
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8))
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def examples(count: int) -> settings:
    """Returns settings for `count` examples without a deadline. Every run has the same examples."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def result_or_one_line(call: Callable[[], Any]) -> Any:
    """Returns the result of a call, or the one-line InputError that it raised. Other exceptions propagate."""
    try:
        return call()
    except InputError as error:
        assert str(error) and len(str(error).splitlines()) == 1, repr(str(error))
        return error


@st.composite
def of_bytes(draw, content: bytes) -> bytes:
    """Draws `content` with bytes changed, removed, repeated or inserted."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["change", "flip", "cut", "insert", "remove", "repeat"]))
        if kind == "cut":
            content = content[:at]
        elif kind == "insert":
            content = content[:at] + draw(st.binary(max_size=6)) + content[at:]
        elif kind == "remove":
            content = content[:at] + content[at + draw(st.integers(1, 40)) :]
        elif kind == "repeat":
            content = content[: at + 30] + content[at:]
        elif at < len(content):
            new = content[at] ^ 1 << draw(st.integers(0, 7)) if kind == "flip" else draw(st.integers(0, 255))
            content = content[:at] + bytes([new]) + content[at + 1 :]
    return content


def _places(value: Any, path: tuple = ()) -> list[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, below in inner for place in _places(below, (*path, key))]


@st.composite
def of_json(draw, value: Any) -> Any:
    """Draws the JSON value with one entry replaced or removed."""
    value = json.loads(json.dumps(value))
    path = draw(st.sampled_from(_places(value)))
    if not path:
        return draw(JSON)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if draw(st.booleans()):
        holder[path[-1]] = draw(JSON)
    else:
        del holder[path[-1]]
    return value


def flip(content: bytes, rng) -> bytes:
    """Returns `content` with one bit flipped."""
    damaged = bytearray(content)
    damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def contents(folder: Path) -> dict[Path, bytes]:
    """Returns the content of every file below a directory."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
