"""Reads the records of `warmup_batch`: the gap at every batch, its growth with the batch, and the summary.

Here an argument `run` is a configuration of `warmup` for one batch, with many trainings. `equal` is "tokens" or
"steps": the number that this configuration has in common with that of the base batch.
"""

from collections.abc import Iterable
from itertools import product

from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Tuned, difference
from lvp.experiments.common.tables import select
from lvp.experiments.warmup import analysis as warmup
from lvp.experiments.warmup.config import Config as WarmupConfig
from lvp.experiments.warmup_batch.config import EQUAL, Config, label
from lvp.training import Run


def rows_of(table, run: WarmupConfig):
    """The records of one configuration."""
    return select(table, {"setting.batch": run.batch, "setting.steps": run.steps})


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """The trainings that depend on results, as in `warmup`, for every configuration; none at a stable rate."""
    return {
        f"{setting}, {name}": runs
        for name, run in config.runs.items()
        for setting, runs in warmup.follow_up(rows_of(table, run), run, further=False).items()
    }


def gap(table, config: Config, equal: str, batch: int, name: str) -> Measurement:
    """Loss of a group without warm-up minus the least with warm-up, at a batch; see `warmup.analysis.gap`."""
    run = config.at(equal, batch)
    return warmup.gap(rows_of(table, run), run, name, [w for w in run.warmups if w])


def growth(table, config: Config, equal: str, name: str) -> Measurement:
    """The gap of a group at the largest batch minus the gap at the smallest batch."""
    (small, small_warm), (large, large_warm) = (
        _losses(table, config.at(equal, batch), name) for batch in (config.batches[0], config.batches[-1])
    )
    return difference([large, small_warm], [large_warm, small])


def _losses(table, run: WarmupConfig, name: str) -> tuple[list[Tuned], list[Tuned]]:
    """The tuned losses without warm-up (a list of one), and the tuned losses of every warm-up."""
    rows = rows_of(table, run)
    without, *with_warmup = (warmup.tuned(rows, run, name, w) for w in run.warmups)
    return [without], with_warmup


def edges(table, config: Config, equal: str, name: str) -> tuple[list[str], list[str]]:
    """The settings whose best rate is at the edge of its grid.

    Returns:
      The settings whose losses `growth` adds, and the settings whose losses it subtracts.
    """
    small, large = (config.at(equal, batch) for batch in (config.batches[0], config.batches[-1]))

    def at_edge(run: WarmupConfig, warmups: Iterable[float]) -> list[str]:
        rows = rows_of(table, run)
        return [f"{label(run)} at {w:.0%}" for w in warmups if warmup.at_edge(rows, run, name, w)]

    without, *with_warmup = config.warmups
    return (
        at_edge(large, [without]) + at_edge(small, with_warmup),
        at_edge(large, with_warmup) + at_edge(small, [without]),
    )


def summary(table, config: Config) -> str:
    """The gap of every group at every batch, and the best rates and losses of every configuration."""
    lines = []
    for equal in EQUAL:
        lines += [f"gap to the least loss with warm-up, equal {equal}"]
        lines.append(f"{'optimizer':<24}" + "".join(f"{label(config.at(equal, b)):<26}" for b in config.batches))
        for name in config.groups:
            gaps = [gap(table, config, equal, batch, name).text(".3f") for batch in config.batches]
            lines.append(f"{name:<24}" + "".join(f"{text:<26}" for text in gaps))
        lines.append("")
    heads = "".join(f"{f'{w:.0%}: rate':>12} {'loss':>7}" for w in config.warmups)
    lines.append(f"{'run':<20}{'optimizer':<24}{heads}")
    for (run_name, run), name in product(config.runs.items(), config.groups):
        lines.append(f"{run_name:<20}{name:<24}{warmup.best_rates(rows_of(table, run), run, name)}")
    lines += [
        "",
        f"gap: validation loss without warm-up minus the least with warm-up, nats per token; {len(config.more_seeds)} "
        "seeds that selected no rate; the 95 % intervals allow for the selection",
        f"loss: mean over the {len(config.seeds)} selecting seeds at the best rate (*: at the edge of its grid)",
    ]
    return "\n".join(lines).replace("nan", "  –")
