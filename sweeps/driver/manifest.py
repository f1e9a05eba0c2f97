"""A sweep on disk: what it is, where its lanes' records and checkpoints lie, and who it belongs to.

OUT/manifest.json           experiment, tier, configuration and hash, data, packing: written once, before the work
OUT/experiment.py           of an experiment in a file of somebody's own, the file
OUT/lanes.json              what of its cells and lanes one counts by (`sweeps.driver.lane_index`); follows from the
former OUT/records/HASH.jsonl      one finished lane each, named by the hash of the lane's configuration; HASH.damaged
                            one that cannot be read, whose lane is trained again
OUT/checkpoints/HASH/       an unfinished lane's last steps; gone once its record stands
OUT/progress/*.json         what a worker is at; gone when it left what it was at for others
OUT/leave                   the driver wants all workers to save what they are at and to end
OUT/session.json            when and by whom the sweep was last taken up; sessions.jsonl how long that went
OUT/trials.jsonl            what finished trials cost, and where; failures.jsonl why others failed, in this session
OUT/table.csv, figure.*     drawn from the records; tensorboard/ a file a lane, where that is asked for
"""

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import experiments
from experiments.common import user_experiments
from lvp.errors import InputError
from lvp.files import write_whole
from lvp.files.schema import fits
from lvp.training import records

if TYPE_CHECKING:  # takes seconds, and whoever asks how far a sweep is trains nothing
    from experiments.common.experiment import Calculation, CellLanes, Experiment
    from lvp.data import Dataset, Images
    from lvp.training import Cell, ImageCell, ImageLane, Lane, Task

FORMAT = 2  # of manifest.json; records have a format of their own
# Keys and types of manifest.json and of the packing in it.
_SHAPE = {"format": int, "hash": str, "experiment": str, "tier": str, "config": dict, "datasets": dict}
_SOURCE = {"path": str, "sha256": str}
_PACKING = {"platform": str, "workers": int, "threads": int, "pin": bool, "lanes_per_program": dict}


@dataclass(frozen=True)
class Entry:
    """A cell of the sweep with its data and its lanes by hash, in the experiment's order."""

    label: str
    cell: "Cell | ImageCell | Calculation"
    dataset: "Dataset | Images | None"
    lanes: "dict[str, Lane | ImageLane | Mapping[str, Any]]"

    @cached_property
    def hash(self) -> str:
        return records.config_hash(records.configuration(self.cell))


def _task(cell) -> "Task":
    from sweeps.worker.tasks import task_for  # see above

    return task_for(cell)


def _with_steps(cell: Any, steps: int) -> Any:
    return replace(cell, steps=steps)


def corpus_name(spec: str) -> str:
    """`wikitext2:/some/where` → `wikitext2`."""
    return spec.partition(":")[0]


def lane_configs(cell, lanes: Iterable, dataset) -> Iterator[dict[str, Any]]:
    """Of each lane everything that decides its result, as its record carries it and its hash covers it. Texts go by
    name and fingerprint: where they lie decides nothing."""
    config = records.configuration(cell)
    data = None
    if dataset is not None:
        for name in ("corpus", "scored"):
            if spec := config["data"].get(name):
                config["data"][name] = corpus_name(spec)
        data = _task(cell).fingerprints(dataset)
    for lane in lanes:
        yield {"cell": config, "lane": records.configuration(lane), "data": data}


def _is_manifest(content: Any) -> bool:
    """Whether JSON that was read has the keys and values of one."""
    if not fits(content, _SHAPE):
        return False
    packing = content.get("packing")
    if packing is not None and not fits(packing, _PACKING):
        return False
    return "source" not in content or fits(content["source"], _SOURCE)


@dataclass(frozen=True)
class Manifest:
    """See the module. `packing`: lanes per program by cell label, `threads` and device, once they were measured.
    `source`: the file of an experiment that is not one of `experiments`: whoever asks for its cells executes it."""

    out: Path
    experiment: str
    tier: str
    config: dict[str, Any]
    datasets: dict[str, dict[str, Any] | None]
    packing: dict[str, Any] | None = None
    source: user_experiments.Source | None = None

    @property
    def hash(self) -> str:
        """Of the experiment's resolved configuration and the data it was resolved to; and of its file."""
        data = {k: d and [d[x] for x in sorted(d) if x.endswith("fingerprint")] for k, d in self.datasets.items()}
        file = {"source": self.source.sha256} if self.source else {}
        return records.config_hash({"experiment": self.experiment, "config": self.config, "data": data} | file)

    def with_file(self, path: str) -> "Manifest":
        """The sweep as its experiment's own file has it now: to draw it, after its figure was changed. Raises:
        InputError for a sweep of another experiment."""
        if self.source is None:
            raise InputError(f"{self.out} is a sweep of lvp's own {self.experiment}: it is drawn without a file")
        changed = replace(self, source=user_experiments.source(path))
        if (found := experiments.load(self.experiment, changed.source).name) != self.experiment:
            raise InputError(f"{self.out} is a sweep of {self.experiment}, and {path} holds {found}")
        return changed

    @cached_property
    def resolved(self) -> "tuple[Experiment, Any]":
        """The experiment and its configuration object."""
        experiment = experiments.load(self.experiment, self.source, self.out / user_experiments.KEPT)
        return experiment, experiments.configured(experiment, self.tier, self.config)

    @cached_property
    def cells(self) -> list[Entry]:
        """With the lanes that follow from others' results as soon as those stand."""
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

    def _entry(self, planned: "CellLanes", lanes) -> Entry:
        label, cell = planned.label, planned.cell
        task = _task(cell)
        try:
            places = self.datasets[label]
            dataset = None if places is None else task.dataset_class.from_dict(places)
            if planned.epochs is not None and task.trained:
                cell = _with_steps(cell, max(1, round(task.steps(dataset, planned.epochs))))
        except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            raise InputError(f"{self._path} says nothing usable of the data of {label}: {error}") from None
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
        """What stands of the lanes, records and checkpoints: another set later on is progress."""
        lanes = list(lanes)
        steps = (step for h in lanes for step in self.checkpoint_path(h).glob("step_*"))
        # What was begun to be written, and not finished, is no progress.
        whole = {step for step in steps if step.name.removeprefix("step_").isdigit()}
        return whole | {path for h in lanes if (path := self.record_path(h)).exists()}

    def finished(self) -> set[str]:
        """Hashes of this sweep's lanes that have a record."""
        stand = {p.stem for p in (self.out / "records").glob("*.jsonl")}
        return stand & {h for entry in self.cells for h in entry.lanes}

    def read_records(self, lanes: Iterable[str] | None = None) -> list[dict]:
        """The records, of this sweep's lanes or of these, that can be read."""
        found = (self._sound(self.record_path(h)) for h in sorted(self.finished() if lanes is None else lanes))
        return [record for record in found if isinstance(record, dict)]

    @staticmethod
    def _sound(path: Path) -> dict | InputError:
        """The record in a file, or why there is none."""
        try:
            found = records.read(path)
            if [record["hash"] for record in found] != [path.stem]:
                raise InputError(f"{path} does not hold the one record of its lane")
            if records.config_hash(found[0]["config"]) != path.stem or not fits(found[0]["outcome"], {"status": str}):
                raise InputError(f"{path} holds the record of another lane under its name")
        except InputError as error:
            return error
        return found[0]

    def set_damaged_aside(self) -> list[str]:
        """Renames the records that cannot be read, so that their lanes count as unfinished, and says which and why."""
        said = []
        for path in sorted((self.out / "records").glob("*.jsonl")):
            if isinstance(problem := self._sound(path), InputError):
                os.replace(path, path.with_suffix(".damaged"))
                said.append(str(problem))
        return said

    def write_records(self, index: int, outcomes: dict[str, dict], provenance: dict) -> None:
        """Writes the records of a finished pack, by lane; then its checkpoints, now of no use, go. In this order: a
        pack that is stopped in between still has all its checkpoints to go on from."""
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
        """InputError where its packing is not one for its cells."""
        packing = self.packing or {}
        counts = [packing.get(name) for name in ("workers", "threads")]
        counts += [packing.get("lanes_per_program", {}).get(entry.label) for entry in self.cells]
        if not all(fits(count, int) and count for count in counts):
            raise InputError(f"{self._path} holds no packing for its cells; `resume --mesh none` measures anew")

    @property
    def session_path(self) -> Path:
        return self.out / "session.json"

    def session(self) -> str:
        """Who has the sweep now, or had it last, as its driver wrote it down."""
        return self.session_path.read_text()

    def is_taken_from(self, session: str) -> bool:
        """Whether another driver has taken the sweep up since."""
        try:
            return self.session() != session
        except OSError:
            return False

    @property
    def failures_path(self) -> Path:
        return self.out / "failures.jsonl"

    @property
    def leave_path(self) -> Path:
        return self.out / "leave"

    @property
    def _progress_path(self) -> Path:
        """Of this very process."""
        return self.out / "progress" / f"{socket.gethostname()}-{os.getpid()}.json"

    def write_progress(self, index: int, lanes: list[str], step: int, saving: bool = False) -> None:
        """What this worker is at, for whoever watches; the last word wins and no result depends on it."""
        said = {"cell": index, "lanes": lanes, "step": step, "saving": saving, "time": time.time()}
        path = self._progress_path
        temporary = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # a full disk, say: training can go on
            path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(said))
            os.replace(temporary, path)

    def drop_progress(self) -> None:
        """This worker has saved what it was at, and ends."""
        self._progress_path.unlink(missing_ok=True)

    def saving(self, since: float, seconds: float = 1800.0) -> bool:
        """Whether a worker has said since then, and no longer than so long ago, that it writes a checkpoint. One that
        was killed before has left what it said."""
        begun = (p["time"] for p in self.read_progress() if p.get("saving"))
        return any(said > max(since, time.time() - seconds) for said in begun)

    def read_progress(self) -> list[dict]:
        """What every worker was last seen at; of one whose word cannot be read, nothing."""
        found = []
        for path in (self.out / "progress").glob("*.json"):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                said = json.loads(path.read_text())
                if fits(said, {"time": float, "step": int, "lanes": [str]}):
                    found.append(said)
        return found

    def write(self) -> None:
        content = {k: v for k, v in asdict(self).items() if k not in ("out", "source")} | {
            "format": FORMAT,
            "hash": self.hash,
        }
        if self.source is not None:
            content["source"] = asdict(self.source)
        content = json.loads(records.dumps(content))  # as it is read: with text for keys
        content["digest"] = records.config_hash(content)
        write_whole(self._path, json.dumps(content, indent=1, sort_keys=True) + "\n")

    @property
    def _path(self) -> Path:
        return self.out / "manifest.json"

    @classmethod
    def read(cls, out: Path) -> "Manifest":
        """The manifest of a sweep's directory; InputError where there is none or it cannot be read."""
        out = Path(out).absolute()
        try:
            content = json.loads((out / "manifest.json").read_text())
            version = content.get("format") if isinstance(content, dict) else None
            if isinstance(version, int) and version < FORMAT:
                older = f"{out} was begun by an older version of lvp (manifest format {version}, this one has {FORMAT})"
                raise InputError(f"{older}: finish and `publish` it with that version, or start a new directory")
            if not _is_manifest(content):
                raise ValueError("it does not have a manifest's keys and values")
            digest = content.pop("digest", None)  # manifests from before there was one have none
            if digest is not None and digest != records.config_hash(content):
                raise ValueError("it was changed since it was written")
            if content.pop("format") != FORMAT:
                raise ValueError(f"format {version} is a newer version's, this version reads {FORMAT}")
            claimed = content.pop("hash")
            if "source" in content:
                content["source"] = user_experiments.Source(**content["source"])
            manifest = cls(out=out, **content)
            found = manifest.hash
        except InputError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{out} is not the directory of a sweep: it holds no manifest.json") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{out / 'manifest.json'} cannot be read: {error}") from None
        if found != claimed:
            raise InputError(f"{out / 'manifest.json'} was changed: its hash {claimed} does not match its content")
        return manifest
