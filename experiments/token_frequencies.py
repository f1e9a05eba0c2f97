"""Do token frequencies follow a power of rank, and does the most frequent token's square outgrow the mean as m?

Hayou & Liu 2025 (paper A), figure 2, lemma 1 and theorem 2: BPE tokenizers with m = 8192 and 32768 tokens on
WikiText-2. Frequencies α fall as a power of rank; for α_i ∝ i^(−a) the mean square relative to the top token,
m⁻¹ Σ_i (α_i/α_1)², is Θ(1/m). Theorem 2 uses that max_i α_i² / ᾱ² = Θ(m), which does not depend on how α is
normalised; ᾱ² = m⁻¹ Σ_i α_i² does, and is given for Σ α = 1 as well as for α_1 = 1.

    python -m sweeps run token_frequencies --tier laptop      2 CPU cores, seconds; tokenizers, once: half a minute
"""

from dataclasses import dataclass

import numpy as np

from experiments.experiment import Calculation, CellLanes, Experiment
from lvp import analysis, theory
from lvp.analysis.claims import Claim, judge
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.errors import InputError
from lvp.training import DataConfig

CURVE_POINTS = 80


@dataclass(frozen=True)
class Config:
    """Defaults are the paper's figure 2."""

    corpus: str = "wikitext2"
    vocabs: tuple[int, ...] = (8192, 32768)
    first_rank: int = 10  # the head bends away from the line, and the tail, which few counts make, falls off it
    last_rank: int = 1000

    def __post_init__(self):
        if not self.vocabs:
            raise InputError("vocabs is empty: it needs at least one value")
        object.__setattr__(self, "vocabs", tuple(sorted(set(self.vocabs))))
        if not 1 <= self.first_rank < self.last_rank:
            raise InputError(f"first_rank {self.first_rank} must lie below last_rank {self.last_rank}, from 1 up")


OCTAVES = tuple(2**k for k in range(8, 16))
TIERS = {
    "smoke": Config(corpus="python-docs", vocabs=(256, 512, 1024)),
    "laptop": Config(vocabs=OCTAVES),
    "gpu": Config(vocabs=OCTAVES),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """One cell a vocabulary, since each has a tokenizer of its own; one lane in it."""
    shared = {"ranks": [config.first_rank, config.last_rank]}
    return [
        CellLanes(f"m {vocab}", Calculation(shared, 1e9, DataConfig(config.corpus), vocab), [{"vocab": vocab}])
        for vocab in config.vocabs
    ]


def calculate(arguments, lane, dataset) -> dict:
    """Fit of frequency against rank, and the mean squares of theorem 2."""
    alpha = np.sort(dataset.frequencies())[::-1]
    tokens = dataset.num_tokens
    counts = np.rint(alpha * tokens).astype(np.int64)
    low, high = arguments["ranks"]
    fit = theory.zipf_mandelbrot_fit(counts, between=(low, min(high, int((counts > 0).sum()))))
    ranks = np.unique(np.rint(np.geomspace(1, alpha.size, CURVE_POINTS)).astype(int))
    inside = [bool(fit.between[0] <= r <= fit.between[1]) for r in ranks]
    mean_square = float(np.mean(alpha**2))
    return {
        "tokens": tokens,
        "unseen": int((counts == 0).sum()),
        "exponent": fit.exponent,
        "exponent_low": _finite(fit.interval[0]),
        "exponent_high": _finite(fit.interval[1]),
        "offset": fit.offset,
        "fitted_from": int(fit.between[0]),
        "fitted_to": int(fit.between[1]),
        "top_frequency": float(alpha[0]),
        "mean_square": mean_square,
        "mean_square_of_top": mean_square / float(alpha[0]) ** 2,
        "peak_ratio": float(alpha[0]) ** 2 / mean_square,
        "shown_ranks": ranks.tolist(),
        "shown_frequencies": alpha[ranks - 1].tolist(),
        "shown_fit": [float(fit.predict(r)) / tokens if used else None for r, used in zip(ranks, inside, strict=True)],
    }


def _finite(end: float) -> float | None:
    """An end of an interval that is open has no number."""
    return float(end) if np.isfinite(end) else None


def by_vocab(table):
    return table.sort_values("lane.vocab")


def growth(table, column: str):
    """The power of m that a column follows."""
    rows = by_vocab(table)
    return analysis.slope(rows["lane.vocab"], (rows[column].to_numpy(), None))


def is_open(row) -> bool:
    """Whether the range of ranks left the exponent open: then the fit's numbers are no result."""
    return row["exponent_low"] is None or np.isnan(row["exponent_low"])


def summary(table, config: Config) -> str:
    head = ("m", "tokens", "unseen", "ranks fitted", "exponent", "95 % interval", "offset")
    cells_ = [(*head, "max α²/ᾱ²", "ᾱ² for Σα = 1", "ᾱ² for α₁ = 1")]
    for row in by_vocab(table).to_dict("records"):
        fit = ("–", "open", "–")
        if not is_open(row):
            ends = f"{row['exponent_low']:.2f} … {row['exponent_high']:.2f}"
            fit = (f"{row['exponent']:.2f}", ends, f"{row['offset']:.1f}")
        sizes = (f"{row['lane.vocab']}", f"{row['tokens']}", f"{row['unseen']}")
        squares = (f"{row['peak_ratio']:.1f}", f"{row['mean_square']:.2e}", f"{row['mean_square_of_top']:.2e}")
        cells_.append((*sizes, f"{row['fitted_from']}–{row['fitted_to']}", *fit, *squares))
    widths = [max(map(len, column)) for column in zip(*cells_, strict=True)]
    lines = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells_]
    lines += ["", "α: frequencies, α₁ the largest, ᾱ² = m⁻¹ Σ α²; fitted: α ∝ (rank + offset)^(−exponent)"]
    for column, name in (("peak_ratio", "max α²/ᾱ²"), ("mean_square_of_top", "ᾱ² for α₁ = 1")):
        lines.append(f"power of m that {name} follows, with its 95 % interval: {in_words(growth(table, column))}")
    return "\n".join(lines)


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Figure 2, and the two mean squares over m."""
    panels = [_curves(table)]
    panels.append(_growth_panel(table, "peak_ratio", "Top token's square over the mean square", "max α² / ᾱ²", 1))
    title = "Mean square over the top token's square"
    panels.append(_growth_panel(table, "mean_square_of_top", title, "ᾱ² for α₁ = 1", -1))
    return sheet(
        panels,
        title="Token frequencies of BPE vocabularies",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            f"Left: pale, the frequencies of the tokens that occur; thin, the Zipf–Mandelbrot law fitted to ranks "
            f"{config.first_rank} to {config.last_rank}, where they fix its exponent.",
            "After each name: the power of m with its 95 % interval.",
        ],
    )


def _curves(table) -> Panel:
    series = []
    for row in by_vocab(table).to_dict("records"):
        frequencies = np.array(row["shown_frequencies"], float)
        frequencies[frequencies == 0] = np.nan  # which a logarithmic axis would draw as a cliff
        law = None if is_open(row) else np.array(row["shown_fit"], float)
        series.append(Series(f"{row['lane.vocab']}", row["shown_ranks"], frequencies, fitted=law, line=True))
    return Panel("Frequency against rank", "rank", "frequency α", series, "vocabulary m", ordered=True)


def _growth_panel(table, column: str, title: str, name: str, predicted: int) -> Panel:
    """Over m, with its power and the one predicted, through the geometric centre."""
    rows, fit = by_vocab(table), growth(table, column)
    vocabs, values = rows["lane.vocab"].to_numpy(float), rows[column].to_numpy()
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


def claims(table, config: Config, context) -> list[Claim]:
    """Is the ratio Θ(m); is the relative mean square Θ(1/m)."""
    made = []
    for statement, source, column, power in (
        ("the square of the top token's frequency outgrows the mean square as m", "theorem 2", "peak_ratio", 1.0),
        ("with α₁ = 1 the mean square falls as 1/m", "lemma 1", "mean_square_of_top", -1.0),
    ):
        fit = growth(table, column)
        made.append(
            Claim(
                statement=statement,
                source=f"Hayou & Liu 2025, {source}",
                paper_value=power,
                value=fit.slope,
                interval=fit.interval,
                verdict=judge(fit.slope, fit.interval, claimed=power, rivals=(0.0,)),
                note=f"power of m from {fit.num_points} vocabularies",
                **context,
            )
        )
    return made


EXPERIMENT = Experiment(
    name="token_frequencies",
    question="do token frequencies follow a power of rank, and does the top token's square outgrow the mean as m?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    calculate=calculate,
    paper="Hayou & Liu 2025",
    answers=("figure 2", "lemma 1", "theorem 2"),
)
