"""Commands that read a sweep and train nothing."""

import shlex
import time
from collections import Counter
from pathlib import Path

from lvp import experiments
from lvp.errors import InputError, printable
from lvp.sweeps import driver, trackers
from lvp.sweeps.store import Store
from lvp.training import records


def status(out: str | Path) -> str:
    """The state of the sweep in `out` as text: finished, diverged, failed and begun runs by setting.

    Executes no experiment.

    Raises:
      InputError: `out` holds no sweep.
    """
    store = Store(out)
    sweep = driver.existing(store)
    rows = store.read_records()
    outcomes = {row["hash"]: row["outcome"]["status"] for row in rows}
    failures, recorded = store.failures(), store.recorded()
    saved = set(store.objects.names("checkpoints")) - recorded
    planned = {run for each in sweep.settings for run in each["runs"]}
    head = f"{sweep.experiment}, preset {sweep.preset}, hash {sweep.hash}"
    lines = [f"{head}: {len(planned & recorded)} of {len(planned)} runs have a record"]
    if further := len(recorded - planned):
        lines.append(f"{further} further runs, which depend on results, have a record")
    column = max([16, *(len(each["label"]) for each in sweep.settings)])
    lines.append(f"{'setting':<{column}} {'runs':>6} {'finished':>9} {'diverged':>9} {'failed':>7} {'begun':>7}")
    for each in sweep.settings:
        runs = each["runs"]
        counts = Counter(outcomes.get(run) for run in runs)
        failed, begun = sum(run in failures for run in runs), sum(run in saved for run in runs)
        numbers = f"{len(runs):>6} {counts['finished']:>9} {counts['diverged']:>9} {failed:>7} {begun:>7}"
        lines.append(f"{each['label']:<{column}} {numbers}")
    for reason, n in Counter(failures.values()).items():
        names = [run for run, other in failures.items() if other == reason]
        more = f" and {n - 3} more" * (n > 3)
        lines.append(f"failed: {n} run{'s' * (n > 1)}: {reason} ({', '.join(names[:3])}{more})")
    if unread := len(recorded - outcomes.keys()):
        lines.append(f"{unread} damaged records; `resume` trains their runs again")
    damaged = [name for name in store.objects.names("records") if name.endswith(".damaged")]
    if damaged:
        lines.append(f"damaged records, renamed: {', '.join(damaged)}")
    return "\n".join(map(printable, lines))  # a directory may come from somebody else


def table_of(out: str | Path):
    """The table of the finished runs in `out` (`lvp.training.records.table`). Executes no experiment.

    Raises:
      InputError: `out` holds no sweep.
    """
    store = Store(out)
    driver.existing(store)
    return records.table(store.read_records())


def track(out: str | Path, tracker: str = "tensorboard") -> Path:
    """Writes the finished runs in `out` for a tracking tool, and returns the directory of the tool's runs.

    Args:
      tracker: a key of `lvp.sweeps.trackers.TRACKERS`.

    Raises:
      InputError: `out` holds no sweep, the tool is unknown, or its package is not installed.
    """
    store = Store(out)
    sweep = driver.existing(store)
    tool = sweep.tracker(tracker, store)
    trackers.log_records(tool, store.read_records(), {run: s["label"] for s in sweep.settings for run in s["runs"]})
    tool.close()
    print(f"{tracker}: {tool.shown_by.format(folder=shlex.quote(str(tool.folder)))}")
    return tool.folder


def figure(out: str | Path, experiment: str | None = None) -> None:
    """Draws the table and the figure of the finished runs in `out`.

    Args:
      experiment: the user's experiment file, if the sweep has one; its present content is executed.
    """
    store, sweep, loaded, _ = driver.opened(out, experiment)
    config = experiments.restored(loaded, sweep.preset, sweep.config)
    driver.draw(store, sweep, loaded, config, lambda *lines: print(*lines, sep="\n"))


def page(out: str | Path, experiment: str | None = None) -> str:
    """The results of the finished runs in `out` as HTML.

    Args:
      experiment: as for `figure`.
    """
    from lvp.sweeps import report  # pandas, SciPy and matplotlib, which the other commands do not need

    store, sweep, loaded, _ = driver.opened(out, experiment)
    config = experiments.restored(loaded, sweep.preset, sweep.config)
    return report.Report(loaded, config, sweep.preset, store.read_records(), sweep.planned).page()


def publish(out: str | Path, suffix: str = "") -> Path:
    """Copies the records of a finished sweep into experiments/results, and returns their directory.

    Args:
      suffix: as for `lvp.sweeps.committed.publish`.

    Raises:
      InputError: `out` holds no sweep, a run has no record, the experiment is a user's, or the suffix has characters
        other than letters and digits.
    """
    from lvp.sweeps import committed

    store = Store(out)
    sweep = driver.existing(store)
    if sweep.source is not None:
        raise InputError(f"{out} is a sweep of a user's experiment: only experiments of lvp can be published")
    rows = store.read_records()
    if missing := driver.planned_runs(store, sweep) - {row["hash"] for row in rows}:
        raise InputError(f"{out} is not finished: {len(missing)} runs have no intact record; `resume` it first")
    ended = max(row["provenance"].get("ended", time.time()) for row in rows)
    more = {"date": time.strftime("%Y-%m-%d", time.gmtime(ended))}  # UTC
    return committed.publish(sweep.as_json() | more, rows, suffix)
