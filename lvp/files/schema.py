"""Schema check for untrusted JSON."""

from collections.abc import Mapping
from types import UnionType
from typing import Any

Shape = type | UnionType | Mapping[str, "Shape"] | list["Shape"]
_LARGEST = 1 << 62  # upper bound of a count, below NumPy's largest size


def fits(value: Any, shape: Shape) -> bool:
    """True if a JSON value has a shape.

    Args:
      shape: a type; for an object, the shapes of its required values (others are allowed); for a list, [shape of its
        items]. `int` means a count: not negative, not a boolean, below 2^62.
    """
    if isinstance(shape, Mapping):
        return isinstance(value, dict) and all(name in value and fits(value[name], s) for name, s in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(x, shape[0]) for x in value)
    if shape is int:
        return type(value) is int and 0 <= value < _LARGEST
    return isinstance(value, shape)
