"""The figure of `leaderboard`."""

from collections.abc import Mapping

import numpy as np

from experiments.leaderboard.analysis import gaps, over_sizes
from experiments.leaderboard.config import BASE, Config, Entry
from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat


def figure(table, config: Config, *, tier: str, corpus: str, partial, entries: Mapping[str, Entry]):
    """The gap of every entry at every size, and its mean and largest gap over the held-out sizes."""
    by_entry = gaps(table, config, entries)
    ratios = np.array([[1 + by_size[size].mean() for size in config.sizes] for by_size in by_entry.values()])
    texts = [["–" if np.isnan(x) else f"{100 * (x - 1):.1f}" for x in row] for row in ratios]
    heat = Heat(
        "loss above the reference of the size (%)",
        rows=list(by_entry),
        columns=[size.replace(" × ", "\n× ") for size in config.sizes],
        values=ratios,
        ylabel="",
        xlabel="size",
        scale="loss",
        texts=texts,
    )
    series = []
    for name in ("mean", "worst"):
        measured = [over_sizes(by_size)[name] for by_size in by_entry.values()]
        percent = [x.interval and (100 * x.interval[0], 100 * x.interval[1]) for x in measured]
        series.append((f"{name} over held-out sizes", [100 * x.value for x in measured], percent))
    points = [
        [100 * by_seed.mean() for size, by_seed in by_size.items() if size != BASE] for by_size in by_entry.values()
    ]
    dots = Dots(
        "constant tuned at the base only", list(by_entry), series, "loss above the reference (%)", points, "one size"
    )
    return sheet(
        [heat, dots],
        title="Loss of each rule after transfer from the base size",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            f"Base: {config.sizes[BASE]}. Every other size moves one axis. Reference: tuned at the size itself.",
            "Intervals: 95 % over the seeds that tuned nothing.",
        ],
        size=(7.0, 5.0),
    )
