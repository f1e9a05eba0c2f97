"""How does the best embedding learning rate move when width and vocabulary grow together?

Hayou & Liu 2025 (paper A), section 4.1, figure 3 and appendix C.2: (d, m) = (2^k, 2^(k+3)), k = 8 … 12, each m with a
BPE tokenizer of its own, η_hidden = η_output = 0.2/d, σ = d^(−1/2) everywhere, the embedding rate alone is swept.
Claim: η_E ∝ d^(−1/2) "yields near-optimal training loss", and the optimum scatters "around the √d line".

The paper adds a fixed positional encoding to the embedding's rows. It does not say whether the rows are first
multiplied by √d, as in the encoding's source (Vaswani et al. 2017, section 3.4). Both readings are arms of this sweep.

    python -m sweeps run width_vocab --tier laptop      2 CPU cores
    python -m sweeps run width_vocab --tier gpu         one accelerator
    python -m sweeps run width_vocab --tier paper       as published: 4 days of 4 GH200 in the paper
"""

from dataclasses import dataclass

import numpy as np

from experiments.checks import check_names, sorted_values
from experiments.decoder_runs import (
    OPTIMUM_HEAD,
    DecoderRuns,
    geometric,
    grid,
    optimum_row,
    same,
    slope_line,
    where,
)
from experiments.experiment import CellLanes, Experiment
from lvp import analysis
from lvp.analysis.arms_figure import Arm, optima_by_arm
from lvp.analysis.claims import Claim, judge
from lvp.errors import InputError
from lvp.models.configs import forward_multipliers
from lvp.parametrization import TOKEN_ROWS, row_multiplier
from lvp.parametrization import table as rule_table
from lvp.training import Lane, check_positive

HORIZONS = 5  # equal parts of the training at whose ends the slope is read
READINGS = {"plain": "rows plain", "sqrt": "rows × √d", "normalized": "rows / RMS"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the paper tier. What the paper states is marked with its section; the rest is ours, and says why."""

    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # C.2
    vocab_per_width: int = 8  # C.2: m = 8 d
    rows: tuple[str, ...] = ("sqrt", "plain")  # not stated: how rows enter the model; the claims are of the first
    rates: tuple[float, ...] = geometric(2**-13, 2**-3, 21)  # not stated; η_E times the factor on the rows
    rate_times_width: float = 0.2  # C.2: η_hidden = η_output = 0.2/d
    steps: int = 10_000  # C.2
    tolerance: float = 0.2  # figure 3: rates within 20 % of the best loss make the shaded curve

    def __post_init__(self):
        super().__post_init__()
        sorted_values(self, "widths", positive=True)
        sorted_values(self, "rates", least=3, positive=True)  # an optimum has neighbours
        check_names("rows", self.rows, TOKEN_ROWS)
        check_positive("rate_times_width", self.rate_times_width)
        check_positive("tolerance", self.tolerance, zero=True)
        if self.vocab_per_width < 1:
            raise InputError(f"vocab_per_width must be at least 1, got {self.vocab_per_width}")

    def embedding_rates(self, rows: str, width: int) -> tuple[float, ...]:
        """η_E of the lanes, to 4 digits: `rates` over the factor on the rows."""
        return tuple(float(f"{rate / row_multiplier(rows, width):.4g}") for rate in self.rates)

    @property
    def horizons(self) -> tuple[int, ...]:
        """Steps at which the slope is read; the rates are constant, so each prefix of a run is a shorter run."""
        return tuple(sorted({max(1, self.steps * part // HORIZONS) for part in range(1, HORIZONS + 1)}))


# How the laptop tier was chosen is told in docs/width_vocab.md.
TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        widths=(32, 40, 48),
        rows=("sqrt",),
        rates=geometric(0.002, 0.128, 4),
        seeds=(0,),
        context=32,
        batch=4,
        steps=60,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=60_000,
        valid_bytes=20_000,
        widths=(32, 48, 64, 96, 128),
        rates=geometric(0.002, 0.128, 9)[1:-1],
        context=64,
        batch=8,
        steps=1500,
    ),
    "gpu": Config(
        widths=(256, 384, 512, 768, 1024),
        rates=geometric(2**-11, 2**-3, 9),
        slice_bytes=2_000_000,
        valid_bytes=200_000,
        steps=600,
    ),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """One cell a width and reading; in it every rate and seed."""
    planned = []
    for rows in config.rows:
        for width in config.widths:
            vocab = config.vocab_per_width * width
            model = forward_multipliers(rule_table("lvp", width=width, vocab=vocab, token_rows=rows))
            # The gains, of which the paper says nothing, learn at the hidden rate.
            fixed, std = same(config.rate_times_width / width), same(width**-0.5)
            lanes = [
                Lane(fixed | {"embedding": rate}, std, seed)
                for rate in config.embedding_rates(rows, width)
                for seed in config.seeds
            ]
            cell = config.cell(width, vocab, config.steps, **model)
            planned.append(CellLanes(_label(config, rows, width), cell, lanes))
    return planned


def _label(config: Config, rows: str, width: int) -> str:
    label = f"d {width}, m {config.vocab_per_width * width}"
    return label if len(config.rows) == 1 else f"{label}, {READINGS[rows]}"


def _of_reading(table, config: Config, rows: str, width: int):
    """The records of one cell. Records leave out model settings at their defaults."""
    kept = where(table, {"cell.model.width": width})
    for name, default, value in (
        ("embedding_multiplier", 1.0, row_multiplier(rows, width)),
        ("normalize_rows", False, rows == "normalized"),
    ):
        column = f"cell.model.{name}"
        values = [default] * len(kept) if column not in kept else kept[column].where(kept[column].notna(), default)
        kept = kept[[bool(x == value) for x in values]]
    return kept


def losses(table, config: Config, rows: str, steps: int | None = None) -> list[np.ndarray]:
    """Train loss by width, [seeds, rates] each: at the end, or as a run of fewer steps would report it.

    A run of `steps` steps reports the mean over their last part (`final_fraction`), read from the curve's equal parts.
    """
    by_width = []
    for width in config.widths:
        kept = _of_reading(table, config, rows, width)
        column = "train_loss"
        if steps is not None:
            column = "horizon_loss"
            kept = kept.assign(horizon_loss=[_loss_at(steps, config, *curve) for curve in _curves(kept)])
        by_width.append(grid(kept, config.embedding_rates(rows, width), config.seeds, column))
    return by_width


def _curves(kept):
    return zip(kept["curve_steps"], kept["curve_losses"], strict=True) if len(kept) else ()


def _loss_at(steps: int, config: Config, curve_steps, curve_losses) -> float:
    """Mean of the curve over the last part of the first `steps` steps; infinite for a diverged lane."""
    first = steps * (1 - config.final_fraction)
    parts = [loss for at, loss in zip(curve_steps, curve_losses, strict=True) if first < at <= steps]
    if not parts:  # the curve is coarser than the last part of so few steps
        return np.nan
    return np.inf if None in parts else float(np.mean(parts))


def optima(table, config: Config, rows: str, steps: int | None = None):
    """Per width the optimum, and the slope of their power law."""
    rates = [config.embedding_rates(rows, width) for width in config.widths]
    by_width = analysis.optima(rates, losses(table, config, rows, steps))
    return by_width, analysis.slope(config.widths, by_width)


def arms(table, config: Config) -> list[Arm]:
    """What the figure and the summary show of each reading."""
    made = []
    for rows in config.rows:
        by_width, fit = optima(table, config, rows)
        by_horizon = {steps: optima(table, config, rows, steps)[1] for steps in config.horizons}
        rates = [config.embedding_rates(rows, width) for width in config.widths]
        made.append(Arm(READINGS[rows], rates, losses(table, config, rows), by_width, fit, by_horizon))
    return made


def summary(table, config: Config) -> str:
    """The tables of optima, the slopes, and the slopes by horizon, as text."""
    within = f"within {config.tolerance:.0%}"
    lines = []
    for arm in arms(table, config):
        lines += [arm.name, f"{'width':>6} {'vocab':>6} {OPTIMUM_HEAD} {within:>11}  flags"]
        for width, rates, lanes, best in zip(config.widths, arm.rates, arm.losses, arm.optima, strict=True):
            mean = analysis.optimum(rates, lanes, method="geometric_mean", tolerance=config.tolerance)
            numbers, flags = optimum_row(best)
            lines.append(f"{width:>6} {config.vocab_per_width * width:>6} {numbers} {mean.rate:>11.4g}  {flags}")
        lines.append(slope_line(arm.slope, config.widths))
        for steps, fit in arm.slope_by_horizon.items():
            low, high = fit.interval
            lines.append(
                f"  read at {steps} steps: {fit.slope:.2f}, 95 % interval {low:.2f} … {high:.2f}, "
                f"{fit.num_points} widths"
            )
        lines.append("")
    return "\n".join(lines[:-1])


def transfer_gap(table, config: Config, rows: str) -> tuple[float, tuple[float, float] | None]:
    """What the √d-rule costs: the rate tuned at the smallest width, moved by d^(−1/2), against each width's best, as
    the largest relative excess of the train loss over the other widths. With a 95 % t interval over seeds.

    NaN without an interval where the smallest width's optimum is not resolved, or the rule leaves the grid or meets a
    diverged lane: then the sweep does not say.
    """
    grids, base = losses(table, config, rows), optima(table, config, rows)[0][0]
    tuned = [(base.rate * (w / config.widths[0]) ** -0.5, config.embedding_rates(rows, w)) for w in config.widths[1:]]
    inside = tuned and all(rates[0] <= rate <= rates[-1] for rate, rates in tuned)
    if not base.resolved or not inside:
        return np.nan, None

    def worst(curves):
        with np.errstate(invalid="ignore"):
            at_rule = [np.interp(np.log(r), np.log(rates), c) for (r, rates), c in zip(tuned, curves, strict=True)]
        best = [np.min(c[np.isfinite(c)], initial=np.inf) for c in curves]
        return max(loss / least - 1 for loss, least in zip(at_rule, best, strict=True))

    value = worst([g.mean(axis=0) for g in grids[1:]])
    by_seed = [worst([g[s] for g in grids[1:]]) for s in range(len(config.seeds))]
    if not np.isfinite([value, *by_seed]).all():
        return np.nan, None
    return float(value), analysis.t_interval(by_seed, centre=value)


def figure(table, config: Config, *, tier: str, corpus: str, partial: tuple[int, int] | None):
    """Figure 3 for each reading: loss over embedding rate by width, the optimum over width beside the slopes 0, −1/2
    and −1, and the slope against the horizon."""
    return optima_by_arm(
        config.widths,
        arms(table, config),
        title=f"Optimal embedding learning rate against width, m = {config.vocab_per_width} d",
        tier=tier,
        corpus=corpus,
        partial=partial,
    )


def claims(table, config: Config, context) -> list[Claim]:
    """Is the exponent −1/2 and not 0 or −1; does it differ from 0; is the √d-rule near-optimal. Judged for the first
    reading of `config.rows`."""
    rows = config.rows[0]
    _, slope = optima(table, config, rows)
    reading = READINGS[rows]
    used = f"{slope.num_points} of {len(config.widths)} widths resolved"
    gap, gap_range = transfer_gap(table, config, rows)
    shared = dict(context) | {"source": "Hayou & Liu 2025, figure 3"}
    return [
        Claim(
            statement=f"{reading}: the best embedding learning rate falls as width^(−1/2), not as width^0 or "
            "width^(−1)",
            paper_value=-0.5,
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=-0.5, rivals=(0.0, -1.0)),
            note=used,
            **shared,
        ),
        Claim(
            statement=f"{reading}: the best embedding learning rate falls with width (exponent below 0)",
            paper_value="< 0",
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=(-np.inf, 0.0), rivals=()),
            note=used,
            **shared,
        ),
        Claim(
            statement=f"{reading}: a rate tuned at the smallest width and moved by d^(−1/2) is near-optimal: its train "
            f"loss is within {config.tolerance:.0%} of the best at every width",
            paper_value=f"≤ {config.tolerance}",
            value=gap,
            interval=gap_range,
            verdict=judge(gap, gap_range, claimed=(-np.inf, config.tolerance), rivals=()),
            note="largest relative excess over the widths; t interval over seeds",
            **shared,
        ),
    ]


EXPERIMENT = Experiment(
    name="width_vocab",
    question="how does the best embedding learning rate move when width and vocabulary grow together?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    paper="Hayou & Liu 2025",
    answers=("figure 3",),
)
