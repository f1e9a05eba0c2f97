"""A sweep's directory: its manifest and the places of its other files.

Files of the directory OUT:

    OUT/manifest.json       experiment, tier, configuration, hash, datasets, environment, packing; precedes training
    OUT/manifest.copy.json  the same content; `resume` restores a lost or damaged manifest.json from it
    OUT/experiment.py       a copy of the experiment's own file, if it has one
    OUT/lanes.json          the lane index (`sweeps.driver.lane_index`); it follows from the manifest
    OUT/records/HASH.jsonl  one finished lane, named by the hash of its configuration; a damaged record is renamed to
                            HASH.damaged, and its lane is trained again
    OUT/checkpoints/HASH/   the last saved steps of an unfinished lane; removed after its record is written
    OUT/progress/*.json     a worker's present pack and step; removed when the worker has saved and stops
    OUT/leave               the driver asks all workers to save and to stop (`sweeps.worker.stop`)
    OUT/session.json        when and on which host the last driver began; sessions.jsonl: the durations of sessions
    OUT/trials.jsonl        reports of finished trials; failures.jsonl: reasons of this session's failed trials
    OUT/table.csv, figure.* made from the records; tensorboard/: one file per lane, with `--track tensorboard`
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
from lvp.files import ABSENT, listed, write_whole
from lvp.files.schema import fits
from lvp.training import Cell, ImageCell, ImageLane, Lane, records
from sweeps.worker import environment
from sweeps.worker.tasks import task_for

NAME, COPY = "manifest.json", "manifest.copy.json"
FORMAT = 2  # of manifest.json; records have a format of their own
# Keys and types of manifest.json and of the packing in it.
_SHAPE = {"format": int, "hash": str, "experiment": str, "tier": str, "config": dict, "datasets": dict}
_SOURCE = {"path": str, "sha256": str}
_PACKING = {"platform": str, "workers": int, "threads": int, "pin": bool, "lanes_per_program": dict}


class Unusable(InputError):
    """A manifest.json that is missing or damaged. A copy of its content may stand in for it."""


@dataclass(frozen=True)
class Entry:
    """A cell of the sweep with its data and its lanes by hash, in the experiment's order."""

    label: str
    cell: Cell | ImageCell | Calculation
    dataset: Dataset | Images | None
    lanes: dict[str, Lane | ImageLane | Mapping[str, Any]]

    @cached_property
    def hash(self) -> str:
        return records.config_hash(records.configuration(self.cell))


def _with_steps(cell: Any, steps: int) -> Any:
    return replace(cell, steps=steps)


def corpus_name(spec: str) -> str:
    """`wikitext2:/some/where` → `wikitext2`."""
    return spec.partition(":")[0]


def lane_configs(cell, lanes: Iterable, dataset) -> Iterator[dict[str, Any]]:
    """The configuration of each lane: everything that decides its result. Records contain it and hashes cover it.

    Corpora appear by name and fingerprint, since their places do not change results.
    """
    config = records.configuration(cell)
    data = None
    if dataset is not None:
        for name in ("corpus", "scored"):
            if spec := config["data"].get(name):
                config["data"][name] = corpus_name(spec)
        data = task_for(cell).fingerprints(dataset)
    for lane in lanes:
        yield {"cell": config, "lane": records.configuration(lane), "data": data}


def resume_command(out: Path, *words: str) -> str:
    """The command that continues the sweep in `out`, as a shell takes it."""
    return shlex.join(["python", "-m", "sweeps", "resume", str(out), *words])


def _is_manifest(content: Any) -> bool:
    """Whether JSON has the keys and types of a manifest."""
    if not fits(content, _SHAPE):
        return False
    packing = content.get("packing")
    if packing is not None and not fits(packing, _PACKING):
        return False
    began = content.get("environment")
    if began is not None and not (fits(began, environment.SHAPE) and "\\" not in records.dumps(began)):  # it is printed
        return False
    return "source" not in content or fits(content["source"], _SOURCE)


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json. Its cells come from the experiment's code, which `cells` executes."""

    out: Path
    experiment: str
    tier: str
    config: dict[str, Any]
    datasets: dict[str, dict[str, Any] | None]
    packing: dict[str, Any] | None = None  # workers, threads and lanes per program by cell; None before it is chosen
    source: user_experiments.Source | None = None  # the experiment's own file; None for experiments of lvp
    # `environment.present()` of the first session; None in manifests of earlier versions.
    environment: dict[str, Any] | None = None

    @property
    def hash(self) -> str:
        """The hash of the experiment, its configuration, the fingerprints of its datasets and its own file."""
        data = {k: d and [d[x] for x in sorted(d) if x.endswith("fingerprint")] for k, d in self.datasets.items()}
        file = {"source": self.source.sha256} if self.source else {}
        return records.config_hash({"experiment": self.experiment, "config": self.config, "data": data} | file)

    def with_file(self, path: str) -> "Manifest":
        """The manifest with the present content of the experiment's own file, to draw a changed figure.

        InputError where the file holds another experiment.
        """
        if self.source is None:
            raise InputError(f"{self.out} is a sweep of lvp's own experiment {self.experiment}: leave --experiment out")
        changed = replace(self, source=user_experiments.source(path))
        if (name := experiments.load(self.experiment, changed.source).name) != self.experiment:
            raise InputError(f"{self.out} is a sweep of {self.experiment}, and {path} holds {name}")
        return changed

    @cached_property
    def resolved(self) -> tuple[Experiment, Any]:
        """The experiment and its configuration object."""
        experiment = experiments.load(self.experiment, self.source, self.out / user_experiments.KEPT)
        return experiment, experiments.configured(experiment, self.tier, self.config)

    @cached_property
    def cells(self) -> list[Entry]:
        """The cells with their lanes. Lanes that follow from results appear once these results have records."""
        experiment, config = self.resolved
        planned = experiment.cells(config)
        entries = [self._entry(c, c.lanes) for c in planned]
        if experiment.follow_up is None:
            return entries
        first = {h for entry in entries for h in entry.lanes}
        rows = self.read_records(first)
        if len(rows) < len(first):
            return entries
        more = experiment.follow_up(records.table(rows), config)
        return [self._entry(c, [*c.lanes, *more.get(c.label, ())]) for c in planned]

    def _entry(self, planned: CellLanes, lanes) -> Entry:
        label, cell = planned.label, planned.cell
        task = task_for(cell)
        try:
            places = self.datasets[label]
            dataset = None if places is None else task.dataset_class.from_dict(places)
            if planned.epochs is not None and task.trained:
                cell = _with_steps(cell, max(1, round(task.steps(dataset, planned.epochs))))
        except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            raise InputError(f"{self._path}: invalid dataset entry for cell {label}: {error}") from None
        hashes = map(records.config_hash, lane_configs(cell, lanes, dataset))
        return Entry(label, cell, dataset, dict(zip(hashes, lanes, strict=True)))

    @property
    def num_lanes(self) -> int:
        return sum(len(entry.lanes) for entry in self.cells)

    def record_path(self, lane: str) -> Path:
        return self.out / "records" / f"{lane}.jsonl"

    def checkpoint_path(self, lane: str) -> Path:
        return self.out / "checkpoints" / lane

    def reached(self, lanes: Iterable[str]) -> set[Path]:
        """The records and checkpoints of the lanes. A different set at a later time is progress."""
        lanes = list(lanes)
        steps = (step for h in lanes for step in listed(self.checkpoint_path(h)))
        # Unfinished checkpoints are no progress.
        whole = {step for step in steps if step.name.removeprefix("step_").isdigit()}
        return whole | {path for h in lanes if (path := self.record_path(h)).exists()}

    def record_files(self) -> Iterator[Path]:
        """The files of records. Raises OSError if their directory cannot be read."""
        return listed(self.out / "records", ".jsonl")

    def finished(self) -> set[str]:
        """The hashes of this sweep's lanes with a record."""
        stand = {path.stem for path in self.record_files()}
        return stand & {h for entry in self.cells for h in entry.lanes}

    def read_records(self, lanes: Iterable[str] | None = None) -> list[dict]:
        """The readable records of these lanes; of all lanes for None."""
        hashes = sorted(self.finished() if lanes is None else lanes)
        results = [self._read_record(self.record_path(h)) for h in hashes]
        return [record for record in results if isinstance(record, dict)]

    @staticmethod
    def _read_record(path: Path) -> dict | InputError:
        """The record in a file, or the error that says why it is damaged. Raises OSError if the machine gives no
        access to the file for now."""
        try:
            rows = records.read(path)
            if [record["hash"] for record in rows] != [path.stem]:
                raise InputError(f"{path} does not hold the one record of its lane")
            if records.config_hash(rows[0]["config"]) != path.stem or not fits(rows[0]["outcome"], {"status": str}):
                raise InputError(f"{path} holds the record of another lane under its name")
        except InputError as error:
            return error
        return rows[0]

    def set_damaged_aside(self) -> list[str]:
        """Renames damaged records, so that their lanes count as unfinished, and returns the problem of each. Raises
        OSError, before it renames the next one, if the machine gives no access to a record for now."""
        said = []
        for path in self.record_files():
            if isinstance(problem := self._read_record(path), InputError):
                os.replace(path, path.with_suffix(".damaged"))
                said.append(str(problem))
        return said

    def write_records(self, index: int, outcomes: dict[str, dict], provenance: dict) -> None:
        """Writes the records of a finished pack, then removes its checkpoints. A process that ends in between leaves
        all checkpoints of the unfinished lanes."""
        for lane, outcome in outcomes.items():
            if not self.record_path(lane).exists():
                records.write(self.record_path(lane), [self._record(index, lane, outcome, provenance)])
        for lane in outcomes:
            shutil.rmtree(self.checkpoint_path(lane), ignore_errors=True)

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
        """InputError where the packing does not fit the cells."""
        packing = self.packing or {}
        counts = [packing.get(name) for name in ("workers", "threads")]
        counts += [packing.get("lanes_per_program", {}).get(entry.label) for entry in self.cells]
        if not all(fits(count, int) and count for count in counts):
            raise InputError(f"{self._path} holds no packing for its cells; `resume --mesh none` measures anew")

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
        said = {"cell": index, "lanes": lanes, "step": step, "saving": saving, "time": time.time()}
        path = self._progress_path
        temporary = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # on a full disk training can go on
            temporary.write_text(json.dumps(said))
            os.replace(temporary, path)

    def drop_progress(self) -> None:
        """Removes this worker's progress, after it has saved and before it stops."""
        self._progress_path.unlink(missing_ok=True)

    def saving(self, since: float, seconds: float = 1800.0) -> bool:
        """Whether a worker has begun to write a checkpoint after `since` and within the last `seconds`. The progress of
        a killed worker stays, hence both limits."""
        begun = (p["time"] for p in self.read_progress() if p.get("saving"))
        return any(said > max(since, time.time() - seconds) for said in begun)

    def read_progress(self) -> list[dict]:
        """The last progress of every worker whose file can be read."""
        progress = []
        for path in (self.out / "progress").glob("*.json"):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                said = json.loads(path.read_text())
                if fits(said, {"time": float, "step": int, "lanes": [str]}):
                    progress.append(said)
        return progress

    def make_directory(self, path: Path) -> None:
        """Makes a directory below the sweep's. The sweep's own must exist: it may have been moved away."""
        for directory in reversed([path, *path.parents]):
            if self.out in directory.parents:
                directory.mkdir(exist_ok=True)

    def begin(self) -> None:
        """Makes the sweep's directory and writes the manifest. Only the start of a session may call it."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.make_directory(self.out / "workers")
        self.write()

    def make_lane_directories(self) -> None:
        """Makes the directories of records, checkpoints and progress. Refused options leave none of them."""
        for name in ("records", "checkpoints", "progress"):
            self.make_directory(self.out / name)

    def write(self) -> None:
        """Writes manifest.json and its copy, each only where its content differs."""
        content = {k: v for k, v in asdict(self).items() if k not in ("out", "source")} | {
            "format": FORMAT,
            "hash": self.hash,
        }
        if self.source is not None:
            content["source"] = asdict(self.source)
        content = json.loads(records.dumps(content))  # as it is read: with text for keys
        content["digest"] = records.config_hash(content)
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        for path in (self._path, self.out / COPY):
            try:
                same = path.read_bytes() == text.encode()
            except FileNotFoundError:
                same = False
            if not same:
                write_whole(path, text)

    @property
    def _path(self) -> Path:
        return self.out / NAME

    @classmethod
    def read(cls, out: Path) -> "Manifest":
        """The manifest in a sweep's directory. InputError where it is missing, damaged or of another format, with the
        command that restores it, if one does."""
        out = Path(out).absolute()
        try:
            return cls._read(out, NAME)
        except Unusable as problem:
            raise InputError(f"{problem}{cls._way_back(out)}") from None

    @classmethod
    def recover(cls, out: Path) -> tuple["Manifest", str | None]:
        """The manifest, or its copy where manifest.json is missing or damaged, with the problem. Unusable where none of
        the two can be used, InputError where manifest.json is another version's or cannot be read for now."""
        out = Path(out).absolute()
        try:
            return cls._read(out, NAME), None
        except Unusable as problem:
            try:
                return cls._read(out, COPY), str(problem)
            except InputError:
                raise Unusable(f"{problem}{cls._way_back(out)}") from None

    @classmethod
    def _way_back(cls, out: Path) -> str:
        """The words that name the way back to a sweep whose manifest.json cannot be used, "" without one."""
        with contextlib.suppress(InputError):
            cls._read(out, COPY)
            return f"; `{resume_command(out)}` restores it from {COPY}"
        rows = [r for p in (out / "records").glob("*.jsonl") if isinstance(r := cls._read_record(p), dict)]
        if not rows:
            return "" if (out / NAME).exists() else ": it is not the directory of a sweep"
        name, tier = (str(rows[0].get(key, "?")) for key in ("experiment", "tier"))
        command = shlex.join(["python", "-m", "sweeps", "run", name, "--tier", tier, "--out", str(out)])
        return f"; `{command}`, with the configuration that it began with, goes on from its {len(rows)} records"

    @classmethod
    def _read(cls, out: Path, name: str) -> "Manifest":
        """The manifest in a file. Unusable where it is missing or damaged, InputError where it is another version's."""
        path = out / name
        try:
            content = json.loads(path.read_bytes())
            digest = content.pop("digest", None) if isinstance(content, dict) else None  # the first have no digest
            if digest is not None and digest != records.config_hash(content):
                raise ValueError("it was changed since it was written")
            version = content.get("format") if isinstance(content, dict) else None
            if isinstance(version, int) and version < FORMAT:
                older = f"{out} was begun by an older version of lvp (manifest format {version}, this one has {FORMAT})"
                raise InputError(f"{older}: finish and `publish` it with that version, or start a new directory")
            if isinstance(version, int) and version > FORMAT:
                raise InputError(f"{path}: format {version} is a newer version's, this version reads {FORMAT}")
            if not _is_manifest(content):
                raise ValueError("it does not have a manifest's keys and values")
            del content["format"]
            claimed = content.pop("hash")
            if "source" in content:
                content["source"] = user_experiments.Source(**content["source"])
            manifest = cls(out=out, **content)
            actual = manifest.hash
        except InputError:
            raise
        except ABSENT:
            raise Unusable(f"{out} holds no {name}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Unusable(f"{path} cannot be read: {error}") from None
        if actual != claimed:
            raise Unusable(f"{path} was changed: its hash {claimed} does not match its content")
        return manifest
