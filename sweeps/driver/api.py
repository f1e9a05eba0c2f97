"""Runs a sweep from configuration to table; the command line and notebooks call it."""

import contextlib
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from jax._src import xla_bridge

import experiments
from experiments.common import user_experiments
from lvp.data.text import corpora
from lvp.errors import InputError
from lvp.files import append_line, cache_dir, log_entries, write_whole
from lvp.parallel.hardware import cores
from lvp.parallel.sharding import named_sizes
from lvp.training import records
from sweeps.driver import calibration, forecast, lane_index
from sweeps.driver.directory_watch import DirectoryWatch
from sweeps.driver.lock import only_driver
from sweeps.driver.manifest import NAME, Manifest, Unusable, resume_command
from sweeps.driver.options import DEFAULTS, NO_MESH, Options
from sweeps.driver.packing import measured
from sweeps.driver.progress import Progress, watched
from sweeps.driver.status import text as status_text
from sweeps.driver.trials import trials
from sweeps.executors.local import LocalExecutor
from sweeps.reporting import results, tracking
from sweeps.worker import cpu_affinity, environment
from sweeps.worker.stop import Reason, lost
from sweeps.worker.tasks import task_for
from sweeps.worker.worker import Settings


def run(
    experiment: str | Path,
    tier: str = "laptop",
    *,
    out: str | Path | None = None,
    options: Options = DEFAULTS,
    dry_run: bool = False,
    quiet: bool = False,
    watch: Callable[[Any], None] | None = None,
    **config: Any,
):
    """Runs an experiment and returns its tidy table (pandas.DataFrame, one row a lane; see
    `lvp.training.records.table`).

    Args:
      experiment, tier: as `python -m sweeps run` takes them. A file (*.py) is executed.
      out: directory of the sweep; None is runs/EXPERIMENT-TIER-HASH under the working directory. One that holds the
        same sweep is continued; one that holds another sweep, or anything else, raises InputError.
      options: see `Options`. `executor=…` and the like may also be given directly as keywords.
      dry_run: prints cells, lanes, tokens, FLOPs and expected hours, and returns None.
      quiet: print nothing.
      watch: called with the table of finished lanes whenever there are more, at most once a second, in another thread.
        An exception in it is raised here after the sweep has ended.
      config: keys of the experiment's configuration.

    Raises InputError for anything unusable, before anything is trained; RuntimeError when lanes failed, after all
    others have finished; KeyboardInterrupt when interrupted, with everything finished kept.
    """
    chosen = {k: config.pop(k) for k in list(config) if k in Options.__dataclass_fields__}
    options = replace(options, **chosen)
    return start(experiment, tier, config, out=out, options=options, dry_run=dry_run, quiet=quiet, watch=watch)


def start(
    experiment: str | Path,
    tier: str,
    config: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    options: Options = DEFAULTS,
    dry_run: bool = False,
    quiet: bool = False,
    watch: Callable[[Any], None] | None = None,
):
    """As `run`, with the experiment's configuration as a mapping. Its keys may equal names of options."""
    source = user_experiments.source(experiment) if user_experiments.is_file(str(experiment)) else None
    loaded = experiments.load(str(experiment), source)
    resolved = experiments.configured(loaded, tier, config)
    cells = loaded.cells(resolved)
    user_experiments.check_cells(cells)
    for planned in cells:
        task_for(planned.cell).check_lanes(planned.lanes)
    say = _printer(quiet and not dry_run)
    say(f"{loaded.name}, tier {tier}, corpus {resolved.corpus}: {loaded.question}")
    kind = "accelerator" if tier in ("gpu", "paper") else "cpu"
    devices = math.prod(named_sizes(options.mesh).values()) if options.mesh not in (None, NO_MESH) else 1
    workers = 1 if kind == "accelerator" or devices > 1 else cores()
    # The measured speed is that of this machine's cores.
    speed = calibration.read() if kind == "cpu" and devices == 1 else calibration.Speed()
    say(forecast.forecast(cells, workers, speed, kind, devices))
    if loaded.follow_up is not None:
        say("lanes that follow from these results come on top")
    if out is not None:
        _check_directory(Path(out))
    if dry_run:
        _check_corpus(cells)
        return None
    datasets = {c.label: _dataset(c.cell) for c in cells}
    # A relative path would mean another file where `resume` starts in another directory.
    if specs := [d.spec for d in datasets.values() if d is not None]:
        resolved = replace(resolved, corpus=specs[0])
    manifest = Manifest(
        out=Path(),
        experiment=loaded.name,
        tier=tier,
        config=experiments.to_dict(resolved),
        datasets={label: d and d.to_dict() for label, d in datasets.items()},
        source=source,
        environment=environment.present(),
    )
    out = Path(out) if out is not None else Path("runs") / f"{loaded.name}-{tier}-{manifest.hash}"
    manifest = replace(manifest, out=out.absolute())
    _existing(manifest)  # a directory that holds anything else is refused before its lock file is written
    try:
        manifest.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from None
    with _driving(manifest.out, options):
        settled = _settle(manifest, say)
        with watched(settled, watch):
            return _continue(settled, options, quiet)


def resume(out: str | Path, *, options: Options = DEFAULTS, quiet: bool = False):
    """Continues the sweep in `out` and returns its table, as `run` does. Nothing that finished is done again."""
    manifest, _ = Manifest.recover(Path(out))
    datasets = {entry.label: _dataset(entry.cell) for entry in manifest.cells}
    for entry in (e for e in manifest.cells if e.dataset is not None):
        task, dataset = task_for(entry.cell), datasets[entry.label]
        for name, fingerprint in task.fingerprints(entry.dataset).items():
            if task.fingerprints(dataset)[name] != fingerprint:
                raise InputError(f"{name} of {dataset.spec}: not the one that the sweep in {out} began with")
    places: dict[str, dict[str, Any] | None] = {label: d and d.to_dict() for label, d in datasets.items()}
    with _driving(manifest.out, options):
        manifest, problem = Manifest.recover(manifest.out)  # another driver may have written it meanwhile
        return _continue(_begun(manifest, problem, _printer(quiet), datasets=places), options, quiet)


def _begun(manifest: Manifest, problem: str | None, say, **places: Any) -> Manifest:
    """The manifest with the present places of its datasets and its experiment's file, written. A cache may have moved,
    and manifest.json may have a problem."""
    if problem:
        say(f"{problem}: restored from its copy")
    if any(getattr(manifest, name) != place for name, place in places.items()):
        manifest = replace(manifest, **places)
    manifest.begin()
    return manifest


@contextlib.contextmanager
def _driving(out: Path, options: Options) -> Iterator[None]:
    """Holds the sweep's directory for the block. An interrupt names the command that goes on, however often the user
    interrupts."""
    with only_driver(out):
        try:
            yield
        except KeyboardInterrupt:
            again = resume_command(out, *options.where())
            raise KeyboardInterrupt(f"interrupted; `{again}` goes on from here") from None


def _dataset(cell):
    return task_for(cell).prepare(cache_dir() / "data")


def _check_corpus(cells) -> None:
    """Raises the InputError of `_dataset` for a local corpus that is missing or empty.

    Trains no tokenizer and downloads nothing.
    """
    for spec, cell in {c.cell.data.corpus: c.cell for c in cells if c.cell.data is not None}.items():
        kind, _, path = spec.partition(":")
        if path and kind in ("text", "wikitext2"):
            corpora.source(spec, cache=cache_dir() / "data")
        elif path and kind != "tfds" or kind not in ("python-docs", "wikitext2", "tfds", "zipf", "digits", "cifar10"):
            _dataset(cell)


def _check_directory(out: Path) -> None:
    """InputError where `out` is a file, or cannot be written."""
    parent = out.absolute()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"--out {out}: {parent} is not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {parent} cannot be written")


def _existing(manifest: Manifest) -> tuple[Manifest | None, str | None]:
    """The manifest of the same sweep in its directory, and the problem with manifest.json if its copy was read. None
    for a new directory, or one that lost both. InputError where the directory holds anything else."""
    out = manifest.out
    _check_directory(out)
    unusable = None
    try:
        existing, problem = Manifest.recover(out)
    except Unusable as error:
        unusable = error
    else:
        if existing.hash != manifest.hash:
            raise InputError(
                f"{out} holds another sweep: {existing.experiment}, tier {existing.tier}, hash {existing.hash} (this "
                f"one is {manifest.hash}); name another --out, or continue it with `{resume_command(out)}`"
            )
        return existing, problem
    # A driver that was killed early leaves hidden files and empty directories.
    used = out.is_dir() and any(not (p.name[0] == "." or (p.is_dir() and not any(p.iterdir()))) for p in out.iterdir())
    if used and not any(record.get("sweep") == manifest.hash for record in manifest.read_records()):
        if (out / NAME).exists():
            raise unusable
        raise InputError(f"--out {out} holds files that are not of this sweep; name an empty or new directory")
    return None, None


def _settle(manifest: Manifest, say) -> Manifest:
    """The manifest of the same sweep in its directory, or this one; written, with a copy of the experiment's file."""
    existing, problem = _existing(manifest)
    try:
        settled = _begun(existing or manifest, problem, say, datasets=manifest.datasets, source=manifest.source)
        if settled.source is not None:
            user_experiments.keep(settled.source, settled.out / user_experiments.KEPT)
    except OSError as error:
        raise InputError(f"--out {manifest.out} cannot be written: {error.strerror}") from None
    return settled


def _printer(quiet: bool):
    return (lambda *_: None) if quiet else (lambda *lines: print(*lines, sep="\n", flush=True))


def _holds_accelerator() -> str | None:
    """The platform of the accelerator that this process has initialised; None without one."""
    # The public functions would initialise the accelerator.
    if not xla_bridge.backends_are_initialized():
        return None
    platform = jax.default_backend()
    return None if platform == "cpu" else platform


def _executor(out: Path, options: Options, settings: Settings, say):
    held = _holds_accelerator()
    if held:
        say(f"this process already holds the {held.upper()}, which workers cannot share: running in this process")
    if options.executor == "local" or held:
        return LocalExecutor(out, in_process=held is not None)
    from sweeps.executors.ray_tune import RayExecutor  # the local executor needs no Ray

    return RayExecutor(out, options.ray_address, settings)


def _continue(manifest: Manifest, options: Options, quiet: bool):
    """Runs a sweep's unfinished lanes, draws its figure and returns its table. The caller holds the directory."""
    say = _printer(quiet)
    failures: list[str] = []
    interrupted = False
    _write_lane_index(manifest)
    for problem in manifest.set_damaged_aside():
        say(f"{problem}: set aside, its lane is trained again")
    if len(manifest.finished()) == manifest.num_lanes:
        table = results.draw(manifest, _printer(quiet=True))
        say(f"every lane has a record: nothing is left to do in {manifest.out}")
        if options.track:
            _track(manifest, options.track, say)
        return table
    manifest, failures, interrupted = _work(manifest, options, quiet, say)
    table = None
    try:
        table = results.draw(manifest, say)
        if options.track:
            _track(manifest, options.track, say)
    except Exception as error:
        if not (interrupted or failures):
            raise
        say(f"{type(error).__name__}: {error}")  # the failures below matter more
    if interrupted:
        raise KeyboardInterrupt
    again = resume_command(manifest.out, *options.where())
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise RuntimeError(f"{failures[0]}{more}; `{again}` tries again")
    if missing := manifest.num_lanes - len(manifest.finished()):
        raise RuntimeError(f"{missing} lanes have no record; `{again}` tries again")
    return table


def _write_lane_index(manifest: Manifest) -> None:
    with contextlib.suppress(OSError):  # on a full disk `status` works without it, but slower
        lane_index.write(manifest)


def _in_its_environment(manifest: Manifest, options: Options, say) -> tuple[Manifest, dict[str, Any]]:
    """The manifest with the environment that its sweep began with, and the present one, which workers must have too.

    InputError where they differ and the options do not allow it.
    """
    present = environment.present()
    if manifest.environment is None:
        say(f"{manifest.out} does not say in which environment it began: its other lanes get the present one")
        manifest = replace(manifest, environment=present)
        manifest.write()
    if options.ray_address:
        del present["machine"]  # the driver trains nothing
    if parts := environment.differences(manifest.environment or present, present):
        began = f"{manifest.out} began with {', '.join(parts)}"
        if not options.allow_other_version:
            raise InputError(f"{began}: other bits are possible; go on with the first, or give --allow-other-version")
        say(f"{began}: lanes from here on may have other bits, and their records name the present one")
    return manifest, present


def _work(manifest: Manifest, options: Options, quiet: bool, say) -> tuple[Manifest, list[str], bool]:
    """Runs the unfinished lanes. Returns the manifest with its packing, the failures of trials whose lanes have no
    record, and whether the user interrupted. RuntimeError where the directory was moved or unmounted meanwhile."""
    manifest, present = _in_its_environment(manifest, options, say)
    session = json.dumps({"time": time.time(), "host": socket.gethostname()}) + "\n"
    write_whole(manifest.session_path, session)
    try:
        with DirectoryWatch(manifest, session):
            return _work_in_session(manifest, session, present, options, quiet, say)
    finally:
        if lost(manifest, session) is Reason.MOVED:
            raise RuntimeError(
                f"{manifest.out} was moved, removed or unmounted: the sweep has stopped; "
                "`python -m sweeps resume DIR` with its present place goes on"
            ) from None


def _work_in_session(
    manifest: Manifest, session: str, present: Mapping[str, Any], options: Options, quiet: bool, say
) -> tuple[Manifest, list[str], bool]:
    started, failures, interrupted = time.perf_counter(), [], False
    manifest.failures_path.unlink(missing_ok=True)
    settings = Settings(
        threads=options.threads or 1,
        compile_cache=str(cache_dir() / "xla"),
        checkpoint_seconds=options.checkpoint_seconds,
        environment=present,
        session=session,
    )
    executor = _executor(manifest.out, options, settings, say)
    try:
        executor.check_file_system(manifest)
        manifest = _packed(manifest, executor, options, settings, say)
        manifest.make_lane_directories()
        failures = _execute(manifest, executor, settings, options.track, quiet, say)
        with_more = replace(manifest)  # reads the cells again, with lanes that follow from these results
        if not failures and with_more.num_lanes > manifest.num_lanes:
            say(f"{with_more.num_lanes - manifest.num_lanes} lanes follow from these results")
            manifest = with_more
            _write_lane_index(manifest)
            failures = _execute(manifest, executor, settings, options.track, quiet, say)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        executor.close()
    seconds = time.perf_counter() - started
    if not lost(manifest, session):
        if not (interrupted or failures):
            _keep_speed(manifest, seconds)
        said = {"seconds": round(seconds, 1), "interrupted": interrupted}
        append_line(manifest.out / "sessions.jsonl", json.dumps(said))
    say(f"ran for {forecast.duration(seconds)}")
    return manifest, failures, interrupted


def _keep_speed(manifest: Manifest, seconds: float) -> None:
    """Keeps this session's speed for later forecasts, if it trained the whole sweep on this machine's cores."""
    packing, trials_done = manifest.packing, _trials_done(manifest)
    one_session = not (manifest.out / "sessions.jsonl").exists()
    if packing and packing["platform"] == "cpu" and "mesh" not in packing and trials_done and one_session:
        cells = [entry.cell for entry in manifest.cells]
        with contextlib.suppress(OSError):  # a forecast is not worth an error
            old = calibration.read()
            calibration.keep(calibration.measured(old, cells, trials_done, packing["workers"], seconds))


def _trials_done(manifest: Manifest) -> list[dict]:
    """The reports of finished trials."""
    numbers = {"cell": int, "lanes": int, "seconds": float, "training_seconds": float}
    return list(log_entries(manifest.out / "trials.jsonl", numbers))


def _packed(manifest: Manifest, executor, options: Options, settings: Settings, say) -> Manifest:
    """The manifest with its packing: the one it has, the one that the options name, or the fastest here. The options
    may name another mesh at any time, since machines come and go."""
    kept = manifest.packing if options.mesh is None else None
    if kept is not None:
        manifest.check_packing()
    hosts = options.hosts if kept is None else kept.get("hosts", 1)
    if hosts > 1 and hosts > (machines := executor.machines()):  # Ray would wait for them forever
        where = "the cluster has" if options.ray_address else "without --ray-address there is"
        raise InputError(f"hosts={hosts}: {where} {machines}; name a larger cluster, or another --mesh and --hosts")
    if kept is not None:
        if options.pack or options.threads:
            say("this sweep keeps the packing it began with; --pack and --threads change nothing, --mesh would")
        return manifest
    options = replace(options, mesh=None) if options.mesh == NO_MESH else options
    packing = measured(manifest, executor, options, settings, cores(), say)
    manifest = replace(manifest, packing=packing)
    manifest.write()
    return manifest


def _execute(manifest: Manifest, executor, settings: Settings, tracker: str | None, quiet: bool, say) -> list[str]:
    packing = manifest.packing
    assert packing is not None  # `_packed` was called
    device = {"device": f"{packing['platform']} {packing['device']}"} if "device" in packing else {}
    settings = replace(
        settings,
        threads=packing["threads"],
        pin=packing["pin"],
        accelerator=packing["platform"] != "cpu",
        mesh=packing.get("mesh"),
        hosts=packing.get("hosts", 1),
        environment={**(settings.environment or {}), **device},
    )
    if settings.pin and (unpinned := cpu_affinity.problem()):
        say(unpinned)
    todo = trials(manifest, packing["lanes_per_program"], packing["workers"], manifest.finished())
    manifest.leave_path.unlink(missing_ok=True)  # of a driver that was killed
    lock, failures, lanes_of = threading.Lock(), {}, {trial["id"]: trial["lanes"] for trial in todo}

    def on_done(report):
        with lock:
            if lost(manifest, settings.session):
                return
            append_line(manifest.out / "trials.jsonl", json.dumps(report | {"time": round(time.time(), 1)}))
            if tracker:
                with contextlib.suppress(OSError, InputError):  # missing files are written, or reported, at the end
                    tracking.track(manifest, tracker, lanes_of[report["trial"]])

    def on_failed(trial, reason):
        cell = manifest.cells[trial["cell"]].label
        with lock:
            failures[trial["id"]] = trial["lanes"], reason
            said = {"trial": trial["id"], "cell": cell, "lanes": trial["lanes"], "reason": reason}
            if lost(manifest, settings.session):
                return
            with contextlib.suppress(OSError):  # on a full disk the failure is still reported below
                append_line(manifest.failures_path, json.dumps(said))

    with Progress(manifest, quiet):
        executor.run(todo, settings, packing["workers"], on_done, on_failed)
    finished = manifest.finished()
    unrecorded = {id: reason for id, (lanes, reason) in failures.items() if not finished.issuperset(lanes)}
    for reason in sorted({reason for id, (_, reason) in failures.items() if id not in unrecorded}):
        say(f"trial failed; other workers completed its lanes: {reason}")
    return [f"trial {id}: {reason}" for id, reason in unrecorded.items()]


def status(out: str | Path) -> str:
    """The status of the sweep in `out` as text: finished, diverged, failed and running lanes by cell; lanes an hour and
    time left while a driver runs. Does not execute an experiment's own file."""
    return status_text(Manifest.read(Path(out)))


def track(out: str | Path, tracker: str = "tensorboard", *, quiet: bool = False) -> Path:
    """Writes the files of a tracking tool for the finished lanes in `out` (`sweeps.reporting.tracking`) and returns
    their directory."""
    return _track(Manifest.read(Path(out)), tracker, _printer(quiet))


def _track(manifest: Manifest, tracker: str, say) -> Path:
    folder = tracking.track(manifest, tracker)
    shown = f"{tracker}: {tracking.tracker_named(tracker).shown_by} {folder}"
    say(shown if folder.exists() else "no lane has finished: there is nothing to track")
    return folder


def table_of(out: str | Path):
    """The tidy table of the finished lanes in `out`. Does not execute an experiment's own file."""
    manifest = Manifest.read(Path(out))
    return records.table(manifest.read_records(lane_index.lanes(manifest)))
