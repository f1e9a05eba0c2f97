"""A sweep's directory: its manifest and the paths of its other files.

Files of the directory OUT:

    OUT/manifest.json       experiment, tier, configuration, hash, datasets, environment, packing; written before
                            training
    OUT/manifest.copy.json  the same content; `resume` restores a lost or damaged manifest.json from it
    OUT/experiment.py       a copy of the user's experiment file, if the sweep has one
    OUT/lanes.json          the lane index (`sweeps.driver.lane_index`), computed from the manifest
    OUT/records/HASH.jsonl  the record of a finished lane, named by the hash of the lane's configuration; a damaged
                            record is renamed to HASH.damaged, and its lane is trained again
    OUT/checkpoints/HASH/   the last saved steps of an unfinished lane; removed after its record is written
    OUT/progress/*.json     a worker's present pack and step; removed when the worker has saved and stops
    OUT/curves/HASH.json    the curve and measures of a lane so far, with times (`sweeps.worker.curves`); kept for
                            tracking tools
    OUT/leave               exists while the driver asks all workers to save and stop (`sweeps.worker.stop`)
    OUT/workers/            messages of the local executor's workers (*.log), and reasons why gangs ended (*.why)
    OUT/session.json        start time and host of the last driver
    OUT/sessions.jsonl      durations of sessions
    OUT/trials.jsonl        reports of finished trials
    OUT/failures.jsonl      failed trials of the last session, with their reasons
    OUT/table.csv           the table, made from the records
    OUT/figure.*            the figure, made from the records
    OUT/tensorboard/, OUT/wandb/, OUT/mlflow/
                            the runs of a tracking tool, with `--track` (`sweeps.reporting.tracking`)
"""

import contextlib
import json
import os
import shlex
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import experiments
from experiments.common import user_experiments
from experiments.common.experiment import Calculation, CellLanes, Experiment
from lvp.data import Dataset, Images
from lvp.errors import InputError
from lvp.files import ABSENT, cache_dir, listed, write_whole
from lvp.files.schema import Shape, fits
from lvp.training import Cell, ImageCell, ImageLane, Lane, records
from sweeps.driver import working_copy
from sweeps.driver.working_copy import location
from sweeps.worker import environment
from sweeps.worker.tasks import task_for

NAME, COPY = "manifest.json", "manifest.copy.json"
FORMAT = 2  # the format of manifest.json; records have their own
# Keys and types of manifest.json, of the source and the packing in it, and of a lane's curve.
_SHAPE = {"format": int, "hash": str, "experiment": str, "tier": str, "config": dict, "datasets": dict}
_SOURCE = {"path": str, "sha256": str}
_CURVE: Shape = {"steps": [int], "times": [float], "outcome": {"curve_steps": [int], "curve_losses": list}}
_PACKING = {"platform": str, "workers": int, "threads": int, "pin": bool, "lanes_per_program": dict}


class Unusable(InputError):
    """manifest.json is missing or damaged. Its copy may replace it."""


@dataclass(frozen=True)
class Entry:
    """A cell of the sweep with its data and its lanes."""

    label: str
    cell: Cell | ImageCell | Calculation
    dataset: Dataset | Images | None
    lanes: dict[str, Lane | ImageLane | Mapping[str, Any]]  # hash → lane, in the experiment's order

    @cached_property
    def hash(self) -> str:
        return records.config_hash(records.configuration(self.cell))


def _with_steps(cell: Any, steps: int) -> Any:
    return replace(cell, steps=steps)


def corpus_name(spec: str) -> str:
    """The name of a corpus without its path: "wikitext2" for "wikitext2:/path"."""
    return spec.partition(":")[0]


def lane_configs(cell, lanes: Iterable, dataset) -> Iterator[dict[str, Any]]:
    """Yields the configuration of each lane: all values that determine its result. Its hash names the lane.

    Corpora are given by name and fingerprint, because their paths do not change results.
    """
    config = records.configuration(cell)
    for name in ("corpus", "scored"):
        if spec := (config.get("data") or {}).get(name):
            config["data"][name] = corpus_name(spec)
    data = None if dataset is None else task_for(cell).fingerprints(dataset)
    for lane in lanes:
        yield {"cell": config, "lane": records.configuration(lane), "data": data}


def resume_command(out: Path, *words: str) -> str:
    """The shell command that continues the sweep in `out`, with further options."""
    return shlex.join(["python", "-m", "sweeps", "resume", str(location(out)), *words])


def _replace(path: Path, text: str) -> None:
    """Writes a file that no result depends on. Does not sync it, and ignores OSError."""
    temporary = path.with_suffix(".tmp")
    with contextlib.suppress(OSError):
        temporary.write_text(text)
        os.replace(temporary, path)


def _is_manifest(content: Any) -> bool:
    """Whether JSON has the keys and types of a manifest."""
    if not fits(content, _SHAPE):
        return False
    packing = content.get("packing")
    if packing is not None and not fits(packing, _PACKING):
        return False
    began = content.get("environment")
    # JSON escapes unprintable characters with a backslash; messages print the environment.
    if began is not None and not (fits(began, environment.SHAPE) and "\\" not in records.dumps(began)):
        return False
    return "source" not in content or fits(content["source"], _SOURCE)


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json. `cells` executes the experiment's code."""

    out: Path  # the sweep's directory
    experiment: str  # its name
    tier: str
    config: dict[str, Any]  # the experiment's configuration as JSON
    datasets: dict[str, dict[str, Any] | None]  # label of a cell → its dataset as JSON
    packing: dict[str, Any] | None = None  # see `sweeps.driver.packing.measured`; None before it is chosen
    source: user_experiments.Source | None = None  # the user's experiment file; None for experiments of lvp
    environment: dict[str, Any] | None = None  # of the first session; None in manifests of earlier versions

    @property
    def hash(self) -> str:
        """The hash of the experiment, its configuration, the fingerprints of its datasets and the user's file."""
        data = {k: d and [d[x] for x in sorted(d) if x.endswith("fingerprint")] for k, d in self.datasets.items()}
        file = {"source": self.source.sha256} if self.source else {}
        return records.config_hash({"experiment": self.experiment, "config": self.config, "data": data} | file)

    def with_file(self, path: str) -> "Manifest":
        """The manifest with the present content of the user's experiment file, to draw a changed figure.

        Raises:
          InputError: the sweep's experiment is one of lvp's, or the file defines another experiment.
        """
        if self.source is None:
            raise InputError(f"{self.location} is a sweep of lvp's own experiment {self.experiment}: omit --experiment")
        changed = replace(self, source=user_experiments.source(path))
        if (name := experiments.load(self.experiment, changed.source).name) != self.experiment:
            raise InputError(
                f"--experiment {path} defines {name}, but {self.location} is a sweep of {self.experiment}; "
                "name its file"
            )
        return changed

    @cached_property
    def resolved(self) -> tuple[Experiment, Any]:
        """The experiment and its configuration object."""
        experiment = experiments.load(self.experiment, self.source, self.out / user_experiments.KEPT)
        return experiment, experiments.restored(experiment, self.tier, self.config)

    @cached_property
    def cells(self) -> list[Entry]:
        """The cells with their lanes. Lanes that depend on results are added when these results have records."""
        experiment, config = self.resolved
        planned = experiment.cells(config)
        entries = [self._entry(c, c.lanes) for c in planned]
        if experiment.follow_up is None:
            return entries
        rows: list[dict] = []
        read: set[str] = set()  # the lanes of `rows`
        most = experiment.most_lanes(config)
        while (lanes := {h for entry in entries for h in entry.lanes}) > read and len(lanes) < most:
            rows += self.read_records(lanes - read)
            if len(rows) < len(lanes):
                break
            more, read = experiment.follow_up(records.table(rows), config), lanes
            planned = [c._replace(lanes=[*c.lanes, *more.get(c.label, ())]) for c in planned]
            entries = [self._entry(c, c.lanes) for c in planned]
            if experiment.limit is None:
                break
        return entries

    def _entry(self, planned: CellLanes, lanes) -> Entry:
        label, cell = planned.label, planned.cell
        task = task_for(cell)
        try:
            places = self.datasets[label]
            dataset = None if places is None else task.dataset_class.from_dict(places)
            if planned.epochs is not None and task.trained:
                cell = _with_steps(cell, max(1, round(task.steps(dataset, planned.epochs))))
        except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            raise InputError(f"{self.location}/{NAME}: invalid dataset entry for cell {label}: {error}") from None
        hashes = map(records.config_hash, lane_configs(cell, lanes, dataset))
        return Entry(label, cell, dataset, dict(zip(hashes, lanes, strict=True)))

    def prepared(self) -> dict[str, dict[str, Any] | None]:
        """Prepares the data of all cells on this machine and returns the present `datasets`.

        Raises:
          InputError: a corpus, tokenizer or image set differs from that of the sweep's start, or cannot be used.
        """
        datasets: dict[str, dict[str, Any] | None] = {}
        for entry in self.cells:
            task = task_for(entry.cell)
            dataset = task.prepare(cache_dir() / "data")
            if entry.dataset is not None:
                present = task.fingerprints(dataset)
                for name, fingerprint in task.fingerprints(entry.dataset).items():
                    if present[name] != fingerprint:
                        changed = f"{name} of {dataset.spec} changed since the sweep in {self.location} began"
                        raise InputError(f"{changed}; restore it, or start a new sweep")
            datasets[entry.label] = dataset and dataset.to_dict()
        return datasets

    @property
    def location(self) -> Path | str:
        """The sweep's directory, or its address in a bucket, for messages."""
        return location(self.out)

    @property
    def num_lanes(self) -> int:
        return sum(len(entry.lanes) for entry in self.cells)

    def record_path(self, lane: str) -> Path:
        return self.out / "records" / f"{lane}.jsonl"

    def checkpoint_path(self, lane: str) -> Path:
        return self.out / "checkpoints" / lane

    def reached(self, lanes: Iterable[str]) -> set[Any]:
        """A set that identifies the lanes' records and complete checkpoints. It changes when a lane makes progress."""
        lanes = list(lanes)
        if copy := working_copy.get(self.out):
            return copy.saved_steps(lanes) | {h for h in lanes if self.record_path(h).exists()}
        steps = (step for h in lanes for step in listed(self.checkpoint_path(h)))
        whole = {step for step in steps if step.name.removeprefix("step_").isdigit()}
        return whole | {path for h in lanes if (path := self.record_path(h)).exists()}

    def record_files(self) -> Iterator[Path]:
        """The paths of record files. Raises OSError if their directory cannot be read."""
        return listed(self.out / "records", ".jsonl")

    def finished(self) -> set[str]:
        """The hashes of this sweep's lanes with a record."""
        recorded = {path.stem for path in self.record_files()}
        return recorded & {h for entry in self.cells for h in entry.lanes}

    def read_records(self, lanes: Iterable[str] | None = None) -> list[dict]:
        """The readable records of the lanes; None is all lanes."""
        hashes = sorted(self.finished() if lanes is None else lanes)
        results = [self._read_record(self.record_path(h)) for h in hashes]
        return [record for record in results if isinstance(record, dict)]

    @staticmethod
    def _read_record(path: Path) -> dict | InputError:
        """The record in a file, or the error that describes the damage. Raises OSError if the file cannot be read for
        another reason than damage."""
        try:
            rows = records.read(path)
            if [record["hash"] for record in rows] != [path.stem]:
                raise InputError(f"{path} must hold exactly one record, of the lane {path.stem}")
            if records.config_hash(rows[0]["config"]) != path.stem or not fits(rows[0]["outcome"], {"status": str}):
                raise InputError(f"{path} does not hold the configuration and outcome of the lane {path.stem}")
        except InputError as error:
            return error
        return rows[0]

    def rename_damaged(self) -> list[str]:
        """Renames damaged records, so that their lanes count as unfinished, and returns a description of each damage.

        Raises:
          OSError: a record cannot be read for another reason than damage. The record is not renamed.
        """
        problems, copy = [], working_copy.get(self.out)
        for path in self.record_files():
            if isinstance(problem := self._read_record(path), InputError):
                damaged = path.with_suffix(".damaged")
                if copy:
                    copy.rename_damaged(path, damaged)
                os.replace(path, damaged)
                problems.append(str(problem).replace(str(self.out), str(self.location)))
        return problems

    def write_records(self, index: int, outcomes: dict[str, dict], provenance: dict) -> None:
        """Writes the records of a finished pack, then removes its checkpoints.

        Checkpoints are removed last, so an interrupted call leaves the checkpoints of all lanes without a record.
        """
        copy = working_copy.get(self.out)
        for lane, outcome in outcomes.items():
            self._write_record(self._record(index, lane, outcome, provenance))
        for lane in outcomes:
            shutil.rmtree(self.checkpoint_path(lane), ignore_errors=True)
            if copy:
                copy.drop_checkpoints(self.checkpoint_path(lane))

    def _write_record(self, record: Mapping[str, Any]) -> bool:
        """Writes a lane's record and returns True; returns False if the lane has a record."""
        path, copy = self.record_path(record["hash"]), working_copy.get(self.out)
        if path.exists():
            return False
        text = records.text([record])
        write_whole(path, copy.commit_record(path, text) if copy else text)
        return True

    def reuse(self, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Writes the records of another sweep for the lanes of this sweep that have no record, and returns them."""
        self.make_lane_directories()
        lanes = {lane for entry in self.cells for lane in entry.lanes}
        return [row for row in rows if row["hash"] in lanes and self._write_record(row)]

    def fetch_records(self, lanes: Iterable[str]) -> None:
        """Downloads the lanes' records that a listing of the bucket has omitted. Does nothing without a bucket."""
        if copy := working_copy.get(self.out):
            copy.fetch_records(map(self.record_path, lanes))

    def _record(self, index: int, lane: str, outcome: dict, provenance: dict) -> dict:
        entry = self.cells[index]
        (config,) = lane_configs(entry.cell, [entry.lanes[lane]], entry.dataset)
        return {
            "format": records.FORMAT,
            "hash": lane,
            "experiment": self.experiment,
            "tier": self.tier,
            "sweep": self.hash,
            "config": config,
            "outcome": outcome,
            "provenance": provenance,
        }

    def check_packing(self) -> None:
        """Raises InputError if the packing does not fit the cells."""
        packing = self.packing or {}
        counts = [packing.get(name) for name in ("workers", "threads")]
        counts += [packing.get("lanes_per_program", {}).get(entry.label) for entry in self.cells]
        if not all(fits(count, int) and count for count in counts):
            raise InputError(
                f"{self.location}/{NAME} has no packing for its cells; `resume --mesh none` measures a new packing"
            )

    @property
    def session_path(self) -> Path:
        return self.out / "session.json"

    def session(self) -> str:
        """The content of session.json, which the last driver wrote."""
        return self.session_path.read_text()

    @property
    def failures_path(self) -> Path:
        return self.out / "failures.jsonl"

    @property
    def leave_path(self) -> Path:
        return self.out / "leave"

    @property
    def _progress_path(self) -> Path:
        """The progress file of this process."""
        return self.out / "progress" / f"{socket.gethostname()}-{os.getpid()}.json"

    def write_progress(self, index: int, lanes: list[str], step: int, saving: bool = False) -> None:
        """Writes this worker's progress, for status and progress bars. No result depends on it."""
        progress = {"cell": index, "lanes": lanes, "step": step, "saving": saving, "time": time.time()}
        _replace(self._progress_path, json.dumps(progress))

    def write_curve(self, lane: str, curve: Mapping[str, Any]) -> None:
        """Writes a lane's curve, for tracking tools. No result depends on it."""
        _replace(self._curve_path(lane), records.dumps(curve))

    def read_curve(self, lane: str) -> dict[str, Any] | None:
        """A lane's curve as its worker last wrote it (`sweeps.worker.curves`); None without a readable file."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            curve = json.loads(self._curve_path(lane).read_text())
            if fits(curve, _CURVE) and curve["times"] and len(curve["times"]) == len(curve["steps"]):
                return curve
        return None

    def _curve_path(self, lane: str) -> Path:
        return self.out / "curves" / f"{lane}.json"

    def drop_progress(self) -> None:
        """Removes this worker's progress file. Called after the worker has saved and before it stops."""
        self._progress_path.unlink(missing_ok=True)

    def read_progress(self) -> list[dict]:
        """The last progress of each worker. Unreadable files are skipped."""
        all_progress = []
        for path in (self.out / "progress").glob("*.json"):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                progress = json.loads(path.read_text())
                if fits(progress, {"time": float, "step": int, "lanes": [str]}):
                    all_progress.append(progress)
        return all_progress

    def make_directory(self, path: Path) -> None:
        """Makes a directory and its missing parents inside the sweep's directory. Raises FileNotFoundError if the
        sweep's directory was moved."""
        for directory in reversed([path, *path.parents]):
            if self.out in directory.parents:
                directory.mkdir(exist_ok=True)

    def begin(self) -> None:
        """Makes the sweep's directory and writes the manifest. Call it only at the start of a session."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.make_directory(self.out / "workers")
        self.write()

    def make_lane_directories(self) -> None:
        """Makes the directories that workers write to. Call it after the options are checked."""
        for name in ("records", "checkpoints", "progress", "curves"):
            self.make_directory(self.out / name)

    def write(self) -> None:
        """Writes manifest.json and its copy, also to a bucket. A file with the same content is not written."""
        content = {k: v for k, v in asdict(self).items() if k not in ("out", "source")} | {
            "format": FORMAT,
            "hash": self.hash,
        }
        if self.source is not None:
            content["source"] = asdict(self.source)
        content = json.loads(records.dumps(content))  # JSON keys are text, and the digest covers JSON
        content["digest"] = records.config_hash(content)
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        for path in (self._path, self.out / COPY):
            try:
                same = path.read_bytes() == text.encode()
            except FileNotFoundError:
                same = False
            if not same:
                write_whole(path, text)
        working_copy.push(self.out)

    @property
    def _path(self) -> Path:
        return self.out / NAME

    @classmethod
    def read(cls, out: Path) -> "Manifest":
        """The manifest in a sweep's directory.

        Raises:
          InputError: manifest.json is missing, damaged or of another format. The message gives the command that
            restores it, if there is one.
        """
        out = Path(out).absolute()
        try:
            return cls._read(out, NAME)
        except Unusable as problem:
            raise InputError(f"{problem}{cls._remedy(out)}") from None

    @classmethod
    def recover(cls, out: Path) -> tuple["Manifest", str | None]:
        """Returns the manifest and None; or, if manifest.json is missing or damaged, its copy and the problem.

        Raises:
          Unusable: neither file can be used.
          InputError: manifest.json was written by another version.
        """
        out = Path(out).absolute()
        try:
            return cls._read(out, NAME), None
        except Unusable as problem:
            try:
                return cls._read(out, COPY), str(problem)
            except InputError:
                raise Unusable(f"{problem}{cls._remedy(out)}") from None

    @classmethod
    def _remedy(cls, out: Path) -> str:
        """The end of the error about an unusable manifest.json: the command that restores the sweep, or ""."""
        with contextlib.suppress(InputError):
            cls._read(out, COPY)
            return f"; `{resume_command(out)}` restores it from {COPY}"
        rows = [r for p in (out / "records").glob("*.jsonl") if isinstance(r := cls._read_record(p), dict)]
        if not rows:
            return "" if (out / NAME).exists() else ": it is not the directory of a sweep"
        name, tier = (str(rows[0].get(key, "?")) for key in ("experiment", "tier"))
        command = shlex.join(["python", "-m", "sweeps", "run", name, "--tier", tier, "--out", str(location(out))])
        return f"; `{command}`, with the sweep's configuration, continues from its {len(rows)} records"

    @classmethod
    def _read(cls, out: Path, name: str) -> "Manifest":
        """The manifest in a file.

        Raises:
          Unusable: the file is missing or damaged.
          InputError: another version wrote the file.
        """
        path, place = out / name, f"{location(out)}/{name}"
        try:
            content = json.loads(path.read_bytes())
            digest = content.pop("digest", None) if isinstance(content, dict) else None  # old manifests have none
            if digest is not None and digest != records.config_hash(content):
                raise ValueError("its content does not match its digest")
            version = content.get("format") if isinstance(content, dict) else None
            if isinstance(version, int) and version < FORMAT:
                older = (
                    f"{location(out)} was begun by an older version of lvp (manifest format {version}, not {FORMAT})"
                )
                raise InputError(f"{older}: finish and `publish` it with that version, or start a new directory")
            if isinstance(version, int) and version > FORMAT:
                newer = f"{place} was written by a newer version of lvp (format {version}, not {FORMAT})"
                raise InputError(f"{newer}: use that version")
            if not _is_manifest(content):
                raise ValueError("keys are missing or have values of the wrong type")
            del content["format"]
            claimed = content.pop("hash")
            if "source" in content:
                content["source"] = user_experiments.Source(**content["source"])
            manifest = cls(out=out, **content)
            actual = manifest.hash
        except InputError:
            raise
        except ABSENT:
            raise Unusable(f"{location(out)} has no {name}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Unusable(f"{place} cannot be read: {error}") from None
        if actual != claimed:
            raise Unusable(f"{place} was changed: its hash {claimed} does not match its content")
        return manifest
