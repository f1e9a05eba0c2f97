"""What an experiment is: a name, its configuration at every tier, its cells, its figure and its claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lvp.training import Cell, Lane


class CellLanes(NamedTuple):
    """A cell and the lanes to run in it; `label` names the cell in progress bars and tables."""

    label: str
    cell: Cell
    lanes: Sequence[Lane]


@dataclass(frozen=True)
class Experiment:
    """One question.

    tiers: the configuration (a flat frozen dataclass) by tier, from seconds to the published size.
    cells(config) → cells with their lanes, in the order of the figure.
    summary(table, config) → text: what the records say, as a table for the terminal.
    figure(table, config, tier, corpus, partial) → a matplotlib Figure; `partial` is None or (lanes done, planned).
    claims(table, config, context) → list of Claim; `context` holds the fields every claim shares (tier, corpus,
      commit).
    `table` is `lvp.records.table` of the lanes that have finished.
    """

    name: str
    question: str
    tiers: Mapping[str, Any]
    cells: Callable[[Any], Sequence[CellLanes]]
    summary: Callable[..., str]
    figure: Callable[..., Any]
    claims: Callable[..., list]
