"""The task of a cell: from `lvp.training.tasks` for a trained cell, `CalculationTask` for a calculation."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from experiments.common.experiment import Calculation
from lvp import data
from lvp.training import Task, tasks


class CalculationTask(Task):
    """The task of a cell that the experiment's `calculate` computes. Its data are tokens or None."""

    dataset_class = data.Dataset
    cell: Calculation

    @property
    def trained(self) -> bool:
        return False

    def prepare(self, cache: Path) -> data.Dataset | None:
        if self.cell.data is None:
            return None
        return tasks.prepare_tokens(self.cell.data, self.cell.vocab, cache)

    def fingerprints(self, dataset: data.Dataset) -> dict[str, str | None]:
        return tasks.token_fingerprints(dataset)

    def check_lanes(self, lanes: Iterable[Any]) -> None:
        """Accepts any lane."""

    def steps(self, dataset: Any, epochs: float) -> NoReturn:
        raise TypeError("a calculation is not trained")

    def load(self, dataset: Any, mesh: Any = None) -> Callable[[Any], Any]:
        raise TypeError("a calculation is not trained")

    def program(self, lanes: int = 1, mesh: Any = None) -> NoReturn:
        raise TypeError("a calculation is not trained")

    def data_shapes(self) -> NoReturn:
        raise TypeError("a calculation is not trained")

    def check_mesh(self, sizes: Mapping[str, int]) -> None:
        """Accepts any mesh: a calculation does not use it."""


def task_for(cell) -> Task:
    """The task of a trained cell or of a calculation."""
    return CalculationTask(cell) if isinstance(cell, Calculation) else tasks.task_for(cell)
