"""Parametrizations: role × (width, vocabulary) → init std, learning-rate multiplier, decay, forward multiplier.

`rules` defines the rules, `tables` builds their tables, `recommend` computes a model's rates from the tables, `report`
prints both, and `evidence` reads the committed measurements of the rules.
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
