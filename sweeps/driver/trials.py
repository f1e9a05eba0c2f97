"""Division of a sweep's unfinished lanes into trials."""

from collections.abc import Collection, Mapping

from sweeps.driver.manifest import Manifest

# Many trials let all workers end at about the same time. Few trials keep the scheduler's cost (0.1 s each) small.
TRIALS_PER_WORKER = 16


def trials(manifest: Manifest, packs: Mapping[str, int], workers: int, finished: Collection[str]) -> list[dict]:
    """The unfinished lanes as trials for `Worker.run_trial`.

    The lanes of a pack stay together, including finished lanes. Trials of the most expensive cells come first. They
    alternate between as many cells as there are workers, so that workers seldom compile the same program at the same
    time.
    """
    total = sum(len(e.lanes) * e.cell.flops_per_lane for e in manifest.cells)
    flops_per_trial = total / (workers * TRIALS_PER_WORKER)
    queues = []
    for index, entry in enumerate(manifest.cells):
        pack, hashes = packs[entry.label], list(entry.lanes)
        groups = [hashes[i : i + pack] for i in range(0, len(hashes), pack)]
        groups = [g for g in groups if not all(h in finished for h in g)]
        per_trial = max(1, int(flops_per_trial / (entry.cell.flops_per_lane * pack)))
        queues.append(
            [
                {"cell": index, "pack": pack, "lanes": sum(groups[i : i + per_trial], [])}
                for i in range(0, len(groups), per_trial)
            ]
        )
    order = sorted(range(len(queues)), key=lambda i: -manifest.cells[i].cell.flops_per_lane)
    ordered = []
    for start in range(0, len(order), workers):
        group = [list(queues[i]) for i in order[start : start + workers]]
        while any(group):
            ordered += [queue.pop(0) for queue in group if queue]
    return [trial | {"id": f"{i:04d}"} for i, trial in enumerate(ordered)]
