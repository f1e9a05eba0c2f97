"""The calculation of one lane of `representation_change`."""

from collections.abc import Mapping
from typing import Any

from experiments.representation_change import equation_nine


def calculate(arguments: Mapping[str, Any], lane: Mapping[str, Any], dataset) -> dict[str, Any]:
    """The outcome of a lane: see `equation_nine.calculate`."""
    return equation_nine.calculate(arguments, lane)
