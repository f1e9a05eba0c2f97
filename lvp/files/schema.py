"""Whether JSON that somebody else wrote, or damaged, is what its reader takes it for."""

from collections.abc import Mapping
from types import UnionType
from typing import Any

Shape = type | UnionType | Mapping[str, "Shape"] | list["Shape"]
_LARGEST = 1 << 62  # of a count; NumPy's sizes end one bit above


def fits(value: Any, shape: Shape) -> bool:
    """Whether a JSON value has a shape: a type; of an object the shapes of the values it must have, beside which others
    may stand; of a list, [shape] of all that is in it. `int` means a count: not negative, no boolean, and no larger
    than a size can be."""
    if isinstance(shape, Mapping):
        return isinstance(value, dict) and all(name in value and fits(value[name], s) for name, s in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(x, shape[0]) for x in value)
    if shape is int:
        return type(value) is int and 0 <= value < _LARGEST
    return isinstance(value, shape)
