"""The packing of a sweep: workers, threads and lanes per program, from the options or measured."""

from dataclasses import replace
from typing import Any

from lvp.parallel.sharding import mesh_sizes
from sweeps.driver.forecast import duration
from sweeps.driver.manifest import Manifest
from sweeps.worker.tasks import task_for
from sweeps.worker.worker import Settings

ACCELERATOR_PACKS = [1, 2, 4, 8, 16, 32, 64]


def measured(manifest: Manifest, executor, options, settings: Settings, say) -> dict:
    """The packing for the manifest: platform, device, workers, threads, pin, lanes_per_program (by cell label) and
    measured (lane-steps per second).

    Values that the options give are not measured. With `options.pack`, the default of `threads` is 1. Only trained
    cells that have lanes are measured. Without `options.pack`, other cells have one lane per program.
    """
    free = replace(settings, pin=False)
    if options.mesh is not None:
        return _on_a_mesh(manifest, executor, options, free)
    ((device,),) = executor.probe(free, [("hello",)])
    base = {"platform": device["platform"], "device": device["device_kind"], "measured": {}}
    trained = [i for i, entry in enumerate(manifest.cells) if task_for(entry.cell).trained and entry.lanes]
    packable = {e.label: (t := task_for(e.cell)).trained and t.shares_data for e in manifest.cells}
    packs = {label: options.pack or 1 if can else 1 for label, can in packable.items()}
    if device["platform"] != "cpu":
        # One process owns an accelerator, and XLA chooses its threads.
        if trained and options.pack is None:
            shared = [i for i in trained if task_for(manifest.cells[i].cell).shares_data]
            (answers,) = executor.probe(free, [("measure", i, ACCELERATOR_PACKS) for i in shared])
            by_cell = zip((manifest.cells[i].label for i in shared), answers, strict=True)
            # Answers of local workers are JSON, whose keys are text.
            base["measured"] = speeds = {c: {int(k): round(v, 1) for k, v in s.items()} for c, s in by_cell}
            packs |= {label: max(s, key=s.__getitem__, default=1) for label, s in speeds.items()}
        return base | {
            "workers": max(1, executor.accelerators()),
            "threads": 1,
            "pin": False,
            "lanes_per_program": packs,
        }

    machines = executor.cores()
    cores = max(1, min(machines))  # the number of cores on which the speed is measured
    threads = options.threads or (1 if options.pack or cores == 1 or not trained else None)
    if threads is None:
        # Ray may know a GPU that JAX cannot use.
        cpu = replace(settings, accelerator=False)
        threads, base["measured"] = _cpu_threads(manifest, executor, cpu, trained, cores)
    workers = max(1, sum(available // threads for available in machines))
    if base["measured"]:
        speed = base["measured"][f"{cores // threads}x{threads}"] * workers / (cores // threads)
        say(_in_words(base["measured"], f"{workers}x{threads}", _training_seconds(manifest, trained, speed)))
    return base | {
        "workers": workers,
        "threads": threads,
        "pin": True,
        "lanes_per_program": packs,
    }


def cell_speeds(manifest: Manifest, executor, settings: Settings, workers: int) -> list[tuple[Any, float]]:
    """(cell, model FLOP/s of a worker) of every trained cell with lanes, from some steps on all workers at a time."""
    entries = list(enumerate(manifest.cells))
    trained = [(i, entry.cell) for i, entry in entries if task_for(entry.cell).trained and entry.lanes]
    settings = replace(settings, pin=workers > 1)
    answers = executor.probe(settings, [("lane_seconds", i) for i, _ in trained], workers) if trained else []
    return [
        (cell, workers * cell.flops_per_lane / sum(of_worker[k] for of_worker in answers))
        for k, (_, cell) in enumerate(trained)
    ]


def _on_a_mesh(manifest: Manifest, executor, options, settings: Settings) -> dict:
    """The packing for lanes that are each trained on a mesh. Raises InputError if the mesh's sizes do not fit the
    devices or the cells."""
    settings = replace(settings, mesh={}, hosts=options.hosts)  # with a mesh, a worker has the whole machine
    ((device,),) = executor.probe(settings, [("hello",)])
    sizes = mesh_sizes(options.mesh, device["devices"] * options.hosts)
    for entry in manifest.cells:
        task_for(entry.cell).check_mesh(sizes)
    return {
        "platform": device["platform"],
        "device": device["device_kind"],
        "measured": {},
        "workers": max(1, executor.machines() // options.hosts),
        "threads": 1,
        "pin": False,
        "lanes_per_program": {entry.label: 1 for entry in manifest.cells},
        "mesh": sizes,
        "hosts": options.hosts,
    }


def _in_words(speeds: dict[str, float], chosen: str, seconds: float) -> str:
    """The message about the measured packings ("WORKERSxTHREADS" → lane-steps per second), the chosen packing and its
    expected seconds of training."""
    options = [f"{_workers(name)} do {speed:.0f} lane-steps per second" for name, speed in speeds.items()]
    return f"measured: {', '.join(options)}; this sweep uses {_workers(chosen)}: {duration(seconds)} of training"


def _training_seconds(manifest: Manifest, trained: list[int], speed: float) -> float:
    """Seconds of training of all lanes, if each cell has the FLOP/s of the most expensive cell, which was measured.

    Args:
      trained: indices of the trained cells that have lanes.
      speed: lane-steps per second of all workers on the most expensive cell.
    """
    measured_cell = manifest.cells[_most_expensive(manifest, trained)].cell
    flops = sum(len(manifest.cells[i].lanes) * manifest.cells[i].cell.flops_per_lane for i in trained)
    return flops / (speed * measured_cell.flops_per_lane / measured_cell.steps)


def _most_expensive(manifest: Manifest, trained: list[int]) -> int:
    return max(trained, key=lambda i: manifest.cells[i].cell.flops_per_lane)


def _workers(packing: str) -> str:
    workers, threads = map(int, packing.split("x"))
    return f"{workers} worker{'s' * (workers > 1)} of {threads} thread{'s' * (threads > 1)}"


def _cpu_threads(manifest: Manifest, executor, settings: Settings, trained: list[int], cores: int) -> tuple[int, dict]:
    """Measures `cores` workers with one thread each, and one worker with `cores` threads, on the most expensive trained
    cell. Returns the faster number of threads and both speeds. The compile cache keeps the programs for the sweep."""
    most_expensive = _most_expensive(manifest, trained)
    speeds = {}
    for threads, workers in ((1, cores), (cores, 1)):
        answers = executor.probe(replace(settings, threads=threads), [("measure", most_expensive, [1])], workers)
        speeds[threads] = sum(next(iter(a[0].values())) for a in answers)
    best = max(speeds, key=speeds.__getitem__)
    return best, {f"{cores // t}x{t}": round(v, 1) for t, v in speeds.items()}
