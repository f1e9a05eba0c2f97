"""The figure of `token_frequencies`."""

from collections.abc import Sequence

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.experiments.token_frequencies.analysis import by_vocab, growth, is_open
from lvp.experiments.token_frequencies.config import Config

PAPER = (8192, 32768)  # m of Hayou & Liu 2025, figure 2


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Frequency over rank (figure 2), and the two mean squares over m."""
    papers = [vocab for vocab in config.vocabs if vocab in PAPER]
    panels = [_curves(table, papers or config.vocabs, " (figure 2)" * bool(papers))]
    panels.append(_growth_panel(table, "peak_ratio", "Top token's square over the mean square", "max α² / ᾱ²", 1))
    title = "Mean square over the top token's square"
    panels.append(_growth_panel(table, "mean_square_of_top", title, "ᾱ² for α₁ = 1", -1))
    return sheet(
        panels,
        title="Token frequencies of BPE vocabularies",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            f"Left: frequencies of the tokens that occur (pale lines), and the Zipf–Mandelbrot law fitted to ranks "
            f"{config.first_rank} to {config.last_rank} (thin lines).",
            "After each name: the power of m with its 95 % interval.",
        ],
    )


def _curves(table, vocabs: Sequence[int], figure: str) -> Panel:
    series, rows = [], by_vocab(table)
    for row in rows[rows["run.vocab"].isin(vocabs)].to_dict("records"):
        frequencies = np.array(row["shown_frequencies"], float)
        frequencies[frequencies == 0] = np.nan  # a logarithmic axis would draw a cliff
        law = None if is_open(row) else np.array(row["shown_fit"], float)
        series.append(Series(f"{row['run.vocab']}", row["shown_ranks"], frequencies, fitted=law, line=True))
    return Panel(f"Frequency against rank{figure}", "rank", "frequency α", series, "vocabulary m", ordered=True)


def _growth_panel(table, column: str, title: str, name: str, predicted: int) -> Panel:
    """A column over m with the fitted power, and the predicted power through the geometric centre."""
    rows, fit = by_vocab(table), growth(table, column)
    vocabs, values = rows["run.vocab"].to_numpy(float), rows[column].to_numpy()
    centre = np.exp(np.mean(np.log(values))) * (vocabs / np.exp(np.mean(np.log(vocabs)))) ** predicted
    source = {1: "theorem 2", -1: "lemma 1"}[predicted]
    series = Series(
        "measured",
        vocabs,
        values,
        fitted=fit.line(vocabs)[0],
        fitted_label=f"fit: {in_words(fit)}",
        predicted=centre,
        predicted_label=f"{source}: {predicted}",
    )
    return Panel(title, "vocabulary m", name, [series], "power of m")
