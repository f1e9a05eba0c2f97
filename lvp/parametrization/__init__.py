"""Parametrizations: role × (width, vocabulary) → init std, learning-rate multiplier, decay.

`table` holds the rules and builds their tables. `recommend` turns them into rates for a model. `report` prints both.
`evidence` holds what committed results say of the rules.
"""

from lvp.parametrization.table import (
    RULES,
    Row,
    Rule,
    Table,
    aligned,
    attenuation,
    check_frequencies,
    check_whole,
    embedding_ratio,
    table,
)

__all__ = [
    "RULES",
    "Row",
    "Rule",
    "Table",
    "aligned",
    "attenuation",
    "check_frequencies",
    "check_whole",
    "embedding_ratio",
    "table",
]
