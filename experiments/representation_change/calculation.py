"""The calculation of `representation_change`, a lane at a time."""

from collections.abc import Mapping
from typing import Any

from experiments.representation_change import equation_nine


def calculate(arguments: Mapping[str, Any], lane: Mapping[str, Any], dataset) -> dict[str, Any]:
    return equation_nine.calculate(arguments, lane)
