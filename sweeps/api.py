"""A sweep from configuration to table: what the command line and notebooks call."""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import experiments
from lvp import records
from lvp.errors import InputError
from lvp.files import append_line, cache_dir, write_whole
from lvp.hardware import cores
from lvp.sharding import named_sizes
from sweeps import kinds, plan, standing
from sweeps.lock import only_driver
from sweeps.manifest import Manifest
from sweeps.progress import Progress, watched
from sweeps.worker import Settings

EXECUTORS = ("ray", "local")
NO_MESH = "none"


@dataclass(frozen=True)
class Options:
    """How to run, as opposed to what: nothing here is part of a lane's hash.

    executor: ray | local. ray_address: of a running cluster ("auto" for this machine's). pack, threads: lanes per
    program and cores per worker on CPU, instead of measuring them. checkpoint_seconds: least time between checkpoints.
    mesh: sizes ("fsdp=8", see `lvp.sharding.mesh_sizes`) of a mesh that trains each lane, on all the devices of so many
    `hosts` of a Ray cluster; None keeps what the sweep began with (at first one device a lane), "none" undoes it.
    """

    executor: str = "ray"
    ray_address: str | None = None
    pack: int | None = None
    threads: int | None = None
    checkpoint_seconds: float = 30.0
    mesh: str | None = None
    hosts: int = 1

    def __post_init__(self):
        if self.executor not in EXECUTORS:
            raise experiments.unknown("executor", self.executor, EXECUTORS)
        for name in ("pack", "threads", "hosts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.threads and not self.ray_address and self.threads > cores():
            raise InputError(f"threads={self.threads}: this machine has {cores()} cores")
        if self.ray_address and self.executor != "ray":
            raise InputError("--ray-address needs --executor ray")
        if self.mesh not in (None, NO_MESH):
            named_sizes(self.mesh)
        if self.hosts > 1 and not (self.mesh and self.ray_address):
            raise InputError(f"hosts={self.hosts} needs --mesh, and --ray-address of a cluster of that many machines")
        if self.mesh not in (None, NO_MESH) and (self.pack or 1) > 1:
            raise InputError("a mesh trains one lane at a time: leave --pack out")
        if self.ray_address:
            _check_answers(self.ray_address)


def _check_answers(address: str) -> None:
    """InputError at once where nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # auto, or a name that Ray knows how to resolve
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise InputError(f"no Ray cluster answers at {address}: {error.strerror or error}") from None


def run(
    experiment: str,
    tier: str = "laptop",
    *,
    out: str | Path | None = None,
    options: Options = Options(),
    dry_run: bool = False,
    quiet: bool = False,
    watch: Callable[[Any], None] | None = None,
    **config: Any,
):
    """Runs an experiment and returns its tidy table (pandas.DataFrame, one row a lane; see `lvp.records.table`).

    Args:
      experiment, tier: as `python -m sweeps run` takes them.
      out: directory of the sweep; None is runs/EXPERIMENT-TIER-HASH under the working directory. One that holds the
        same sweep is continued; one that holds another sweep, or anything else, raises InputError.
      options: see `Options`. `executor=…` and the like may also be given directly as keywords.
      dry_run: prints cells, lanes, tokens, FLOPs and expected hours, and returns None.
      quiet: print nothing.
      watch: called with the table as it stands whenever further lanes have finished, at most once a second, from a
        thread of its own; what it raises is raised here once the sweep has ended.
      config: keys of the experiment's configuration.

    Raises InputError for anything unusable, before anything is trained; RuntimeError when lanes failed, after all
    others have finished; KeyboardInterrupt when interrupted, with everything finished kept.
    """
    chosen = {k: config.pop(k) for k in list(config) if k in Options.__dataclass_fields__}
    options = replace(options, **chosen)
    loaded = experiments.load(experiment)
    resolved = experiments.configured(experiment, tier, config)
    cells = loaded.cells(resolved)
    for planned in cells:
        kinds.of(planned.cell).check(planned.cell, planned.lanes)
    say = _sayer(quiet and not dry_run)
    say(f"{experiment}, tier {tier}: {loaded.question}")
    kind = "accelerator" if tier in ("gpu", "paper") else "cpu"
    workers = 1 if kind == "accelerator" else cores()
    say(plan.forecast(cells, workers, plan.ASSUMED_FLOPS[kind], f"assumed for {kind}s; not measured"))
    if loaded.follow_up is not None:
        say("lanes that follow from these results come on top")
    if dry_run:
        return None
    if out is not None:
        _check_out(Path(out))
    datasets = {c.label: _dataset(c.cell) for c in cells}
    # A relative path would mean another file to whoever resumes from elsewhere.
    if specs := [d.spec for d in datasets.values() if d is not None]:
        resolved = replace(resolved, corpus=specs[0])
    manifest = Manifest(
        out=Path(),
        experiment=experiment,
        tier=tier,
        config=experiments.to_dict(resolved),
        datasets={label: d and d.to_dict() for label, d in datasets.items()},
    )
    out = Path(out) if out is not None else Path("runs") / f"{experiment}-{tier}-{manifest.hash}"
    settled = _settle(manifest, out.absolute())
    with watched(settled, watch):
        return _continue(settled, options, quiet)


def resume(out: str | Path, *, options: Options = Options(), quiet: bool = False):
    """Continues the sweep in `out` and returns its table, as `run` does. Nothing that finished is done again."""
    manifest = Manifest.read(Path(out))
    datasets = {entry.label: _dataset(entry.cell) for entry in manifest.cells}
    for entry in (e for e in manifest.cells if e.dataset is not None):
        fingerprints, found = kinds.of(entry.cell).fingerprints, datasets[entry.label]
        for what, before in fingerprints(entry.dataset).items():
            if fingerprints(found)[what] != before:
                raise InputError(f"{what} of {found.spec}: not the one that the sweep in {out} began with")
    places = {label: d and d.to_dict() for label, d in datasets.items()}
    return _continue(_with_tokens_at(manifest, places), options, quiet)


def _with_tokens_at(manifest: Manifest, datasets: dict[str, dict]) -> Manifest:
    """The manifest with its token files where they are now: a cache may have been moved or cleared."""
    if datasets == manifest.datasets:
        return manifest
    manifest = replace(manifest, datasets=datasets)
    manifest.write()
    return manifest


def _dataset(cell):
    return kinds.of(cell).prepare(cell, cache_dir() / "data")


def _check_out(out: Path) -> None:
    """InputError where `out` is a file, cannot be written, or holds something that is not a sweep."""
    parent = out.absolute()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise InputError(f"--out {out}: {parent} is not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {parent} cannot be written")
    if out.is_dir() and any(out.iterdir()) and not (out / "manifest.json").exists():
        raise InputError(f"--out {out} holds files that are not a sweep; name an empty or new directory")


def _settle(manifest: Manifest, out: Path) -> Manifest:
    """The manifest in its directory: written if that is new, the standing one if it is the same sweep's."""
    _check_out(out)
    if (out / "manifest.json").exists():
        standing = Manifest.read(out)
        if standing.hash != manifest.hash:
            raise InputError(
                f"--out {out} belongs to another configuration ({standing.experiment}, tier {standing.tier}, hash "
                f"{standing.hash}; this one is {manifest.hash}); name another directory"
            )
        return _with_tokens_at(standing, manifest.datasets)
    settled = replace(manifest, out=out)
    try:
        settled.write()
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from None
    return settled


def _sayer(quiet: bool):
    return (lambda *_: None) if quiet else (lambda *lines: print(*lines, sep="\n", flush=True))


def _holds_accelerator() -> str | None:
    """The platform of the accelerator that this very process has initialised, if it has."""
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    from jax._src import xla_bridge  # asking the public way would initialise the accelerator

    if not xla_bridge.backends_are_initialized():
        return None
    platform = jax.default_backend()
    return None if platform == "cpu" else platform


def _executor(out: Path, options: Options, settings: Settings, say):
    held = _holds_accelerator()
    if held:
        say(f"this process already holds the {held.upper()}, which no worker could share: running inside it")
    if options.executor == "local" or held:
        from sweeps.local_executor import LocalExecutor

        return LocalExecutor(out, in_process=held is not None)
    from sweeps.ray_executor import RayExecutor

    return RayExecutor(out, options.ray_address, settings)


def _continue(manifest: Manifest, options: Options, quiet: bool):
    """Runs what is left of a sweep, draws its figure and returns its table."""
    from sweeps import results  # what draws takes half a second to import, and `status` draws nothing

    say = _sayer(quiet)
    failures, interrupted = [], False
    with only_driver(manifest.out):
        for problem in manifest.set_damaged_aside():
            say(f"{problem}: set aside, its lane is trained again")
        if len(manifest.finished()) < manifest.num_lanes:
            manifest, failures, interrupted = _work(manifest, options, quiet, say)
        table = results.draw(manifest, say)
    again = " ".join(["python -m sweeps resume", str(manifest.out), *_where(options)])
    if interrupted:
        raise KeyboardInterrupt(f"interrupted; `{again}` goes on from here")
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise RuntimeError(f"{failures[0]}{more}; `{again}` tries again")
    if missing := manifest.num_lanes - len(manifest.finished()):
        raise RuntimeError(f"{missing} lanes have no record; `{again}` tries again")
    return table


def _where(options: Options) -> list[str]:
    """The words of a command that say where these options run."""
    address = ["--ray-address", options.ray_address] if options.ray_address else []
    return address or ([] if options.executor == "ray" else ["--executor", options.executor])


def _work(manifest: Manifest, options: Options, quiet: bool, say) -> tuple[Manifest, list[str], bool]:
    """Runs the lanes that are left: the manifest with its packing, why trials failed whose lanes nobody has finished,
    whether it was interrupted."""
    started, failures, interrupted = time.perf_counter(), [], False
    write_whole(manifest.session_path, json.dumps({"time": time.time(), "host": socket.gethostname()}) + "\n")
    manifest.failures_path.unlink(missing_ok=True)
    settings = Settings(
        threads=options.threads or 1,
        compile_cache=str(cache_dir() / "xla"),
        checkpoint_seconds=options.checkpoint_seconds,
        commit=records.software()["commit"],
    )
    executor = _executor(manifest.out, options, settings, say)
    try:
        executor.share(manifest)
        manifest = _packed(manifest, executor, options, settings, say)
        failures = _execute(manifest, executor, settings, quiet, say)
        with_more = replace(manifest)  # what it holds now that these results stand
        if not failures and with_more.num_lanes > manifest.num_lanes:
            say(f"{with_more.num_lanes - manifest.num_lanes} lanes follow from these results")
            manifest = with_more
            failures = _execute(manifest, executor, settings, quiet, say)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        executor.close()
    seconds = time.perf_counter() - started
    append_line(manifest.out / "sessions.jsonl", json.dumps({"seconds": round(seconds, 1), "interrupted": interrupted}))
    say(f"ran for {plan.duration(seconds)}")
    return manifest, failures, interrupted


def _packed(manifest: Manifest, executor, options: Options, settings: Settings, say) -> Manifest:
    """The manifest with its packing: the standing one, what was asked for, or what measures best here. Another mesh may
    always be asked for: machines come and go."""
    kept = manifest.packing if options.mesh is None else None
    if kept is not None:
        manifest.check_packing()
    hosts = options.hosts if kept is None else kept.get("hosts", 1)
    if hosts > 1 and hosts > (found := executor.machines()):  # for which Ray would wait forever
        where = "the cluster has" if options.ray_address else "without --ray-address there is"
        raise InputError(f"hosts={hosts}: {where} {found}; name a larger cluster, or another --mesh and --hosts")
    if kept is not None:
        if options.pack or options.threads:
            say("the packing this sweep began with stands; --pack and --threads change nothing, --mesh would")
        return manifest
    from sweeps.packing import measured

    options = replace(options, mesh=None) if options.mesh == NO_MESH else options
    packing = measured(manifest, executor, options, settings, cores(), say)
    manifest = replace(manifest, packing=packing)
    manifest.write()
    return manifest


def _execute(manifest: Manifest, executor, settings: Settings, quiet: bool, say) -> list[str]:
    packing = manifest.packing
    settings = replace(
        settings,
        threads=packing["threads"],
        pin=packing["pin"],
        accelerator=packing["platform"] != "cpu",
        mesh=packing.get("mesh"),
        hosts=packing.get("hosts", 1),
    )
    todo = plan.trials(manifest, packing["lanes_per_program"], packing["workers"], manifest.finished())
    manifest.leave_path.unlink(missing_ok=True)  # of a driver that was killed: whatever executor it had
    lock, failures = threading.Lock(), {}

    def on_done(report):
        with lock:
            append_line(manifest.out / "trials.jsonl", json.dumps(report | {"time": round(time.time(), 1)}))

    def on_failed(trial, reason):
        cell = manifest.cells[trial["cell"]].label
        with lock:
            failures[trial["id"]] = trial["lanes"], reason
            said = {"trial": trial["id"], "cell": cell, "lanes": trial["lanes"], "reason": reason}
            with contextlib.suppress(OSError):  # of a full disk, say: the line below says it
                append_line(manifest.failures_path, json.dumps(said))

    with Progress(manifest, quiet):
        executor.run(todo, settings, packing["workers"], on_done, on_failed)
    finished = manifest.finished()
    lost = {id: reason for id, (lanes, reason) in failures.items() if not finished.issuperset(lanes)}
    for reason in sorted({reason for id, (_, reason) in failures.items() if id not in lost}):
        say(f"others have done what failed here: {reason}")
    return [f"trial {id}: {reason}" for id, reason in lost.items()]


def status(out: str | Path) -> str:
    """What of the sweep in `out` has finished, diverged, failed (and why) and is running, by cell, as text; lanes an
    hour and time left, where somebody works on it."""
    return standing.text(Manifest.read(Path(out)))


def table_of(out: str | Path):
    """The tidy table of the sweep in `out` as it stands."""
    return records.table(Manifest.read(Path(out)).read_records())
