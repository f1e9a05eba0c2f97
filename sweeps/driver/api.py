"""Functions that run a sweep from its configuration to its table, for the command line and for notebooks."""

import contextlib
import json
import math
import os
import resource
import shlex
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from jax._src import xla_bridge

import experiments
from experiments.common import user_experiments
from lvp.data.text import corpora
from lvp.errors import InputError
from lvp.files import append_line, buckets, cache_dir, log_entries, write_whole
from lvp.parallel.hardware import cores
from lvp.parallel.sharding import named_sizes
from lvp.training import records
from sweeps.driver import calibration, forecast, lane_index, working_copy
from sweeps.driver.directory_watch import DirectoryWatch
from sweeps.driver.lock import driver, only_driver
from sweeps.driver.manifest import NAME, Manifest, Unusable, resume_command
from sweeps.driver.options import DEFAULTS, NO_MESH, Options
from sweeps.driver.packing import cell_speeds, measured
from sweeps.driver.progress import Progress, watched
from sweeps.driver.status import text as status_text
from sweeps.driver.trials import trials
from sweeps.executors.local import LocalExecutor
from sweeps.reporting import tracking
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
    measure: bool = False,
    budget: str | None = None,
    reuse: str | Path | None = None,
    quiet: bool = False,
    watch: Callable[[Any], None] | None = None,
    **config: Any,
):
    """Runs an experiment and returns its table: a pandas.DataFrame with one row per lane (see
    `lvp.training.records.table`).

    Args:
      experiment, tier: the arguments of `python -m sweeps run`. An experiment's file (*.py) is executed.
      out: directory of the sweep, or its address in a bucket (s3://BUCKET/PREFIX, gs://BUCKET/PREFIX); None is
        runs/EXPERIMENT-TIER-HASH in the working directory. If the directory holds the same sweep, the sweep continues.
      options: see `Options`. Its fields may also be given as keywords, for example `executor="local"`.
      dry_run: whether to print the forecast (cells, lanes, tokens, FLOPs, duration) and to return None.
      measure: with `dry_run`, whether to train some steps of every cell on this machine's cores, so that the forecast
        is more accurate. It takes seconds per cell.
      budget: the longest expected duration, such as "2h"; None: no limit. The duration includes lanes that depend on
        results. It excludes lanes with a record in `reuse`.
      reuse: records of another sweep, a JSON-lines file or a directory such as DIR/records. Lanes with the same
        configuration and data are not trained again.
      quiet: whether to print nothing.
      watch: called in another thread with the table of finished lanes when it has grown, at most once per second. An
        exception in it is raised here after the sweep has ended.
      config: fields of the experiment's configuration.

    Raises:
      InputError: an argument, file or directory cannot be used; `out` holds another sweep or other files. Nothing is
        trained.
      RuntimeError: lanes or the tracking tool failed, the disk is full, the sweep's directory or lease was lost, or the
        address space is too small. Finished lanes keep their records.
      KeyboardInterrupt: interrupted. Finished lanes keep their records.
    """
    chosen = {k: config.pop(k) for k in list(config) if k in Options.__dataclass_fields__}
    options = replace(options, **chosen)
    return start(
        experiment,
        tier,
        config,
        out=out,
        options=options,
        dry_run=dry_run,
        measure=measure,
        budget=budget,
        reuse=reuse,
        quiet=quiet,
        watch=watch,
    )


def start(
    experiment: str | Path,
    tier: str,
    config: Mapping[str, Any],
    *,
    out: str | Path | None = None,
    options: Options = DEFAULTS,
    dry_run: bool = False,
    measure: bool = False,
    budget: str | None = None,
    reuse: str | Path | None = None,
    quiet: bool = False,
    watch: Callable[[Any], None] | None = None,
):
    """Does what `run` does. The configuration is a mapping, so its keys may equal names of options."""
    source = user_experiments.source(experiment) if user_experiments.is_file(str(experiment)) else None
    loaded = experiments.load(str(experiment), source)
    resolved = experiments.configured(loaded, tier, config)
    cells = loaded.cells(resolved)
    user_experiments.check_cells(cells)
    for planned in cells:
        task_for(planned.cell).check_lanes(planned.lanes)
    if buckets.is_address(place := resolved.corpus.partition(":")[2]):
        buckets.split(place)  # refuses credentials before they are printed
    say = _printer(quiet and not dry_run)
    say(f"{loaded.name}, tier {tier}, corpus {resolved.corpus}: {loaded.question}")
    earlier = [] if reuse is None else [records.in_current_form(r) for r in records.read(Path(reuse))]
    if measure:
        _check_measure(dry_run, tier, options)
        if budget is not None:
            forecast.seconds_of(budget)
        manifest = _new_manifest(loaded, tier, resolved, source)
        _, resolved = manifest.resolved
        cells = loaded.cells(resolved)
        speed = _measured_speed(manifest, options)
    else:
        speed = None
    _forecast(loaded, resolved, cells, tier, options, budget, earlier, speed, say)
    if out is not None:
        _check_place(out, options)
    if dry_run:
        _check_corpus(cells)
        return None
    if buckets.is_address(out):
        working_copy.check(str(out))  # before the data are prepared
    manifest = _new_manifest(loaded, tier, resolved, source)
    out = out if out is not None else Path("runs") / f"{loaded.name}-{tier}-{manifest.hash}"
    with working_copy.opened(out) as folder:
        return _start(replace(manifest, out=folder.absolute()), out, options, quiet, watch, earlier)


def _new_manifest(loaded, tier: str, config: Any, source) -> Manifest:
    """The manifest of a new sweep without a directory. Prepares its data."""
    datasets = {c.label: _dataset(c.cell) for c in loaded.cells(config)}
    # `resume` may run in another working directory, so the path must be absolute.
    if specs := [d.spec for d in datasets.values() if d is not None]:
        config = replace(config, corpus=specs[0])
    return Manifest(
        out=Path(),
        experiment=loaded.name,
        tier=tier,
        config=experiments.to_dict(config, loaded.tiers[tier]),
        datasets={label: d and d.to_dict() for label, d in datasets.items()},
        source=source,
        environment=environment.present(),
    )


def _check_measure(dry_run: bool, tier: str, options: Options) -> None:
    """Raises InputError if `measure` cannot be used."""
    if not dry_run:
        raise InputError("--measure needs --dry-run: a sweep measures its speed when it starts")
    if _on_accelerator(tier) or options.mesh not in (None, NO_MESH) or options.ray_address:
        raise InputError(
            "--measure trains on this machine's cores: leave out --mesh and --ray-address, and use a tier for CPUs"
        )


def _measured_speed(manifest: Manifest, options: Options) -> calibration.Speed:
    """The speed of this machine on the sweep's cells, from some steps of each cell in a temporary directory."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = replace(manifest, out=Path(folder))
        manifest.begin()
        settings = Settings(threads=1, compile_cache=str(cache_dir() / "xla"), environment=manifest.environment)
        executor = LocalExecutor(manifest.out)
        try:
            by_cell = cell_speeds(manifest, executor, settings, cores())
        finally:
            executor.close()
    return calibration.CellSpeed(**vars(calibration.read()), by_cell=by_cell)


def _on_accelerator(tier: str) -> bool:
    """Whether the sweeps of a tier are made for an accelerator."""
    return tier in ("gpu", "paper")


def _forecast(
    loaded,
    resolved,
    cells,
    tier: str,
    options: Options,
    budget: str | None,
    earlier: Sequence[Mapping[str, Any]],
    speed: calibration.Speed | None,
    say: Callable,
) -> None:
    """Prints the expected duration. Raises InputError if it is longer than the budget.

    Args:
      earlier: records of other sweeps, see `run`. Their lanes are not in the duration.
      speed: the speed of this machine on the sweep's cells; None: the stored speed.
    """
    kind = "accelerator" if _on_accelerator(tier) else "cpu"
    devices = math.prod(named_sizes(options.mesh).values()) if options.mesh not in (None, NO_MESH) else 1
    workers = 1 if kind == "accelerator" or devices > 1 else cores()
    # Speeds are measured on the cores of this machine only.
    speed = (speed or calibration.read()) if kind == "cpu" and devices == 1 else calibration.Speed()
    say(forecast.forecast(cells, workers, speed, kind, devices))
    with_follow_ups, about = cells, "at most"
    if loaded.limit is not None:
        with_follow_ups = loaded.limit(resolved)
    elif loaded.follow_up is not None:
        try:
            with_follow_ups, about = forecast.with_follow_ups(loaded, resolved, earlier), "about"
        except Exception:  # a user's `follow_up` may need measures of real lanes
            say("lanes that depend on these results are not in the forecast")
    longest = forecast.expected(with_follow_ups, workers, speed, kind, devices)
    most = sum(len(c.lanes) for c in with_follow_ups)
    if most > sum(len(c.lanes) for c in cells):
        duration = forecast.duration(longest.seconds)
        say(f"with the lanes that depend on these results: {about} {most} lanes and {duration}")
    if earlier:
        if loaded.limit is not None:
            recorded, remaining = forecast.remaining_of_limit(loaded, resolved, earlier)
            left = sum(len(c.lanes) for c in remaining)
        else:
            remaining = forecast.without_records(with_follow_ups, earlier)
            left = sum(len(c.lanes) for c in remaining)
            recorded = most - left
        longest = forecast.expected(remaining, workers, speed, kind, devices)
        duration = forecast.duration(longest.seconds)
        rest = f"the other {left} lanes need {duration}" if left else "no lane is trained"
        say(f"{recorded} of these lanes have a record of another sweep; {rest}")
    if budget is not None:
        forecast.check_budget(budget, longest)


def _start(
    manifest: Manifest,
    out: str | Path,
    options: Options,
    quiet: bool,
    watch: Callable[[Any], None] | None,
    earlier: Sequence[Mapping[str, Any]],
):
    """Runs the sweep of a new manifest in its directory, or continues it there, and returns its table.

    Args:
      earlier: records of other sweeps, see `run`.
    """
    say = _printer(quiet)
    _existing(manifest)  # refuses a directory with other files before the lock file is written
    try:
        manifest.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}; name another directory") from None
    with _driving(manifest.out, options, say):
        settled = _settle(manifest, say)
        _reuse(settled, earlier, say)
        with watched(settled, watch):
            return _continue(settled, options, quiet, earlier)


def _reuse(manifest: Manifest, earlier: Sequence[Mapping[str, Any]], say) -> None:
    """Writes records of other sweeps for lanes without a record, and for lanes that these records add."""
    while earlier and (reused := replace(manifest).reuse(earlier)):
        commits = ", ".join(sorted({str(row["provenance"]["commit"]) for row in reused}))
        say(f"{len(reused)} lanes have a record of another sweep (commit {commits})")


def resume(out: str | Path, *, options: Options = DEFAULTS, quiet: bool = False):
    """Continues the sweep in `out`, a directory or an address, and returns its table, as `run` does. Finished lanes are
    not trained again."""
    _check_place(out, options, new=False)
    with working_copy.opened(out) as folder:
        return _resume(folder, options, quiet)


def _resume(out: Path, options: Options, quiet: bool):
    manifest, _ = Manifest.recover(out)
    datasets, say = manifest.prepared(), _printer(quiet)
    with _driving(manifest.out, options, say):
        manifest, problem = Manifest.recover(manifest.out)  # another driver may have written it before the lock
        return _continue(_begun(manifest, problem, say, datasets=datasets), options, quiet)


def _begun(manifest: Manifest, problem: str | None, say, **places: Any) -> Manifest:
    """Writes and returns the manifest with the present paths of its datasets and of its experiment's file.

    Args:
      problem: why manifest.json was restored from its copy; None if it was not.
      places: fields of the manifest that hold paths.
    """
    if problem:
        say(f"{problem}: restored from its copy")
    if any(getattr(manifest, name) != place for name, place in places.items()):
        manifest = replace(manifest, **places)
    manifest.begin()
    return manifest


@contextlib.contextmanager
def _driving(out: Path, options: Options, say) -> Iterator[None]:
    """Holds the lock of the sweep's directory during the block. An interrupt names the command that continues the
    sweep."""
    with only_driver(out, say):
        try:
            yield
        except KeyboardInterrupt:
            again = resume_command(out, *options.resume_options())
            raise KeyboardInterrupt(f"interrupted; `{again}` continues from here") from None


def _dataset(cell):
    return task_for(cell).prepare(cache_dir() / "data")


def _check_corpus(cells) -> None:
    """Raises the InputError of `_dataset` if a corpus in files or in a bucket is missing or empty.

    Trains no tokenizer and downloads nothing.
    """
    for spec, cell in {c.cell.data.corpus: c.cell for c in cells if c.cell.data is not None}.items():
        kind, _, path = spec.partition(":")
        if buckets.is_address(path) and kind in ("text", "tokens"):
            buckets.files(path)
        elif path and kind in ("text", "wikitext2"):
            corpora.source(spec, cache=cache_dir() / "data")
        elif path and kind != "tfds" or kind not in ("python-docs", "wikitext2", "tfds", "zipf", "digits", "cifar10"):
            _dataset(cell)


def _check_place(out: str | Path, options: Options, new: bool = True) -> None:
    """Raises InputError if `out` is an address that cannot be used, or, for a `new` sweep, a directory that cannot be
    written."""
    if not buckets.is_address(out):
        if new:
            _check_directory(Path(out))
        return
    buckets.split(str(out))
    if options.hosts > 1:
        raise InputError(
            f"{out} with --hosts {options.hosts}: workers that share a mesh need a directory that all machines share; "
            "name it as --out, or use one host"
        )


def _check_directory(out: Path) -> None:
    """Raises InputError if `out` is a file or cannot be written."""
    parent = out.absolute()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"--out {out}: {parent} is not a directory; name another directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {parent} cannot be written; name another directory")


def _existing(manifest: Manifest) -> tuple[Manifest | None, str | None]:
    """Returns the manifest of the same sweep in its directory, and the problem with manifest.json if the copy was read.

    The manifest is None if the directory is new. It is also None if manifest.json and its copy are lost or damaged and
    a record of this sweep exists.

    Raises:
      InputError: the directory holds another sweep or other files.
    """
    out, place = manifest.out, manifest.location
    _check_directory(out)
    unusable = None
    try:
        existing, problem = Manifest.recover(out)
    except Unusable as error:
        unusable = error
    else:
        if existing.hash != manifest.hash:
            raise InputError(
                f"{place} holds another sweep: {existing.experiment}, tier {existing.tier}, hash {existing.hash} (this "
                f"one is {manifest.hash}); name another --out, or continue it with `{resume_command(out)}`"
            )
        return existing, problem
    # A driver that was killed early leaves hidden files and empty directories.
    used = out.is_dir() and any(not (p.name[0] == "." or (p.is_dir() and not any(p.iterdir()))) for p in out.iterdir())
    if copy := working_copy.get(out):
        used = used or any(name[0] != "." for name in copy.names)
    if used and not any(record.get("sweep") == manifest.hash for record in manifest.read_records()):
        if (out / NAME).exists():
            raise unusable
        raise InputError(f"--out {place} holds files that do not belong to this sweep; name an empty or new directory")
    return None, None


def _settle(manifest: Manifest, say) -> Manifest:
    """Writes and returns the manifest: the existing manifest of the same sweep, or this one. Copies the experiment's
    file."""
    existing, problem = _existing(manifest)
    try:
        settled = _begun(existing or manifest, problem, say, datasets=manifest.datasets, source=manifest.source)
        if settled.source is not None:
            user_experiments.keep(settled.source, settled.out / user_experiments.KEPT)
    except OSError as error:
        raise InputError(
            f"--out {manifest.location} cannot be written: {error.strerror}; name another directory"
        ) from None
    return settled


def _printer(quiet: bool):
    return (lambda *_: None) if quiet else (lambda *lines: print(*lines, sep="\n", flush=True))


def _holds_accelerator() -> str | None:
    """The platform of the accelerator that this process has initialised, or None."""
    # JAX's public functions would initialise the accelerator.
    if not xla_bridge.backends_are_initialized():
        return None
    platform = jax.default_backend()
    return None if platform == "cpu" else platform


def _executor(out: Path, options: Options, settings: Settings, say):
    held = _holds_accelerator()
    if held:
        say(f"this process already holds the {held.upper()}, so workers cannot use it: training in this process")
    if options.executor == "local" or held:
        return LocalExecutor(out, in_process=held is not None)
    from sweeps.executors.ray_tune import RayExecutor  # the local executor works without Ray

    return RayExecutor(out, options, settings)


def _draw(manifest: Manifest, say: Callable):
    from sweeps.reporting import results  # pandas and SciPy: workers import this module and do not draw

    return results.draw(manifest, say)


LEAST_ADDRESS_SPACE = 4 * 10**9  # bytes; workers with less may wait for memory for ever, in OpenBLAS


def _check_address_space() -> None:
    """Raises RuntimeError if the shell limits the address space to less than a worker needs."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        raise RuntimeError(
            f"the address space is limited to {limit / 1e9:.1f} GB (ulimit -v), and a worker needs "
            f"{LEAST_ADDRESS_SPACE / 1e9:.0f} GB: raise the limit"
        )


def _continue(manifest: Manifest, options: Options, quiet: bool, earlier: Sequence[Mapping[str, Any]] = ()):
    """Runs a sweep's unfinished lanes, draws its figure and returns its table. The caller holds the lock.

    Args:
      earlier: records of other sweeps, for lanes that depend on results.
    """
    say = _printer(quiet)
    failures: list[str] = []
    interrupted = False
    _write_lane_index(manifest)
    for problem in manifest.rename_damaged():
        say(f"{problem}: renamed to *.damaged, its lane is trained again")
    if len(manifest.finished()) == manifest.num_lanes:
        table = _draw(manifest, _printer(quiet=True))
        say(f"all lanes have records: nothing to do in {manifest.location}")
        if options.track:
            _track(manifest, options.track, say)
        return table
    _check_address_space()
    manifest, failures, interrupted = _work(manifest, options, quiet, say, earlier)
    table = None
    try:
        table = _draw(manifest, say)
        if options.track:
            _track(manifest, options.track, say)
    except Exception as error:
        if not (interrupted or failures):
            raise
        say(f"{type(error).__name__}: {error}")  # the interrupt or the failures are raised below
    if interrupted:
        raise KeyboardInterrupt
    again = resume_command(manifest.out, *options.resume_options())
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise RuntimeError(f"{failures[0]}{more}; `{again}` tries again")
    if missing := manifest.num_lanes - len(manifest.finished()):
        raise RuntimeError(f"{missing} lanes have no record; `{again}` tries again")
    return table


def _write_lane_index(manifest: Manifest) -> None:
    with contextlib.suppress(OSError):  # without the index, `status` is slower or asks for `resume`
        lane_index.write(manifest)


def _in_its_environment(manifest: Manifest, options: Options, say) -> tuple[Manifest, dict[str, Any]]:
    """Returns the manifest with the environment of its first session, and the present environment.

    Raises:
      InputError: the environments differ, and the options do not allow it.
    """
    present = environment.present()
    if manifest.environment is None:
        say(f"{manifest.location} has no recorded environment: its remaining lanes use the present environment")
        manifest = replace(manifest, environment=present)
        manifest.write()
    if options.ray_address:
        del present["machine"]  # the driver trains nothing
    if parts := environment.differences(manifest.environment or present, present):
        began = f"{manifest.location} began with {', '.join(parts)}"
        if not options.allow_other_version:
            raise InputError(
                f"{began}; results may not be bit-exact: restore the first environment, or give --allow-other-version"
            )
        say(f"{began}; the remaining lanes may not be bit-exact, and their records name the present environment")
    return manifest, present


def _work(
    manifest: Manifest, options: Options, quiet: bool, say, earlier: Sequence[Mapping[str, Any]]
) -> tuple[Manifest, list[str], bool]:
    """Runs the unfinished lanes. Returns the manifest with its packing, the failures of trials whose lanes have no
    record, and whether the user interrupted.

    Raises:
      RuntimeError: the sweep's directory was moved, removed or unmounted during the session, or the lease was lost.
    """
    manifest, present = _in_its_environment(manifest, options, say)
    session = json.dumps({"time": time.time(), "host": socket.gethostname()}) + "\n"
    write_whole(manifest.session_path, session)
    working_copy.push(manifest.out)  # workers of other machines compare it
    try:
        with DirectoryWatch(manifest, session):
            return _work_in_session(manifest, session, present, options, quiet, say, earlier)
    finally:
        if (copy := working_copy.get(manifest.out)) and copy.problem:
            again = resume_command(manifest.out, *options.resume_options())
            raise RuntimeError(f"{copy.problem}; `{again}` continues from here") from None
        if lost(manifest, session) is Reason.MOVED:
            raise RuntimeError(
                f"{manifest.out} was moved, removed or unmounted, so the sweep stopped; "
                "continue it with `python -m sweeps resume DIR`, where DIR is its present path"
            ) from None


def _work_in_session(
    manifest: Manifest,
    session: str,
    present: Mapping[str, Any],
    options: Options,
    quiet: bool,
    say,
    earlier: Sequence[Mapping[str, Any]],
) -> tuple[Manifest, list[str], bool]:
    started, failures, interrupted = time.perf_counter(), [], False
    manifest.failures_path.unlink(missing_ok=True)
    settings = Settings(
        threads=options.threads or 1,
        compile_cache=str(cache_dir() / "xla"),
        checkpoint_seconds=options.checkpoint_seconds,
        environment=present,
        session=session,
        bucket=str(manifest.location) if options.ray_address and working_copy.get(manifest.out) else None,
    )
    executor = _executor(manifest.out, options, settings, say)
    try:
        executor.check_machines(manifest)
        manifest = _packed(manifest, executor, options, settings, say)
        manifest.make_lane_directories()
        failures = _execute(manifest, executor, settings, options.track, quiet, say)
        # The copy computes the cells again, with the lanes that depend on these results.
        while not failures and (with_more := replace(manifest)).num_lanes > manifest.num_lanes:
            say(f"{with_more.num_lanes - manifest.num_lanes} lanes added that depend on these results")
            _reuse(with_more, earlier, say)
            manifest = replace(with_more)  # computes the cells again, with the lanes that reused records add
            _write_lane_index(manifest)
            failures = _execute(manifest, executor, settings, options.track, quiet, say)
        experiment, config = manifest.resolved
        if manifest.num_lanes < experiment.most_lanes(config):
            _write_lane_index(manifest)  # if no lane can be added, `status` does not ask the experiment again
    except KeyboardInterrupt:
        interrupted = True
    finally:
        executor.close()
    seconds = time.perf_counter() - started
    if not lost(manifest, session):
        if not (interrupted or failures or options.ray_address):
            _keep_speed(manifest, seconds)
        ended = {"seconds": round(seconds, 1), "interrupted": interrupted}
        append_line(manifest.out / "sessions.jsonl", json.dumps(ended))
    say(f"ran for {forecast.duration(seconds)}")
    return manifest, failures, interrupted


def _keep_speed(manifest: Manifest, seconds: float) -> None:
    """Keeps this session's speed for later forecasts if the session trained the whole sweep on this machine's cores."""
    packing, trials_done = manifest.packing, _trials_done(manifest)
    one_session = not (manifest.out / "sessions.jsonl").exists()
    if packing and packing["platform"] == "cpu" and "mesh" not in packing and trials_done and one_session:
        cells = [entry.cell for entry in manifest.cells]
        with contextlib.suppress(OSError):  # only forecasts use the speed
            old = calibration.read()
            calibration.keep(calibration.measured(old, cells, trials_done, packing["workers"], seconds))


def _trials_done(manifest: Manifest) -> list[dict]:
    """The reports of finished trials."""
    numbers = {"cell": int, "lanes": int, "seconds": float, "training_seconds": float}
    return list(log_entries(manifest.out / "trials.jsonl", numbers))


def _packed(manifest: Manifest, executor, options: Options, settings: Settings, say) -> Manifest:
    """Returns the manifest with its packing. The first session chooses the packing; `--mesh` replaces it."""
    kept = manifest.packing if options.mesh is None else None
    if kept is not None:
        manifest.check_packing()
    hosts = options.hosts if kept is None else kept.get("hosts", 1)
    if hosts > 1 and hosts > (machines := executor.machines()):  # Ray would wait for the machines forever
        remedy = "use a larger cluster" if options.ray_address else "give --ray-address"
        raise InputError(
            f"hosts={hosts} is more than the available machines ({machines}); {remedy}, or change --mesh and --hosts"
        )
    if kept is not None:
        if options.pack or options.threads:
            say("--pack and --threads are ignored: the sweep keeps its packing; --mesh replaces it")
        return manifest
    options = replace(options, mesh=None) if options.mesh == NO_MESH else options
    packing = measured(manifest, executor, options, settings, say)
    manifest = replace(manifest, packing=packing)
    manifest.write()
    return manifest


def _execute(manifest: Manifest, executor, settings: Settings, tracker: str | None, quiet: bool, say) -> list[str]:
    packing = manifest.packing
    assert packing is not None  # set by `_packed`
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
    manifest.leave_path.unlink(missing_ok=True)  # a killed driver may have left it
    working_copy.push(manifest.out)
    lock, failures = threading.Lock(), {}

    def on_done(report):
        with lock:
            if lost(manifest, settings.session):
                return
            append_line(manifest.out / "trials.jsonl", json.dumps(report | {"time": round(time.time(), 1)}))

    def on_failed(trial, reason):
        cell = manifest.cells[trial["cell"]].label
        reason = reason.replace(str(manifest.out), str(manifest.location))
        with lock:
            failures[trial["id"]] = trial["lanes"], reason
            failure = {"trial": trial["id"], "cell": cell, "lanes": trial["lanes"], "reason": reason}
            if lost(manifest, settings.session):
                return
            with contextlib.suppress(OSError):  # `_execute` returns the failure all the same
                append_line(manifest.failures_path, json.dumps(failure))

    with Progress(manifest, quiet), tracking.following(manifest, tracker):
        executor.run(todo, settings, packing["workers"], on_done, on_failed)
        manifest.fetch_records(lane for trial in todo for lane in trial["lanes"])
    finished = manifest.finished()
    unrecorded = {id: reason for id, (lanes, reason) in failures.items() if not finished.issuperset(lanes)}
    for reason in sorted({reason for id, (_, reason) in failures.items() if id not in unrecorded}):
        say(f"trial failed; other workers completed its lanes: {reason}")
    return [f"trial {id}: {reason}" for id, reason in unrecorded.items()]


def status(out: str | Path) -> str:
    """The status of the sweep in `out` as text: finished, diverged, failed and running lanes per cell; lanes per hour
    and time left while a driver runs. Does not execute a user's experiment file."""
    with working_copy.opened(out) as folder:
        return status_text(Manifest.read(folder))


def track(out: str | Path, tracker: str = "tensorboard", *, quiet: bool = False) -> Path | str:
    """Writes a tracking tool's runs of the finished lanes in `out` (`sweeps.reporting.tracking`). Returns the directory
    of the runs, or its address if the sweep is in a bucket."""
    with working_copy.opened(out) as folder:
        place = _track(Manifest.read(folder), tracker, _printer(quiet), followed=bool(driver(folder)))
        working_copy.push(folder)
        return place


def _track(manifest: Manifest, tracker: str, say, followed: bool = False) -> Path | str:
    folder = tracking.track(manifest, tracker, followed=followed)
    place = f"{manifest.location}/{tracker}"
    shown = tracking.tracker_named(tracker).shown_by.format(shlex.quote(place))
    say(f"{tracker}: {shown}" if folder.exists() else "no lane has finished: nothing to track")
    return folder if manifest.location == manifest.out else place


def table_of(out: str | Path):
    """The table of the finished lanes in `out` (`lvp.training.records.table`). Does not execute a user's experiment
    file."""
    with working_copy.opened(out) as folder:
        manifest = Manifest.read(folder)
        return records.table(manifest.read_records(lane_index.lanes(manifest)))
