"""What a sweep fixes (`sweep.json`), and the runs that follow from it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from lvp import mesh_axes
from lvp.errors import InputError
from lvp.experiments.common.experiment import Calculation, Experiment, SettingRuns
from lvp.files import cache_dir
from lvp.files.places import Directory
from lvp.files.schema import Shape, fits
from lvp.sweeps import fingerprint, trackers
from lvp.sweeps.store import Store
from lvp.training import AnySetting, records, task_for

NAME = "sweep.json"
FORMAT = 3
# Keys of JSON files keep their names: "tier" is the preset, "lanes_per_program" the runs of a pack.
_SHAPE: Shape = {
    "experiment": str,
    "tier": str,
    "config": dict,
    "datasets": dict,
    "packing": {"platform": str, "workers": int, "threads": int, "lanes_per_program": dict},
    "environment": fingerprint.SHAPE,
    "settings": [{"label": str, "steps": int, "flops": float, "runs": [str]}],
}
Run = Any  # a run of the setting's kind, or a mapping: what differs between the runs of a setting


@dataclass(frozen=True)
class Planned:
    """A setting with its data and its runs."""

    label: str
    setting: AnySetting | Calculation
    dataset: Any  # of the setting's task; None without data
    runs: dict[str, Run]  # by hash, in the experiment's order

    @cached_property
    def hash(self) -> str:
        return records.config_hash(records.configuration(self.setting))

    def config(self, run: Run) -> dict[str, Any]:
        """The configuration of a run: all values that determine its result. Its hash names the run.

        Corpora are given by name and fingerprint, because their paths do not change results.
        """
        setting = records.configuration(self.setting)
        for name in ("corpus", "scored"):
            if spec := (setting.get("data") or {}).get(name):
                setting["data"][name] = corpus_name(spec)
        data = None if self.dataset is None else task_for(self.setting).fingerprints(self.dataset)
        return {"cell": setting, "lane": records.configuration(run), "data": data}

    def with_runs(self, runs: Iterable[Run]) -> "Planned":
        """The setting with these runs."""
        return replace(self, runs={records.config_hash(self.config(run)): run for run in runs})

    def restored(self, run: Mapping[str, Any]) -> Run:
        """A run from its JSON."""
        return run if isinstance(self.setting, Calculation) else type(self.setting.example_run())(**run)


@dataclass(frozen=True)
class Sweep:
    """The content of sweep.json. It is created once and never changed."""

    experiment: str  # its name
    preset: str  # the preset
    config: dict[str, Any]  # the experiment's configuration as JSON
    datasets: dict[str, dict[str, Any] | None]  # label → description of the data, with fingerprints
    environment: dict[str, Any]  # `fingerprint.present()` where the sweep began
    packing: dict[str, Any]  # platform, workers, threads, lanes_per_program by label; also mesh
    settings: list[dict[str, Any]]  # label, steps, FLOPs of a run and the runs that do not depend on results
    source: str | None = None  # SHA-256 of the user's experiment file

    @property
    def hash(self) -> str:
        """The hash of the experiment, its configuration, the fingerprints of its data and the user's file."""
        prints = {k: d and [d[x] for x in sorted(d) if x.endswith("fingerprint")] for k, d in self.datasets.items()}
        file = {"source": self.source} if self.source else {}
        return records.config_hash({"experiment": self.experiment, "config": self.config, "data": prints} | file)

    def difference(self, other: "Sweep") -> str:
        """The first part in which this sweep and another with another hash differ."""
        if self.experiment != other.experiment:
            return f"experiment {self.experiment}, not {other.experiment}"
        for name in sorted(self.config | other.config):
            ours, others = self.config.get(name), other.config.get(name)
            if ours != others:
                return f"{records.field_of(name)}={json.dumps(ours)}, not {json.dumps(others)}"
        return "its experiment file differs" if self.source != other.source else "its data differ"

    @property
    def planned(self) -> int:
        """The number of runs that do not depend on results."""
        return sum(len(each["runs"]) for each in self.settings)

    def tracker(self, name: str, store: Store) -> trackers.Tracker:
        """A tracking tool's runs of this sweep: in the sweep's directory, or in the cache for a sweep in a bucket."""
        if isinstance(store.objects, Directory):
            folder = store.objects.place(f"{name}/runs").parent
        else:
            folder = cache_dir() / "tracking" / self.hash / name
        return trackers.tracker(name, folder, f"{self.experiment}-{self.preset}-{self.hash}")

    def as_json(self) -> dict[str, Any]:
        """The content of sweep.json without its digest."""
        values = asdict(self)
        values["tier"] = values.pop("preset")
        return json.loads(records.dumps(values | {"format": FORMAT, "hash": self.hash}))

    @classmethod
    def read(cls, store: Store) -> "Sweep | None":
        """The sweep of a store; None if it has none.

        Raises:
          InputError: sweep.json cannot be used.
        """
        content = store.objects.read(NAME)
        if content is None:
            return None
        try:
            held = json.loads(content)
            if not isinstance(held, dict) or held.pop("digest", None) != records.config_hash(held):
                raise ValueError("its content does not match its digest")
            if held.get("format") != FORMAT or not fits(held, _SHAPE):
                raise ValueError(f"its format is not {FORMAT}")
            _check(**held["packing"])
            if not all(data is None or isinstance(data, dict) for data in held["datasets"].values()):
                raise ValueError("its data are not described by objects")
            held["preset"] = held.pop("tier")
            return cls(**{field.name: held[field.name] for field in fields(cls)})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            remedy = f"remove it and repeat the `run` command with --out {store}: finished runs keep their records"
            raise InputError(f"{store}/{NAME} cannot be used: {error}; {remedy}") from None

    def create(self, store: Store) -> bool:
        """Creates sweep.json. Returns False if another process has created it."""
        content = self.as_json()
        content["digest"] = records.config_hash(content)
        return store.objects.create(NAME, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def _check(threads: int, lanes_per_program: Mapping[str, Any], mesh: Any = None, **_: Any) -> None:
    """Checks the packing of a sweep.

    Raises:
      ValueError: the mesh has other axes, or a size is not a whole number above 0.
    """
    numbers = [threads, *lanes_per_program.values()]
    if mesh is not None:
        if not isinstance(mesh, dict) or mesh.keys() != set(mesh_axes.AXES):
            raise ValueError("its mesh has other axes")
        numbers += mesh.values()
    if not all(fits(number, int) and number > 0 for number in numbers):
        raise ValueError("its packing has sizes that are not above 0")


def corpus_name(spec: str) -> str:
    """The name of a corpus without its path: "wikitext2" for "wikitext2:/path"."""
    return spec.partition(":")[0]


def prepared(settings: Sequence[SettingRuns]) -> dict[str, Any]:
    """Label → dataset, prepared and verified on this machine."""
    return {each.label: task_for(each.setting).prepare(cache_dir() / "data") for each in settings}


def plan(settings: Sequence[SettingRuns], datasets: Mapping[str, Any]) -> list[Planned]:
    """The settings with their data and their runs by hash.

    Args:
      datasets: label → dataset.
    """
    found = []
    for label, setting, runs, epochs in settings:
        task = task_for(setting)
        if epochs is not None and task.trained:
            trained: Any = setting
            setting = replace(trained, steps=max(1, round(task.steps(datasets[label], epochs))))
        found.append(Planned(label, setting, datasets[label], {}).with_runs(runs))
    return found


def with_follow_ups(experiment: Experiment, config: Any, datasets: Mapping[str, Any], store: Store) -> list[Planned]:
    """The settings with the runs that depend on results, as far as these results have records."""
    settings = experiment.settings(config)
    found = plan(settings, datasets)
    if experiment.follow_up is None:
        return found
    rows: dict[str, dict] = {}
    most = experiment.most_runs(config)
    while (runs := {run for planned in found for run in planned.runs}) > rows.keys() and len(runs) < most:
        rows |= {row["hash"]: row for row in store.read_records(runs - rows.keys())}
        if len(rows) < len(runs):
            break
        more = experiment.follow_up(records.table([rows[run] for run in sorted(rows)]), config)
        settings = [each._replace(runs=[*each.runs, *more.get(each.label, ())]) for each in settings]
        found = plan(settings, datasets)
        if experiment.limit is None:
            break
    return found


def described(setting: Any, held: Mapping[str, Any] | None) -> Any:
    """The dataset of a description in sweep.json, for its fingerprints and sizes. Its paths are not used.

    Raises:
      InputError: the description cannot be used.
    """
    try:
        return None if held is None else task_for(setting).dataset_class.from_dict(held)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{NAME} describes data that cannot be used ({error}); `run` it as a new sweep") from None


def check_data(sweep: Sweep, label: str, setting: Any, dataset: Any, place: object) -> None:
    """Checks that the data on this machine are those of the sweep.

    Raises:
      InputError: a fingerprint differs, or sweep.json describes data that cannot be used.
    """
    held = sweep.datasets.get(label)
    if held is None or dataset is None:
        return
    task = task_for(setting)
    present = task.fingerprints(dataset)
    for name, expected in task.fingerprints(described(setting, held)).items():
        if present[name] != expected:
            changed = f"{name} of {dataset.spec} changed since the sweep in {place} began"
            raise InputError(f"{changed}; restore it, or start a new sweep")
