"""The store of a sweep: a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.

    sweep.json               what the sweep fixes (`lvp.sweeps.sweep.Sweep`); created once
    experiment.py            a copy of the user's experiment file; it is never executed
    programs/SETTING-N.json  the fingerprint of a compiled program (`lvp.sweeps.fingerprint`); created once
    records/RUN.jsonl        the record of a finished run, named by the hash of its configuration; created once
    records/RUN.damaged      a record that does not match its digest; its run is trained again
    checkpoints/RUN/STEP/    the last two saved steps of an unfinished run; a step without its metadata is incomplete
    weights/RUN/             the parameters of a finished run, if the sweep keeps them (`lvp.models.load`)
    failed/RUN.json          why a run failed; it does not count once the run has a record
    table.csv, figure.*, claims.md
                             made from the records
    tensorboard/, wandb/, mlflow/
                             runs of a tracking tool (`lvp.sweeps.trackers`)
    logs/                    messages of worker processes; in a directory only

Nothing else is state. Every object is whole or absent, so a process may end at any time.
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lvp.errors import InputError
from lvp.files import checkpoints
from lvp.files.buckets import refusals
from lvp.files.places import Directory, place_of
from lvp.files.schema import fits
from lvp.training import records

log = logging.getLogger(__name__)
REQUESTS = 16  # to a bucket at the same time


class Store:
    """The objects of a sweep. `objects` reads and writes them; the other methods know their names.

    Args:
      place: a directory, or an address in a bucket.

    Raises:
      InputError: the address cannot be used.
    """

    def __init__(self, place: str | Path):
        self.objects = place_of(place)

    def __str__(self) -> str:
        return self.objects.address

    @property
    def directory(self) -> Path | None:
        """The directory; None for a bucket."""
        return self.objects.path if isinstance(self.objects, Directory) else None

    def check(self) -> None:
        """Checks that the directory can be written, or that the bucket can be read.

        Raises:
          InputError: the directory cannot be written, or the server refuses the request.
        """
        path = self.directory
        if path is None:
            with refusals():
                self.objects.names()
            return
        parent = next(folder for folder in (path, *path.parents) if folder.exists())
        if not parent.is_dir():
            raise InputError(f"--out {path}: {parent} is not a directory; name another directory")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise InputError(f"--out {path}: {parent} cannot be written; name another directory")

    # Records

    def recorded(self) -> set[str]:
        """The hashes of the runs with a record, intact or not. The listing of a bucket may omit new records."""
        return {name.removesuffix(".jsonl") for name in self.objects.names("records") if name.endswith(".jsonl")}

    def record(self, run: str) -> dict | None:
        """The record of a run; None if it has none. A damaged record is renamed, so that its run is trained again."""
        name = f"records/{run}.jsonl"
        content = self.objects.read(name)
        if content is None:
            return None
        try:
            return _checked(content, run)
        except InputError as error:
            log.warning("%s/%s: %s; its run is trained again", self, name, error)
            self.objects.write(f"records/{run}.damaged", content)
            self.objects.delete(name)
            return None

    def read_records(self, runs: Iterable[str] | None = None) -> list[dict]:
        """The intact records of the runs (None: all), in the order of their hashes. Changes nothing."""

        def read(run: str) -> dict | None:
            content = self.objects.read(f"records/{run}.jsonl")
            with contextlib.suppress(InputError):
                return None if content is None else _checked(content, run)
            return None

        return [row for row in self._of_all(read, self.recorded() if runs is None else runs) if row is not None]

    def set_damaged_aside(self) -> None:
        """Renames damaged records, so that their runs are trained again."""
        self._of_all(self.record, self.recorded())

    def _of_all(self, function: Callable[[str], Any], runs: Iterable[str]) -> list[Any]:
        """The function's values for the runs in the order of their hashes. Requests to a bucket overlap."""
        with ThreadPoolExecutor(REQUESTS if self.directory is None else 1) as pool:
            return list(pool.map(function, sorted(runs)))

    def add_record(self, record: Mapping[str, Any]) -> bool:
        """Creates a run's record, unless it has one. Returns whether it was created."""
        return self.objects.create(f"records/{record['hash']}.jsonl", records.text([record]).encode())

    # Checkpoints

    def save(self, run: str, step: int, state: Any, environments: list[dict]) -> None:
        """Stores a run's state at a step, and removes all but the last two steps up to it."""
        self._put(f"checkpoints/{run}/{checkpoints.name_of(step)}", step, state, run, environments)
        for earlier in [s for s in self.steps(run) if s <= step][: -checkpoints.KEEP]:
            self.objects.delete(f"checkpoints/{run}/{checkpoints.name_of(earlier)}")

    def _put(self, name: str, *arguments: Any, **more: Any) -> None:
        """Stores a checkpoint with the arguments of `checkpoints.save`."""
        with self.objects.scratch() as folder:
            checkpoints.save(folder / "saved", *arguments, **more)
            self.objects.put_folder(name, folder / "saved", checkpoints.METADATA)

    def add_weights(self, run: str, step: int, params: Any, config: Mapping[str, Any]) -> None:
        """Stores the parameters of a finished run with its configuration. Parameters that exist stay."""
        self._put(f"weights/{run}", step, {"params": params}, run, config=config)

    def steps(self, run: str) -> list[int]:
        """The saved steps of a run, ascending; incomplete ones are among them."""
        return checkpoints.numbers(self.objects.names(f"checkpoints/{run}"))

    def latest(self, runs: list[str], shapes: Any) -> tuple[int, list[Any], list[dict]] | None:
        """(step, states, environments) of the last step that all runs hold intact; None without one.

        Damaged steps are logged. Later steps are removed: they are damaged, or were not saved for all runs. The
        environments are those in which the first run was trained so far.
        """
        common = sorted(set.intersection(*(set(self.steps(run)) for run in runs)))
        for step in reversed(common):
            try:
                loaded = [self._load(run, step, shapes) for run in runs]
            except checkpoints.Damaged as error:
                log.warning("%s; the step before is used", error)
                continue
            self._drop_steps(runs, after=step)
            return step, [state for state, _ in loaded], loaded[0][1]
        self._drop_steps(runs, after=-1)
        return None

    def _drop_steps(self, runs: Iterable[str], after: int) -> None:
        for run in runs:
            for step in (s for s in self.steps(run) if s > after):
                self.objects.delete(f"checkpoints/{run}/{checkpoints.name_of(step)}")

    def _load(self, run: str, step: int, shapes: Any) -> tuple[Any, list[dict]]:
        name = f"checkpoints/{run}/{checkpoints.name_of(step)}"
        try:
            with self.objects.folder(name) as path:
                try:
                    return checkpoints.load(path, step, shapes, run)
                except checkpoints.Damaged as error:  # names the store and not a downloaded copy
                    raise checkpoints.Damaged(str(error).replace(str(path), f"{self}/{name}")) from error
        except InputError as error:  # another worker of the run has removed the step
            raise checkpoints.Damaged(str(error)) from error

    def drop_checkpoints(self, runs: Iterable[str]) -> None:
        """Removes the checkpoints of runs."""
        for run in runs:
            self.objects.delete(f"checkpoints/{run}")

    # Failures

    def add_failure(self, runs: Iterable[str], reason: str) -> None:
        """Stores why runs failed."""
        for run in runs:
            with contextlib.suppress(OSError):  # the driver prints the reason in any case
                self.objects.write(f"failed/{run}.json", records.dumps({"reason": reason}).encode())

    def failures(self) -> dict[str, str]:
        """Run → reason, of the failed runs without a record."""
        recorded, reasons = self.recorded(), {}
        for run in (name.removesuffix(".json") for name in self.objects.names("failed")):
            if run not in recorded and (content := self.objects.read(f"failed/{run}.json")):
                with contextlib.suppress(ValueError, RecursionError):
                    if fits(entry := json.loads(content), {"reason": str}):
                        reasons[run] = entry["reason"]
        return reasons


def _checked(content: bytes, run: str) -> dict:
    """The record of a run.

    Raises:
      InputError: the content is damaged, or is not the record of this run.
    """
    rows = records.parse(content, "record")
    if len(rows) != 1 or rows[0]["hash"] != run or records.config_hash(rows[0]["config"]) != run:
        raise InputError(f"it does not hold exactly one record, of the run {run}")
    if not fits(rows[0]["outcome"], {"status": str}):
        raise InputError("it has no outcome")
    return rows[0]
