"""Parametrizations: role × (width, vocabulary) → init std, learning-rate multiplier, decay, forward multiplier.

`rules` holds the rules, `tables` builds their tables, `recommend` turns tables into rates for a model, `report` prints
both, and `evidence` holds what committed results say about the rules.
"""

from lvp.parametrization.rules import (
    RULES,
    TOKEN_ROWS,
    Rule,
    attenuation,
    check_frequencies,
    check_whole,
    embedding_ratio,
    row_multiplier,
)
from lvp.parametrization.tables import Row, Table, aligned, table, uniform

__all__ = [
    "RULES",
    "TOKEN_ROWS",
    "Row",
    "Rule",
    "Table",
    "aligned",
    "attenuation",
    "check_frequencies",
    "check_whole",
    "embedding_ratio",
    "row_multiplier",
    "table",
    "uniform",
]
