"""Runs a sweep: experiment and preset → runs without a record → packs → executor, until no run is missing.

A sweep is a set of runs. A run is named by the hash of all that determines its result, and its record is created only
if it is absent. `run` trains the runs without a record, so the same command, or `resume`, continues a sweep. Two
drivers of one sweep waste compute and damage nothing.
"""

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lvp import experiments
from lvp.data.tokens.datasets import check_settings
from lvp.errors import InputError, unknown
from lvp.experiments.common import user_experiments
from lvp.experiments.common.experiment import Experiment, SettingRuns
from lvp.files import cache_dir
from lvp.files.buckets import is_address, split
from lvp.parallel.hardware import cores
from lvp.parallel.sharding import mesh_sizes, named_sizes
from lvp.sweeps import fingerprint, forecast, trackers
from lvp.sweeps.executors import DEVICES, Executor, Inline, Local
from lvp.sweeps.progress import News
from lvp.sweeps.store import Store
from lvp.sweeps.sweep import Planned, Sweep, check_data, described, plan, prepared, with_follow_ups
from lvp.sweeps.work import Job, Pack
from lvp.training import DataConfig, records, task_for

EXECUTORS = ("ray", "local", "inline")


@dataclass(frozen=True)
class Options:
    """How a sweep runs. No option is part of a run's hash.

    Raises:
      InputError: an option is unknown or out of range, two options exclude each other, or the package of the tracking
        tool is not installed.
    """

    executor: str = "ray"  # ray, local (processes of this machine), or inline (this process)
    ray_address: str | None = None  # address of a running cluster; "auto" is the cluster of this machine
    pack: int | None = None  # runs per program; None: one on CPU, by the model's size on accelerators
    threads: int | None = None  # cores per worker on CPU; None: one, or more if there are fewer runs than cores
    checkpoint_seconds: float = 30.0  # minimum time between checkpoints
    mesh: str | None = None  # sizes such as "fsdp=8": each run is trained on all devices of a machine
    allow_other_version: bool = False  # whether the environment may differ from that of the sweep's beginning
    track: str | None = None  # a key of `lvp.sweeps.trackers.TRACKERS`
    keep_weights: bool | None = None  # whether finished runs keep their parameters; None: as the experiment says

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)
        for name in ("pack", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if not 0 <= self.checkpoint_seconds < float("inf"):
            raise InputError(f"checkpoint_seconds must not be negative, got {self.checkpoint_seconds}")
        if self.threads and not self.ray_address and self.threads > cores():
            raise InputError(f"threads={self.threads} must be at most {cores()}, the cores of this machine")
        if self.ray_address and self.executor != "ray":
            raise InputError(f"--ray-address needs --executor ray, got {self.executor}")
        if self.mesh is not None:
            named_sizes(self.mesh)
            if (self.pack or 1) > 1:
                raise InputError(f"pack={self.pack}: a mesh trains one run at a time; omit --pack")
        if self.track is not None:
            trackers.known(self.track)

    def words(self) -> list[str]:
        """The command-line options that a command must repeat to continue the sweep."""
        words = [] if self.executor == "ray" else ["--executor", self.executor]
        words += ["--ray-address", self.ray_address] if self.ray_address else []
        words += ["--allow-other-version"] if self.allow_other_version else []
        keeps = {None: [], True: ["--keep-weights"], False: ["--no-keep-weights"]}[self.keep_weights]
        return words + keeps + (["--track", self.track] if self.track else [])


def run(
    experiment: str | Path,
    preset: str = "laptop",
    *,
    config: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    options: Options | None = None,
    dry_run: bool = False,
    budget: str | None = None,
    reuse: str | Path | None = None,
    quiet: bool = False,
    watch: Callable[[Any], None] | None = None,
    **values: Any,
):
    """Runs an experiment and returns its table.

    The table is a pandas.DataFrame with one row per run (see `lvp.training.records.table`). Runs that have a record in
    `out` are not trained again.

    Args:
      experiment, preset: the arguments of `python -m lvp.sweeps run`. An experiment's file (*.py) is executed.
      config: fields of the experiment's configuration. Their names may equal those of other arguments.
      out: directory of the sweep, or its address in a bucket (s3://BUCKET/PREFIX, gs://BUCKET/PREFIX); None is
        runs/EXPERIMENT-PRESET-HASH in the working directory.
      options: see `Options`. Its fields may also be given as keywords, for example `executor="local"`.
      dry_run: whether to print the forecast (runs, tokens, FLOPs, duration) and to return None.
      budget: the longest expected duration, such as "2h"; None: no limit. It excludes runs with a record in `reuse`.
      reuse: records of another sweep: its directory, or a JSON-lines file. Runs with the same configuration and data
        are not trained again.
      quiet: whether to print nothing.
      watch: called with the table of finished runs when it has grown, at most once per second, and at the end.
      values: fields of the experiment's configuration, which replace those of `config`, and fields of `options`.

    Raises:
      InputError: an argument, file or directory cannot be used, or `out` holds another sweep. Nothing is trained.
      RuntimeError: a run or a function of the experiment failed. Finished runs keep their records.
      KeyboardInterrupt: the sweep was interrupted. Finished runs keep their records.
      Exception: `watch` failed. Its exception leaves `run` after the runs have ended.
    """
    chosen = {name: values.pop(name) for name in list(values) if name in Options.__dataclass_fields__}
    options = replace(options or Options(), **chosen)
    loaded, resolved, source = _checked(experiment, preset, {**(config or {}), **values})
    settings = loaded.settings(resolved)
    say = _printer(quiet and not dry_run)
    earlier: Sequence[Mapping[str, Any]] = [] if reuse is None else _records_of(Path(reuse))
    if out is not None:
        Store(out).check()
    say(f"{loaded.name}, preset {preset}, corpus {resolved.corpus}: {loaded.question}")
    say(*_forecast(loaded, resolved, settings, preset, options, budget, earlier))
    if dry_run:
        _check_corpus(settings)
        return None
    datasets = prepared(settings)
    # The sweep may continue in another working directory, so the path must be absolute.
    if specs := [data.spec for data in datasets.values() if data is not None]:
        resolved = replace(resolved, corpus=specs[0])
    draft = Sweep(
        loaded.name,
        preset,
        experiments.to_dict(resolved, loaded.presets[preset]),
        {label: data and data.to_dict() for label, data in datasets.items()},
        fingerprint.present(),
        {},
        [],
        source and source.sha256,
    )
    store = Store(out if out is not None else Path("runs") / f"{loaded.name}-{preset}-{draft.hash}")
    return _Session(loaded, resolved, datasets, store, draft, options, quiet, source, earlier, watch).run(
        _same(draft, store)
    )


def resume(
    out: str | Path,
    *,
    options: Options | None = None,
    experiment: str | Path | None = None,
    quiet: bool = False,
    watch: Callable[[Any], None] | None = None,
    **chosen: Any,
):
    """Continues the sweep in `out`, a directory or an address, and returns its table, as `run` does.

    Args:
      experiment: the user's experiment file, if the sweep has one. The copy in `out` is never executed.
      options, quiet, watch: as for `run`.
      chosen: fields of `Options`.

    Raises:
      InputError: `out` holds no sweep, the experiment's file is missing or has changed, or the data, the code or the
        environment differ from those of the sweep's beginning. Nothing is trained.
      RuntimeError: a run or a function of the experiment failed. Finished runs keep their records.
      KeyboardInterrupt: the sweep was interrupted. Finished runs keep their records.
      Exception: `watch` failed. Its exception leaves `resume` after the runs have ended.
    """
    options = replace(options or Options(), **chosen)
    store, sweep, loaded, source = opened(out, experiment)
    if source is not None and source.sha256 != sweep.source:
        raise InputError(
            f"{source.path} changed since the sweep in {store} began; restore it, or `run` it as a new sweep"
        )
    config = experiments.restored(loaded, sweep.preset, sweep.config)
    settings = loaded.settings(config)
    datasets = prepared(settings)
    for each in settings:
        check_data(sweep, each.label, each.setting, datasets[each.label], store)
    return _Session(loaded, config, datasets, store, sweep, options, quiet, source, (), watch).run(sweep)


def existing(store: Store) -> Sweep:
    """The sweep in a store.

    Raises:
      InputError: the store holds no sweep, or its sweep.json cannot be used.
    """
    sweep = Sweep.read(store)
    if sweep is None:
        if found := len(store.recorded()):
            remedy = f"`run` with --out {store} and the sweep's configuration continues from its {found} records"
            raise InputError(f"{store} has no sweep.json; {remedy}")
        raise InputError(f"{store} has no sweep.json: it is not the directory of a sweep")
    return sweep


def opened(out: str | Path, file: str | Path | None) -> tuple[Store, Sweep, Experiment, user_experiments.Source | None]:
    """Store, sweep and experiment in `out`, and the source of a user's experiment, whose file must be given.

    A directory may come from somebody else. Its content never decides which code is executed.

    Raises:
      InputError: `out` holds no sweep, the file is missing, cannot be used or defines another experiment, or the sweep
        is of lvp's own experiment and a file is given.
    """
    store = Store(out)
    sweep = existing(store)
    if sweep.source is None:
        if file is not None:
            raise InputError(f"{store} is a sweep of lvp's own experiment {sweep.experiment}: omit --experiment")
        return store, sweep, experiments.load(sweep.experiment), None
    if file is None:
        raise InputError(
            f"{store} is a sweep of a user's experiment: give its file, --experiment FILE.py (experiment.py is a copy)"
        )
    source = user_experiments.source(file)
    loaded = experiments.load(str(file), source)
    if loaded.name != sweep.experiment:
        raise InputError(
            f"--experiment {file} defines {loaded.name}, but {store} is a sweep of {sweep.experiment}; name its file"
        )
    return store, sweep, loaded, source


def resume_command(store: Store, *words: str) -> str:
    """The shell command that continues a sweep, with further options."""
    return shlex.join(["python", "-m", "lvp.sweeps", "resume", str(store), *words])


def _checked(experiment: str | Path, preset: str, config: Mapping[str, Any]):
    """The experiment, its configuration and its source.

    Raises:
      InputError: an argument cannot be used. Nothing has been printed or written.
    """
    source = user_experiments.source(experiment) if user_experiments.is_file(str(experiment)) else None
    loaded = experiments.load(str(experiment), source)
    resolved = experiments.configured(loaded, preset, config)
    if is_address(place := resolved.corpus.partition(":")[2]):
        split(place)  # refuses credentials before they are printed
    settings = loaded.settings(resolved)
    user_experiments.check_settings(settings)
    for each in settings:
        task_for(each.setting).check_runs(each.runs)
        vocab, of = getattr(each.setting, "vocab", None), each.setting.data
        if isinstance(of, DataConfig) and vocab is not None:
            check_settings(of.corpus, vocab, of.slice_bytes, of.valid_bytes)
    return loaded, resolved, source


def _same(draft: Sweep, store: Store) -> Sweep | None:
    """The sweep of a store; None for a new store.

    Raises:
      InputError: the store holds another sweep or other files.
    """
    names = set(store.objects.names())  # before sweep.json is read: another driver may create it in between
    found = Sweep.read(store)
    if found is None:
        # Records without sweep.json are those of a sweep whose sweep.json was lost.
        if names and names.isdisjoint(("records", "programs")):
            raise InputError(f"--out {store} holds other files ({min(names)}); name an empty or new directory")
    elif found.hash != draft.hash:
        continued = f"continue it with `{resume_command(store)}`"
        if found.source is not None and found.source != draft.source:
            continued = "restore the experiment's file and repeat the command"
        raise InputError(
            f"{store} holds another sweep: {found.experiment}, preset {found.preset} ({found.difference(draft)}); name "
            f"another --out, or {continued}"
        )
    return found


def _records_of(place: Path) -> list[Mapping[str, Any]]:
    """The records of a file, of a directory of records, or of a sweep's directory.

    Raises:
      InputError: there are none.
    """
    found = records.read(place / "records" if (place / "records").is_dir() else place)
    if not found:
        raise InputError(f"--reuse {place} has no records: name a JSON-lines file or the directory of a sweep")
    return [records.in_current_form(row) for row in found]


def _printer(quiet: bool) -> Callable[..., None]:
    return (lambda *_: None) if quiet else (lambda *lines: print(*lines, sep="\n", flush=True))


def _check_corpus(settings: Sequence[SettingRuns]) -> None:
    """Checks the corpora that are in files or in a bucket.

    Raises:
      InputError: a corpus is missing or empty.
    """
    # The first setting of each corpus, as `prepared` would meet it.
    for setting in {
        c.setting.data.corpus: c.setting for c in reversed(settings) if c.setting.data is not None
    }.values():
        task_for(setting).check_data(cache_dir() / "data")


def _forecast(
    loaded: Experiment,
    config: Any,
    settings: Sequence[SettingRuns],
    preset: str,
    options: Options,
    budget: str | None,
    earlier: Sequence[Mapping[str, Any]],
) -> list[str]:
    """The lines about the cost of a sweep.

    Raises:
      InputError: the budget is no duration, or is less than the expected duration.
    """
    accelerator = preset in ("gpu", "paper")
    one = accelerator or options.mesh or options.executor == "inline"
    workers = 1 if one else max(1, cores() // (options.threads or 1))
    lines, most = [forecast.table(settings)], settings if loaded.limit is None else loaded.limit(config)
    planned = sum(len(each.runs) for each in settings)
    if earlier:
        settings = most = _without_records(settings, earlier)
        lines.append(f"{sum(len(each.runs) for each in settings)} of these runs have no record in --reuse")
    elif loaded.follow_up is not None and (total := sum(len(each.runs) for each in most)) != planned:
        runs = "more" if loaded.limit is None else f"at most {total}"
        lines.append(f"{runs} runs with those that depend on results")
    time_ = forecast.expected(most, workers, accelerator)
    on = f"{workers} worker{'s' * (workers > 1)}"
    if accelerator and not options.ray_address and not any(map(os.path.exists, DEVICES)):
        lines.append(f"preset {preset} is for accelerators, and this machine has none: it takes far longer here")
    lines.append(f"expected: {forecast.duration(time_.seconds)} on {on} ({time_.basis})")
    if budget is not None and time_.seconds > forecast.seconds_of(budget):
        raise InputError(
            f"budget={budget} is less than the expected {forecast.duration(time_.seconds)} ({time_.basis}): use fewer "
            "runs or steps, or a larger budget"
        )
    return lines


def _without_records(settings: Sequence[SettingRuns], earlier: Sequence[Mapping[str, Any]]) -> list[SettingRuns]:
    """The settings with the runs that have no record. Prepares the data, whose fingerprints name the runs."""
    known, left = {row["hash"] for row in earlier}, []
    for each, planned in zip(settings, plan(settings, prepared(settings)), strict=True):
        left.append(each._replace(runs=[run for name, run in planned.runs.items() if name not in known]))
    return left


@dataclass
class _Session:
    """One command that trains the runs of a sweep without a record."""

    experiment: Experiment
    config: Any  # the experiment's configuration object
    datasets: Mapping[str, Any]  # label → dataset on this machine
    store: Store
    sweep: Sweep  # without packing and settings if the store is new
    options: Options
    quiet: bool
    source: user_experiments.Source | None
    earlier: Sequence[Mapping[str, Any]]  # records of other sweeps
    watch: Callable[[Any], None] | None
    raised: Exception | None = None  # the first exception of `watch`, which is raised at the end

    @property
    def say(self) -> Callable[..., None]:
        """Prints lines, unless the command is quiet."""
        return _printer(self.quiet)

    def run(self, found: Sweep | None):
        """Trains what is missing, draws the results and returns the table.

        Args:
          found: the sweep in the store; None if the store is new.
        """
        if found is not None:
            self.sweep = found
            self._check_labels()
            self._check_environment()
            self.store.objects.sweep_up()
            settings = self._settings()
            planned, missing = sum(len(each.runs) for each in settings), len(self._missing(settings))
            self.say(f"{self.sweep.experiment}: {planned - missing} of {planned} runs have a record")
        self.store.set_damaged_aside()
        failures: dict[str, str] = {}
        if found is None or self._missing(self._settings()):
            try:
                failures = self._train(found is None)
            except KeyboardInterrupt:
                with contextlib.suppress(Exception):  # the interrupt is reported
                    self._draw()
                again = resume_command(self.store, *self._words())
                raise KeyboardInterrupt(f"interrupted; `{again}` continues from here") from None
        else:
            self.say("all runs have records: nothing to train")
        try:
            table = self._draw()
        except (RuntimeError, OSError) as error:
            if not failures:  # the failed runs are reported
                raise
            self.say(str(error))
        if failures:
            first, *more = sorted(set(failures.values()))
            others = f" (and {len(more)} more reasons)" if more else ""
            again = resume_command(self.store, *self._words())
            raise RuntimeError(f"{len(failures)} runs failed: {first}{others}; `{again}` tries again")
        if self.raised is not None:
            raise self.raised
        return table

    def _words(self) -> list[str]:
        file = ["--experiment", self.source.path] if self.source is not None else []
        return self.options.words() + file

    def _settings(self) -> list[Planned]:
        return with_follow_ups(self.experiment, self.config, self.datasets, self.store)

    def _missing(self, found: Sequence[Planned]) -> set[str]:
        """The runs without a record."""
        return {run for planned in found for run in planned.runs} - self.store.recorded()

    def _check_labels(self) -> None:
        """Checks the labels of the experiment's settings.

        Raises:
          InputError: the experiment has a setting that the sweep lacks.
        """
        labels = {each.label for each in self.experiment.settings(self.config)}
        if others := labels - self.sweep.packing["lanes_per_program"].keys():
            raise InputError(
                f"{self.store} began without the setting {min(others)}: use the code of its beginning, or start a new "
                "sweep"
            )

    def _check_environment(self) -> None:
        """Checks the environment of this process.

        Raises:
          InputError: the environment differs from that of the sweep's beginning, and no option allows it.
        """
        present = fingerprint.present()
        if self.options.ray_address:  # the driver trains nothing
            del present["machine"]
        if parts := fingerprint.differences(self.sweep.environment, present):
            began = f"{self.store} began with {', '.join(parts)}"
            if not self.options.allow_other_version:
                raise InputError(
                    f"{began}; results may not be bit-exact: restore the first environment, or give "
                    "--allow-other-version"
                )
            self.say(f"{began}; further runs may not be bit-exact, and their records name the present environment")

    def _begin(self, executor: Executor) -> None:
        """Fixes the packing, and creates sweep.json."""
        settings = self.experiment.settings(self.config)
        packing = self._packing(executor, settings)
        fixed = [
            {"label": s.label, "steps": s.setting.steps, "flops": float(s.setting.flops_per_run), "runs": list(s.runs)}
            for s in plan(settings, self.datasets)
        ]
        self.sweep = replace(self.sweep, packing=packing, settings=fixed)
        try:
            if not self.sweep.create(self.store):  # another driver has just created it
                self.sweep = existing(self.store)
            if self.source is not None:  # after sweep.json, without which a directory with a file is not a sweep's
                self.store.objects.write("experiment.py", Path(self.source.path).read_bytes())
        except OSError as error:
            raise InputError(f"--out {self.store} cannot be written: {error.strerror}; name another place") from None

    def _packing(self, executor: Executor, settings: Sequence[SettingRuns]) -> dict[str, Any]:
        """The packing by the options.

        Raises:
          InputError: the mesh does not fit the devices or the settings.
        """
        machines, sizes = executor.machines(), None
        if self.options.mesh is not None:
            sizes = mesh_sizes(self.options.mesh, machines.devices)
            for each in settings:
                task_for(each.setting).check_mesh(sizes)
        return forecast.packing(settings, machines, pack=self.options.pack, threads=self.options.threads, mesh=sizes)

    def _train(self, new: bool) -> dict[str, str]:
        """Trains the runs without a record. Returns run → reason of the failed runs."""
        if self.options.executor == "ray" and not self.options.ray_address:
            self.say("starting Ray (10 to 60 seconds)")
        executor = _executor(self.options)
        try:
            if new:
                self._begin(executor)
            elif self.options.pack or self.options.threads or self.options.mesh:
                self._repack(executor)
            if self.options.track is not None:  # before the workers: two processes must not make MLflow's experiment
                self.sweep.tracker(self.options.track, self.store).close()
            failures: dict[str, str] = {}
            before: set[str] = set()
            while True:
                self._reuse()
                found = self._settings()
                missing = self._missing(found)
                # By name: the listing of a bucket may omit records that were just written.
                missing -= {run for run in missing & before if self.store.record(run)}
                if not missing or failures or missing == before:
                    return failures or dict.fromkeys(missing, "no record was written")
                if before:
                    self.say(f"{len(missing)} runs that depend on these results")
                failures, before = self._execute(executor, found, missing), missing
        finally:
            executor.close()

    def _repack(self, executor: Executor) -> None:
        """Uses another packing for this session.

        Raises:
          InputError: the packing differs from that of the sweep, and no option allows it.
        """
        packing = self._packing(executor, self.experiment.settings(self.config))
        packing["workers"] = self.sweep.packing["workers"]  # no bit depends on their number
        if packing != self.sweep.packing and not self.options.allow_other_version:
            raise InputError(
                f"{self.store} keeps its packing, on which bits depend: omit --pack, --threads and --mesh, or give "
                "--allow-other-version"
            )
        self.sweep = replace(self.sweep, packing=packing)

    def _reuse(self) -> None:
        """Adds records of other sweeps for runs without a record, and for the runs that these records add."""
        while self.earlier:
            missing = self._missing(self._settings())
            taken = [row for row in self.earlier if row["hash"] in missing and self.store.add_record(row)]
            if not taken:
                return
            commits = ", ".join(sorted({str(row["provenance"]["commit"]) for row in taken}))
            self.say(f"{len(taken)} runs have a record of another sweep (commit {commits})")

    def _execute(self, executor: Executor, found: Sequence[Planned], missing: set[str]) -> dict[str, str]:
        packing = self.sweep.packing
        cpu, mesh = packing["platform"] == "cpu", packing.get("mesh")
        chosen = self.options.keep_weights
        text = Path(self.source.path).read_bytes().decode(errors="surrogateescape") if self.source else ""
        job = Job(
            place=str(self.store),
            source={"path": self.source.path, "content": text} if self.source else None,
            threads=packing["threads"] if cpu and mesh is None and self.options.executor != "inline" else None,
            mesh=mesh,
            checkpoint_seconds=self.options.checkpoint_seconds,
            allow_other_version=self.options.allow_other_version,
            track=self.options.track,
            keep_weights=self.experiment.keep_weights if chosen is None else chosen,
        )
        workers = forecast.workers(executor.machines(), packing)  # the machines may differ from those of the beginning
        packs = packs_of(found, packing["lanes_per_program"], workers, missing)
        news = News(self.store, found, missing, self.quiet, self.watch)
        try:
            with _acknowledged(self.quiet):
                executor.run(packs, job, workers, news.report)
        finally:
            news.end()
        self.raised = self.raised or news.raised
        return news.failures

    def _draw(self):
        """Writes table, figure and claims, shows the table to `watch`, and returns it."""
        table = draw(self.store, self.sweep, self.experiment, self.config, self.say)
        if self.watch is not None and self.raised is None:
            self.watch(table)
        return table


def planned_runs(store: Store, sweep: Sweep) -> set[str]:
    """The hashes of all runs of a sweep of lvp's own experiment. Some runs depend on the results in the store."""
    loaded = experiments.load(sweep.experiment)
    config = experiments.restored(loaded, sweep.preset, sweep.config)
    datasets = {each.label: described(each.setting, sweep.datasets.get(each.label)) for each in loaded.settings(config)}
    return {run for planned in with_follow_ups(loaded, config, datasets, store) for run in planned.runs}


def draw(store: Store, sweep: Sweep, experiment: Experiment, config: Any, say: Callable[..., None]):
    """Writes the table, the figure and the claims of a sweep's finished runs, and returns the table.

    Raises:
      RuntimeError: a function of the experiment failed. The files of the other functions are written.
    """
    from lvp.sweeps import report  # pandas, SciPy and matplotlib, which training does not need

    rows = store.read_records()
    made = report.Report(experiment, config, sweep.preset, rows, max(sweep.planned, len(rows)))
    files, text, errors = made.files()
    for name, content in files.items():
        store.objects.write(name, content)
    say(text, *(f"{name.partition('.')[0] + ':':<7} {store}/{name}" for name in files if not name.endswith(".svg")))
    if errors:
        raise RuntimeError("; ".join(errors))
    return records.table(rows)


def packs_of(found: Sequence[Planned], sizes: Mapping[str, int], workers: int, missing: set[str]) -> list[Pack]:
    """The packs with a missing run.

    The runs of a pack stay together, finished ones among them: bits depend on the pack. The most expensive settings
    come first. Packs alternate between as many settings as there are workers, so that workers seldom compile the same
    program at the same time.
    """
    queues = []
    for planned in sorted(found, key=lambda s: -s.setting.flops_per_run):
        runs, size = list(planned.runs.items()), sizes[planned.label]
        groups = (dict(runs[i : i + size]) for i in range(0, len(runs), size))
        queues.append([Pack(planned.label, group, size) for group in groups if not missing.isdisjoint(group)])
    packs: list[Pack] = []
    for start in range(0, len(queues), workers):
        turn = queues[start : start + workers]
        while any(turn):
            packs += [queue.pop(0) for queue in turn if queue]
    return packs


@contextlib.contextmanager
def _acknowledged(quiet: bool) -> Iterator[None]:
    """Prints a line as soon as Ctrl-C or SIGTERM arrives: workers may take seconds to save. The handlers stay as they
    are, because Tune has its own."""
    if quiet or threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def listen() -> None:
        while number := os.read(reader, 1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                print("\nstopping: workers save their runs", file=sys.stderr, flush=True)
                break

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        listener.join()
        os.close(reader)


def _executor(options: Options) -> Executor:
    if options.executor == "inline":
        return Inline()
    if options.executor == "local":
        return Local()
    if options.ray_address is None and "ray" not in sys.modules:
        # Ray then listens on 127.0.0.1 alone: anyone who can reach Ray's ports can run code.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    from lvp.sweeps.ray_tune import RayTune  # the other executors work without Ray

    return RayTune(options.ray_address)
