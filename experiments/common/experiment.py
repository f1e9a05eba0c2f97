"""An experiment: a name, its configuration at every preset, its settings, its figure and its claims."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from lvp.data import Dataset
from lvp.training import AnySetting, DataConfig, Run, Task, tasks
from lvp.training.outcome import Outcome

if TYPE_CHECKING:  # SciPy: workers and `status` import this module and analyse nothing
    from lvp.experiments.common.adaptive_comparison import RateCurves


@dataclass(frozen=True)
class Calculation:
    """A setting that the experiment's `calculate` computes, without training."""

    arguments: Mapping[str, Any]  # shared by the runs, as JSON
    flops_per_run: float  # a guess, for the forecast and the order of work
    data: DataConfig | None = None  # the corpus, if the calculation needs one
    vocab: int | None = None  # the vocabulary of the corpus' tokenizer
    steps = 1
    num_params = 0
    tokens_per_run = 0

    def task(self) -> "CalculationTask":
        return CalculationTask(self)


class CalculationTask(Task):
    """The task of a setting that the experiment's `calculate` computes. Its data are tokens or None."""

    dataset_class = Dataset
    setting: Calculation

    @property
    def trained(self) -> bool:
        return False

    def prepare(self, cache: Path) -> Dataset | None:
        if self.setting.data is None:
            return None
        return tasks.prepare_tokens(self.setting.data, self.setting.vocab, cache)

    def check_data(self, cache: Path) -> None:
        if self.setting.data is not None:
            tasks.check_corpus(self.setting.data.corpus, cache, self.prepare)

    def fingerprints(self, dataset: Dataset) -> dict[str, str | None]:
        return tasks.token_fingerprints(dataset)

    def check_runs(self, runs: Iterable[Any]) -> None:
        """Accepts any run."""

    def steps(self, dataset: Any, epochs: float) -> NoReturn:
        raise TypeError("a calculation is not trained")

    def load(self, dataset: Any, mesh: Any = None) -> Callable[[Sequence], Any]:
        raise TypeError("a calculation is not trained")

    def program(self, runs: int = 1, mesh: Any = None) -> NoReturn:
        raise TypeError("a calculation is not trained")

    def data_shapes(self) -> NoReturn:
        raise TypeError("a calculation is not trained")

    def check_mesh(self, sizes: Mapping[str, int]) -> None:
        """Accepts any mesh: a calculation does not use it."""


class SettingRuns(NamedTuple):
    """A setting and its runs."""

    label: str  # names the setting in progress bars and tables
    setting: AnySetting | Calculation
    runs: Sequence[Any]  # of the setting's kind; mappings, as JSON, for a calculation
    epochs: float | None = None  # passes through the data; the setting's steps are a guess until the data is counted


@dataclass(frozen=True)
class Experiment:
    """One question, and the functions that answer it.

    Functions take `table`, which is `lvp.training.records.table` of the finished runs, and the configuration:

    - settings(config) → settings with their runs, in the order of the figure; trained, calculated or both.
    - summary(table, config) → a table of the results as text for the terminal.
    - figure(table, config, preset, corpus, partial) → a matplotlib Figure; `partial` is None or (runs done, planned).
    - claims(table, config, context) → list of Claim; `context` holds the fields that all claims share: `experiment`,
      `preset`, `corpus` and `commit`.
    - follow_up(table, config) → setting label → runs that depend on the outcomes of other runs. They run in the same
      settings once all runs of `settings` have a record.
    - limit(config) → the settings with as many runs as a sweep may train. Only their number is read. With a limit,
      `follow_up` is called again when the runs it has added have a record, until it adds no run. Without a limit it
      is called once.
    - evidence(table, config) → JSON of a committed result for `lvp.parametrization.evidence`.
    - rate_curves(table, config) → `RateCurves` of a committed result, for the replay of the adaptive design.
    - blocks(results) → name → text of a block of README or docs. `results` maps the folder of each committed result of
      the experiment to its `lvp.sweeps.committed.Result`, which has `table`, `config` and `evidence`.
    - calculate(arguments, run, dataset) → outcome of a calculation's run, as JSON or as an `Outcome`. It runs in a
      worker process. `dataset` is the `lvp.data.Dataset` of the setting's data and vocab, or None.
    """

    name: str  # a word, which names directories and records
    question: str
    presets: Mapping[str, Any]  # preset → configuration (a flat frozen dataclass), from seconds to the published size
    settings: Callable[[Any], Sequence[SettingRuns]]
    summary: Callable[..., str]
    figure: Callable[..., Any]
    claims: Callable[..., list]
    follow_up: Callable[..., Mapping[str, Sequence[Run]]] | None = None
    limit: Callable[[Any], Sequence[SettingRuns]] | None = None
    evidence: Callable[..., Mapping[str, Any]] | None = None
    rate_curves: Callable[..., Sequence["RateCurves"]] | None = None
    blocks: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None
    calculate: Callable[..., Mapping[str, Any] | Outcome] | None = None
    headline: bool = True  # whether what the claims found is written above the figure
    keep_weights: bool = False  # whether a sweep keeps the parameters of finished runs without being asked
    paper: str = ""  # the paper whose results the figure reproduces, for the gallery
    answers: Sequence[str] = ()  # the reproduced figures, tables and theorems of the paper
    undrawn: Mapping[str, str] = field(default_factory=dict)  # other figure → why no committed result shows it

    def most_runs(self, config: Any) -> float:
        """The largest number of runs of a sweep; infinite if `follow_up` has no limit."""
        settings = self.settings if self.follow_up is None else self.limit
        return math.inf if settings is None else sum(len(planned.runs) for planned in settings(config))
