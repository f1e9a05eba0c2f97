"""The unfinished lanes of a sweep, cut into trials."""

from collections.abc import Collection, Mapping

from sweeps.driver.manifest import Manifest

# A worker runs about so many trials: enough for workers to end together, few enough for the scheduler's tenth of a
# second per trial not to count.
TRIALS_PER_WORKER = 16


def trials(manifest: Manifest, packs: Mapping[str, int], workers: int, finished: Collection[str]) -> list[dict]:
    """The unfinished lanes as trials for `Worker.run_trial`.

    A pack is never repacked: lanes that were packed together stay together, finished or not. The dearest cells come
    first, in groups of as many cells as there are workers, taking turns, so that workers seldom compile the same
    program at the same time and the cheapest trials are left for the end.
    """
    total = sum(len(e.lanes) * e.cell.flops_per_lane for e in manifest.cells)
    aim = total / (workers * TRIALS_PER_WORKER)
    queues = []
    for index, entry in enumerate(manifest.cells):
        pack, hashes = packs[entry.label], list(entry.lanes)
        groups = [hashes[i : i + pack] for i in range(0, len(hashes), pack)]
        groups = [g for g in groups if not all(h in finished for h in g)]
        per_trial = max(1, int(aim / (entry.cell.flops_per_lane * pack)))
        queues.append(
            [
                {"cell": index, "pack": pack, "lanes": sum(groups[i : i + per_trial], [])}
                for i in range(0, len(groups), per_trial)
            ]
        )
    order = sorted(range(len(queues)), key=lambda i: -manifest.cells[i].cell.flops_per_lane)
    ordered = []
    for start in range(0, len(order), workers):
        some = [list(queues[i]) for i in order[start : start + workers]]
        while any(some):
            ordered += [q.pop(0) for q in some if q]
    return [trial | {"id": f"{i:04d}"} for i, trial in enumerate(ordered)]
