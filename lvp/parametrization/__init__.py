"""Parametrizations: role × (width, vocabulary) → init std, learning-rate multiplier, decay, forward multiplier.

`rules` defines the rules, `tables` builds their tables, `axes` adds rules of depth, batch, horizon, decay and ε,
`scaling` takes tuned settings from one size to another, `recommend` computes a model's rates from the tables, `report`
prints tables and recommendations, `snippets` writes recommendations as Python code, `token_frequencies` computes κ of a
corpus, `published` lists published rates, and `evidence` reads the committed measurements of the rules.
"""

from lvp.parametrization.axes import AXES, Shape
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
    "AXES",
    "RULES",
    "TOKEN_ROWS",
    "Row",
    "Rule",
    "Shape",
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
