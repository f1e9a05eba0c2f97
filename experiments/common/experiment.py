"""What an experiment is: a name, its configuration at every tier, its cells, its figure and its claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lvp.training import Cell, DataConfig, ImageCell, ImageLane, Lane


@dataclass(frozen=True)
class Calculation:
    """A cell that is computed and not trained, by the experiment's `calculate`.

    arguments: what its lanes share, as JSON has it. data, vocab: the corpus it looks at under a tokenizer of that size,
    if it does. flops_per_lane: a guess, for the forecast and for the order of work.
    """

    arguments: Mapping[str, Any]
    flops_per_lane: float
    data: DataConfig | None = None
    vocab: int | None = None
    steps = 1
    num_params = 0
    tokens_per_lane = 0


class CellLanes(NamedTuple):
    """A cell and the lanes to run in it; `label` names the cell in progress bars and tables. A calculation's lanes are
    mappings, as JSON has them. With `epochs`, the cell goes so many times through its training tokens or images: its
    steps are then a guess, for the forecast, until these have been counted."""

    label: str
    cell: Cell | ImageCell | Calculation
    lanes: Sequence[Lane | ImageLane | Mapping[str, Any]]
    epochs: float | None = None


@dataclass(frozen=True)
class Experiment:
    """One question.

    name: a word, by which directories and records are called.
    tiers: the configuration (a flat frozen dataclass) by tier, from seconds to the published size.
    cells(config) → cells with their lanes, in the order of the figure; trained, calculated, or some of each.
    summary(table, config) → text: what the records say, as a table for the terminal.
    figure(table, config, tier, corpus, partial) → a matplotlib Figure; `partial` is None or (lanes done, planned).
    claims(table, config, context) → list of Claim; `context` holds the fields every claim shares (tier, corpus,
      commit).
    follow_up(table, config) → by cell label, the lanes that depend on what the others came to; they run in the same
      cells once all lanes of `cells` have a record.
    evidence(table, config) → JSON that a committed result puts into the package, for `lvp.parametrization.evidence`.
    calculate(arguments, lane, dataset) → outcome, as JSON has it; for calculations only. `dataset` is the
      `lvp.data.Dataset` of the cell's data and vocab, or None. It runs in a worker process.
    paper, answers: the paper whose figures (tables, theorems) its figure stands beside, and which; for the gallery,
      as is `undrawn`: its other figures, and why no committed result shows them.
    `table` is `lvp.training.records.table` of the lanes that have finished.
    """

    name: str
    question: str
    tiers: Mapping[str, Any]
    cells: Callable[[Any], Sequence[CellLanes]]
    summary: Callable[..., str]
    figure: Callable[..., Any]
    claims: Callable[..., list]
    follow_up: Callable[..., Mapping[str, Sequence[Lane]]] | None = None
    evidence: Callable[..., Mapping[str, Any]] | None = None
    calculate: Callable[..., Mapping[str, Any]] | None = None
    paper: str = ""
    answers: Sequence[str] = ()
    undrawn: Mapping[str, str] = field(default_factory=dict)
