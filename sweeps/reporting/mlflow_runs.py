"""MLflow's runs in a file store: one run per lane, named by the lane's hash, in OUT/mlflow.

A file store works on the shared file systems of clusters. SQLite does not. MLflow uses a file store only if
MLFLOW_ALLOW_FILE_STORE is set.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read at import

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param  # noqa: E402

MOST_METRICS, MOST_PARAMS = 1000, 100  # MLflow's limits for one batch


class MlflowRuns:
    """The runs of a sweep in the store `folder`. `title` names their experiment."""

    def __init__(self, folder: Path, title: str, make: Callable[[Path], None]):
        make(folder / ".trash")  # MLflow makes `.trash` once per process, but the user may have deleted the store
        self.client = MlflowClient(tracking_uri=folder.as_uri())
        experiment = self.client.get_experiment_by_name(title)
        self.experiment = experiment.experiment_id if experiment else self.client.create_experiment(title)
        self.ids: dict[str, str] = {}  # lane → MLflow's id of its run
        page = None
        while page != "":
            runs = self.client.search_runs([self.experiment], max_results=1000, page_token=page)
            self.ids |= {run.info.run_name: run.info.run_id for run in runs}
            page = runs.token or ""

    def exists(self, cell: str, lane: str) -> bool:
        return lane in self.ids

    def begin(self, cell: str, lane: str, hparams: Mapping[str, float | bool | str], began: float) -> "MlflowRun":
        """Begins a lane's run, or continues it."""
        if lane in self.ids:
            self.client.update_run(self.ids[lane], status="RUNNING")
        else:
            tags = {"cell": cell}
            run = self.client.create_run(self.experiment, start_time=_milliseconds(began), tags=tags, run_name=lane)
            self.ids[lane] = run.info.run_id
        params = [Param(name, str(value)) for name, value in hparams.items()]
        for i in range(0, len(params), MOST_PARAMS):
            self.client.log_batch(self.ids[lane], params=params[i : i + MOST_PARAMS])
        return MlflowRun(self.client, self.ids[lane])


class MlflowRun:
    """The run of a lane. `log` skips the points that MLflow's run already has."""

    def __init__(self, client: MlflowClient, id: str):
        self.client, self.id = client, id
        names = client.get_run(id).data.metrics
        self.logged = {(name, metric.step) for name in names for metric in client.get_metric_history(id, name)}

    def log(self, points: Iterable[tuple[int, float, Mapping[str, float]]]) -> None:
        """Logs points (step, Unix time, tag → value)."""
        metrics = [
            Metric(tag, value, _milliseconds(time), step)
            for step, time, scalars in points
            for tag, value in scalars.items()
            if (tag, step) not in self.logged
        ]
        for i in range(0, len(metrics), MOST_METRICS):
            self.client.log_batch(self.id, metrics=metrics[i : i + MOST_METRICS])

    def end(self, succeeded: bool, ended: float) -> None:
        self.client.set_terminated(self.id, "FINISHED" if succeeded else "FAILED", _milliseconds(ended))

    def leave(self) -> None:
        self.client.set_terminated(self.id, "KILLED")


def _milliseconds(time: float) -> int:
    return round(1000 * time)
