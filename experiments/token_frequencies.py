"""Do token frequencies follow a power of rank, and does the most frequent token's square outgrow the mean as m?

Hayou & Liu 2025 (paper A), figure 2, lemma 1 and theorem 2: BPE tokenizers with m = 8192 and 32768 tokens on
WikiText-2. Frequencies α fall as a power of rank; for α_i ∝ i^(−a) the mean square relative to the top token,
m⁻¹ Σ_i (α_i/α_1)², is Θ(1/m). Theorem 2 uses that max_i α_i² / ᾱ² = Θ(m), which does not depend on how α is
normalised; ᾱ² = m⁻¹ Σ_i α_i² does, and is given for Σ α = 1 as well as for α_1 = 1.

    python -m sweeps run token_frequencies --tier laptop      2 CPU cores, two minutes
"""

from dataclasses import dataclass

import numpy as np

from experiments.experiment import Calculation, CellLanes, Experiment
from lvp import analysis, theory
from lvp.analysis.claims import Claim, judge
from lvp.analysis.power_laws import Panel, Series, power_laws
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
    tokens = np.load(dataset.tokens_train, mmap_mode="r").size
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


def summary(table, config: Config) -> str:
    head = f"{'m':>6} {'tokens':>10} {'exponent':>9} {'95 % interval':>16} {'offset':>7} {'ranks':>10}"
    lines = [head + f" {'max α²/ᾱ²':>10} {'ᾱ², Σα = 1':>11} {'ᾱ², α₁ = 1':>11}"]
    for row in by_vocab(table).to_dict("records"):
        open_ended = row["exponent_low"] is None or np.isnan(row["exponent_low"])
        interval = "open" if open_ended else f"{row['exponent_low']:.3f} … {row['exponent_high']:.3f}"
        ranks = f"{row['fitted_from']}–{row['fitted_to']}"
        lines.append(
            f"{row['lane.vocab']:>6} {row['tokens']:>10} {row['exponent']:>9.3f} {interval:>16} {row['offset']:>7.2f} "
            f"{ranks:>10} {row['peak_ratio']:>10.4g} {row['mean_square']:>11.3g} {row['mean_square_of_top']:>11.3g}"
        )
    for column, name in (("peak_ratio", "max α²/ᾱ²"), ("mean_square_of_top", "ᾱ² with α₁ = 1")):
        fit = growth(table, column)
        lines.append(f"{name} goes as m to the {fit.slope:.2f}, 95 % interval {_interval(fit.interval)}")
    return "\n".join(lines)


def _interval(ends) -> str:
    return f"{ends[0]:.2f} … {ends[1]:.2f}"


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Figure 2, and the two mean squares over m."""
    rows = by_vocab(table).to_dict("records")
    curves = [
        Series(
            f"{row['lane.vocab']}",
            row["shown_ranks"],
            row["shown_frequencies"],
            fitted=np.array(row["shown_fit"], float),
            line=True,
        )
        for row in rows
    ]
    vocabs = [row["lane.vocab"] for row in rows]
    panels = [Panel("Frequency against rank", "rank", "frequency α", curves, "vocabulary m", ordered=True)]
    for column, name, power in (("peak_ratio", "max α² / ᾱ²", 1), ("mean_square_of_top", "ᾱ² with α₁ = 1", -1)):
        values, fit = [row[column] for row in rows], growth(table, column)
        centre = np.exp(np.mean(np.log(values))) * (np.array(vocabs) / np.exp(np.mean(np.log(vocabs)))) ** power
        series = Series(
            "measured",
            vocabs,
            values,
            fitted=fit.line(vocabs)[0],
            fitted_label=f"fit: power {fit.slope:.2f} [{_interval(fit.interval)}]",
            predicted=centre,
            predicted_label=f"power {power}, of theorem 2",
        )
        panels.append(Panel(name, "vocabulary m", name, [series]))
    return power_laws(
        panels,
        title="Token frequencies of BPE vocabularies",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=["Dotted: Zipf–Mandelbrot law fitted to the middle ranks."],
    )


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
)
