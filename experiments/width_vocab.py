"""How does the best embedding learning rate move when width and vocabulary grow together?

Hayou & Liu 2025 (paper A), section 4.1, figure 3 and appendix C.2: (d, m) = (2^k, 2^(k+3)), k = 8 … 12, each m with a
BPE tokenizer of its own, η_hidden = η_output = 0.2/d, σ = d^(−1/2) everywhere, the embedding rate alone is swept.
Claim: η_E ∝ d^(−1/2) "yields near-optimal training loss", and the optimum scatters "around the √d line".

    python -m sweeps run width_vocab --tier laptop      2 CPU cores, a quarter of an hour
    python -m sweeps run width_vocab --tier gpu         one accelerator, half an hour
    python -m sweeps run width_vocab --tier paper       as published: 4 days of 4 GH200 in the paper
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from experiments.experiment import CellLanes, Experiment
from lvp import analysis
from lvp.analysis import figures
from lvp.analysis.claims import Claim, judge
from lvp.errors import InputError
from lvp.models.decoder import DecoderConfig
from lvp.roles import ROLES
from lvp.training import Cell, DataConfig, Lane, OptimizerConfig, check_positive

EMBEDDING = "lane.learning_rates.embedding"


def geometric(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` rates from low to high at equal ratios, to 4 digits (they are names as much as numbers)."""
    return tuple(float(f"{x:.4g}") for x in np.geomspace(low, high, count))


@dataclass(frozen=True)
class Config:
    """Defaults are the paper tier. What the paper states is marked with its section; the rest is ours, and says why."""

    corpus: str = "wikitext2"  # C.2
    slice_bytes: int | None = None  # the whole corpus: about 186 epochs at m 2048, 288 at 32768
    valid_bytes: int | None = None
    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # C.2
    vocab_per_width: int = 8  # C.2: m = 8 d
    rates: tuple[float, ...] = geometric(2**-13, 2**-3, 21)  # not stated: half octaves, two octaves past any optimum
    seeds: tuple[int, ...] = (0, 1, 2)  # C.2: 3 seeds
    rate_times_width: float = 0.2  # C.2: η_hidden = η_output = 0.2/d
    layers: int = 2  # C.1
    head_dim: int | None = None  # C.1: 64; None is 64 where it divides the width, else the largest fit below
    mlp_factor: int = 4  # not stated ("up/GeLU/down"): the usual expansion
    context: int = 256  # C.1
    batch: int = 256  # C.1
    steps: int = 10_000  # C.2
    norm: str = "layer"  # not stated for figure 3: pre-norm LayerNorm as in the paper's 1B model (Table 3)
    position_amplitude: float = 1.0  # not stated: the encoding of Vaswani et al. as it is, though it drowns σ_E
    b1: float = 0.9  # Adam's constants are not stated: optax's and PyTorch's defaults
    b2: float = 0.999
    eps: float = 1e-8
    dtype: str = "float32"  # not stated; compute dtype, parameters are float32
    final_fraction: float = 0.1  # not stated which train loss: the mean over this last part of the steps
    tolerance: float = 0.2  # figure 3: rates within 20 % of the best loss make the shaded curve

    def __post_init__(self):
        for name in ("widths", "rates", "seeds"):
            if not getattr(self, name):
                raise InputError(f"{name} is empty: it needs at least one value")
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise InputError(f"{name} holds a value twice: {', '.join(map(str, getattr(self, name)))}")
            object.__setattr__(self, name, tuple(sorted(getattr(self, name))))
        for rate in self.rates:
            check_positive("rates", rate)
        if len(self.rates) < 3:
            raise InputError(f"rates needs at least 3 values to find an optimum among, got {len(self.rates)}")
        for name in ("rate_times_width", "eps"):
            check_positive(name, getattr(self, name))
        for name in ("position_amplitude", "tolerance", "b1", "b2"):
            check_positive(name, getattr(self, name), zero=True)
        if max(self.b1, self.b2) >= 1:
            raise InputError(f"b1 and b2 must be below 1, got {self.b1} and {self.b2}")
        if any(seed < 0 or seed >= 2**32 for seed in self.seeds):
            raise InputError(f"seeds must be whole numbers from 0 to 2^32 − 1, got {self.seeds}")
        if self.vocab_per_width < 1:
            raise InputError(f"vocab_per_width must be at least 1, got {self.vocab_per_width}")


# How the laptop tier was chosen is told in docs/width_vocab.md.
TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        widths=(32, 40, 48),
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
        rates=geometric(0.002, 0.128, 9),
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
    """One cell a width; in it every rate and seed."""
    found = []
    for width in config.widths:
        model = DecoderConfig(
            vocab=config.vocab_per_width * width,
            width=width,
            layers=config.layers,
            context=config.context,
            head_dim=config.head_dim,
            mlp_factor=config.mlp_factor,
            norm=config.norm,
            position_amplitude=config.position_amplitude,
            dtype=config.dtype,
        )
        cell = Cell(
            model=model,
            data=DataConfig(config.corpus, config.slice_bytes, config.valid_bytes),
            batch=config.batch,
            steps=config.steps,
            optimizer=OptimizerConfig("adam", {"b1": config.b1, "b2": config.b2, "eps": config.eps}),
            final_fraction=config.final_fraction,
        )
        std = dict.fromkeys(ROLES, width**-0.5)
        # The gains, of which the paper says nothing, learn at the hidden rate.
        fixed = dict.fromkeys(ROLES, config.rate_times_width / width)
        lanes = [Lane(fixed | {"embedding": rate}, std, seed) for rate in config.rates for seed in config.seeds]
        found.append(CellLanes(f"d {width}, m {model.vocab}", cell, lanes))
    return found


def losses(table, config: Config) -> list[np.ndarray]:
    """Final train loss by width, [seeds, rates] each: NaN where a lane is missing, infinite where it diverged."""
    found = []
    for width in config.widths:
        grid = np.full((len(config.seeds), len(config.rates)), np.nan)
        for row in table[table["cell.model.width"] == width].to_dict("records"):
            at = config.seeds.index(row["lane.seed"]), config.rates.index(row[f"{EMBEDDING}"])
            grid[at] = row["train_loss"] if row["status"] == "finished" else np.inf
        found.append(grid)
    return found


def optima(table, config: Config):
    """Per width the optimum, and the slope of their power law."""
    found = analysis.optima(config.rates, losses(table, config))
    return found, analysis.slope(config.widths, found)


def summary(table, config: Config) -> str:
    """The table of optima and the slope, as text."""
    found, slope = optima(table, config)
    within = f"within {config.tolerance:.0%}"
    lines = [f"{'width':>6} {'vocab':>6} {'best η_E':>10} {'95 % interval':>20} {'loss':>7} {within:>11}  flags"]
    for width, grid, best in zip(config.widths, losses(table, config), found, strict=True):
        mean = analysis.optimum(config.rates, grid, method="geometric_mean", tolerance=config.tolerance)
        interval = f"{best.interval[0]:.4g} … {best.interval[1]:.4g}"
        lines.append(
            f"{width:>6} {config.vocab_per_width * width:>6} {best.rate:>10.4g} {interval:>20} {best.loss:>7.3f} "
            f"{mean.rate:>11.4g}  {', '.join(best.flags) or '–'}"
        )
    low, high = slope.interval
    lines.append(
        f"slope of ln(best η_E) over ln(width): {slope.slope:.2f}, 95 % interval {low:.2f} … {high:.2f}, from "
        f"{slope.num_points} of {len(config.widths)} widths"
    )
    return "\n".join(lines)


def transfer_gap(table, config: Config) -> tuple[float, tuple[float, float] | None]:
    """What the √d-rule costs: the rate tuned at the smallest width, moved by d^(−1/2), against each width's best, as
    the largest relative excess of the train loss over the other widths. With a 95 % t interval over seeds.

    NaN without an interval where the smallest width's optimum is not resolved, or the rule leaves the grid or meets a
    diverged lane: then the sweep does not say.
    """
    grids, base = losses(table, config), optima(table, config)[0][0]
    rates = [base.rate * (width / config.widths[0]) ** -0.5 for width in config.widths[1:]]
    inside = rates and config.rates[0] <= min(rates) and max(rates) <= config.rates[-1]
    if not base.resolved or not inside:
        return np.nan, None

    def worst(curves):
        with np.errstate(invalid="ignore"):
            at_rule = [np.interp(np.log(r), np.log(config.rates), c) for r, c in zip(rates, curves, strict=True)]
        best = [np.min(c[np.isfinite(c)], initial=np.inf) for c in curves]
        return max(loss / least - 1 for loss, least in zip(at_rule, best, strict=True))

    value = worst([g.mean(axis=0) for g in grids[1:]])
    by_seed = [worst([g[s] for g in grids[1:]]) for s in range(len(config.seeds))]
    if not np.isfinite([value, *by_seed]).all():
        return np.nan, None
    if len(by_seed) == 1:
        return float(value), None
    half = stats.t.ppf(0.975, len(by_seed) - 1) * np.std(by_seed, ddof=1) / np.sqrt(len(by_seed))
    return float(value), (float(value - half), float(value + half))


def figure(table, config: Config, *, tier: str, corpus: str, partial: tuple[int, int] | None):
    """Figure 3: loss over embedding rate by width, and the optimum over width beside the slopes 0, −1/2, −1."""
    found, slope = optima(table, config)
    return figures.optimum_vs_width(
        config.widths,
        config.rates,
        losses(table, config),
        optima=found,
        fit=slope,
        title=f"Optimal embedding learning rate against width, m = {config.vocab_per_width} d",
        tier=tier,
        corpus=corpus,
        partial=partial,
        tolerance=config.tolerance,
        rate_label="embedding learning rate η_E",
    )


def claims(table, config: Config, context) -> list[Claim]:
    """Is the exponent −1/2 and not 0 or −1; does it differ from 0; is the √d-rule near-optimal."""
    _, slope = optima(table, config)
    source = "Hayou & Liu 2025, figure 3"
    used = f"{slope.num_points} of {len(config.widths)} widths resolved"
    gap, gap_range = transfer_gap(table, config)
    shared = dict(context) | {"source": source}
    return [
        Claim(
            statement="the best embedding learning rate falls as width^(−1/2), not as width^0 or width^(−1)",
            paper_value=-0.5,
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=-0.5, rivals=(0.0, -1.0)),
            note=used,
            **shared,
        ),
        Claim(
            statement="the best embedding learning rate falls with width (exponent below 0)",
            paper_value="< 0",
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=(-np.inf, 0.0), rivals=()),
            note=used,
            **shared,
        ),
        Claim(
            statement="a rate tuned at the smallest width and moved by d^(−1/2) is near-optimal: its train loss is "
            f"within {config.tolerance:.0%} of the best at every width",
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
)
