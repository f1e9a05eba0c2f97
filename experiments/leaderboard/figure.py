"""The figure of `leaderboard`."""

import textwrap
from collections.abc import Mapping

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat
from lvp.experiments.common.transferred_entries import Entry, chosen_entries
from lvp.experiments.leaderboard.analysis import read
from lvp.experiments.leaderboard.config import BASE, Config


def figure(table, config: Config, *, preset: str, corpus: str, partial, entries: Mapping[str, Entry]):
    """Draws the gap of every entry at every size, and its mean and largest gap over the sizes other than the base."""
    reading = read(table, config, chosen_entries(config.entries, entries))
    by_entry = {name: each.gaps for name, each in reading.entries.items()}
    ratios = np.array([[1 + gaps[size].mean() for size in config.sizes] for gaps in by_entry.values()])
    ratios = ratios.reshape(len(by_entry), len(config.sizes))[::-1]  # a heat map draws its first row at the bottom
    heat = Heat(
        "loss above the reference of the size (%)",
        rows=list(by_entry)[::-1],
        columns=[size.replace(" × ", "\n× ") for size in config.sizes],
        values=np.where(np.isfinite(ratios), ratios, np.nan),
        ylabel="",
        xlabel="size",
        scale="loss",
        texts=[[_percent(ratio) for ratio in row] for row in ratios],
    )
    series = []
    for title, over in (("mean", reading.mean), ("largest", reading.worst)):
        measured = [over(name) for name in by_entry]
        percent = [x.interval and (100 * x.interval[0], 100 * x.interval[1]) for x in measured]
        series.append((f"{title} over held-out sizes", [100 * x.value for x in measured], percent))
    points = [[100 * of_size.mean() for size, of_size in gaps.items() if size != BASE] for gaps in by_entry.values()]
    title, ylabel = "constant tuned at the base only", "loss above the reference (%)"
    dots = Dots(title, [textwrap.fill(name, 14) for name in by_entry], series, ylabel, points, "one size")
    return sheet(
        [heat, dots],
        title="Loss of each rule after transfer from the base size",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            f"Base: {config.sizes[BASE]}. Every other size moves one axis. Reference: tuned at the size itself.",
            "Intervals: 95 % over the seeds that tuned nothing; they allow for the tuning. ×: diverged.",
        ],
        columns=1,
        size=(12.0, 5.5),
    )


def _percent(ratio: float) -> str:
    """The gap, ratio of losses − 1, as text in percent; × if the entry diverged, – if it is unknown."""
    if np.isnan(ratio):
        return "–"
    return "×" if np.isinf(ratio) else f"{100 * (ratio - 1):z.1f}"
