"""Offline runs of Weights & Biases: one directory per lane, OUT/wandb/offline-run-TIME-HASH. `wandb sync` uploads it.

A run that was interrupted gets a new directory, because W&B cannot continue an offline run.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # W&B would send its own errors to its developers

import wandb  # noqa: E402


class WandbRuns:
    """The offline runs of a sweep. The directory `folder` must have the name `wandb`."""

    def __init__(self, folder: Path, title: str, make: Callable[[Path], None]):
        self.folder, self.title = folder, title
        self.lanes = {path.name.rpartition("-")[2] for path in folder.glob("offline-run-*")}

    def exists(self, cell: str, lane: str) -> bool:
        """Whether the lane has a run."""
        return lane in self.lanes

    def begin(self, cell: str, lane: str, hparams: Mapping[str, float | bool | str], began: float) -> "WandbRun":
        """Deletes the directory of an earlier run of this lane and begins a new run. `began` is not used: W&B takes the
        present time as the start of the run. Each point carries its own time."""
        for earlier in self.folder.glob(f"offline-run-*-{lane}"):
            shutil.rmtree(earlier)
        run = wandb.init(
            mode="offline",
            dir=self.folder.parent,  # W&B adds the directory wandb
            project=self.title,
            group=cell,
            id=lane,
            name=lane,
            config=dict(hparams),
            reinit="create_new",  # several runs are open at the same time
            settings=wandb.Settings(
                silent=True,
                console="off",
                symlink=False,
                # Offline runs may be uploaded, so they hold no data about the machine.
                host="",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                save_code=False,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )
        self.lanes.add(lane)
        return WandbRun(run)


class WandbRun:
    """The run of a lane."""

    def __init__(self, run):
        self.run = run

    def log(self, points: Iterable[tuple[int, float, Mapping[str, float]]]) -> None:
        """Logs points (step, Unix time, tag → value)."""
        for step, time, scalars in points:
            self.run.log({**scalars, "_timestamp": time}, step=step, commit=True)

    def end(self, succeeded: bool, ended: float) -> None:
        """Ends the run with its status."""
        self.run.finish(exit_code=0 if succeeded else 1)

    def leave(self) -> None:
        """Closes the run of an unfinished lane."""
        self.run.finish(exit_code=1)
