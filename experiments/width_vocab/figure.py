"""The figure of `width_vocab`: figure 3 of Hayou & Liu 2025 for each reading."""

from lvp.analysis.groups_figure import optima_by_group
from lvp.experiments.width_vocab.analysis import groups
from lvp.experiments.width_vocab.config import Config


def figure(table, config: Config, *, preset: str, corpus: str, partial: tuple[int, int] | None):
    """Loss over embedding rate by width for each reading, optimum over width, and slope over horizon.

    The panel of the optimum also shows the slopes 0, −1/2 and −1.
    """
    return optima_by_group(
        config.widths,
        groups(table, config),
        title=f"Optimal embedding learning rate against width, m = {config.vocab_per_width} d",
        preset=preset,
        corpus=corpus,
        partial=partial,
    )
