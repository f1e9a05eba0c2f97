"""At a fixed vocabulary, how does the best embedding learning rate move with width, and do hidden and output matrices
want the same init and rate?

Hayou & Liu 2025 (paper A), figure 1 and appendix C.1: m = 32768, d = 2^8 … 2^12, sweeping η_E, η_H, η_W, σ_E and σ_W
(σ_H = d^(−1/2)), 2 seeds. Claims: "optimal performance is generally achieved by the same init and LR for hidden and
output", and the optimal η_E falls with width, sublinearly.

`design` "full" is the product of all five lists, as published. "star" is the product of η_E and η_H with everything
else equal, and then, for every other value of η_W/η_H, σ_E and σ_W, the rates around the best η_E at the width's best
η_H: what a laptop can pay. It changes one thing at a time, so it can miss what two changes gain together.

    python -m sweeps run width_fixed_vocab --tier laptop      2 CPU cores, half an hour
    python -m sweeps run width_fixed_vocab --tier paper       as published: two weeks of 4 GH200 in the paper
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from experiments.checks import sorted_values
from experiments.decoder_runs import (
    OPTIMUM_HEAD,
    DecoderRuns,
    best_known,
    geometric,
    grid,
    optimum_row,
    slope_line,
    where,
)
from experiments.experiment import CellLanes, Experiment
from lvp import analysis
from lvp.analysis.claims import Claim, judge
from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.errors import InputError
from lvp.training import Lane, check_positive

DESIGNS = ("full", "star")
# The lists of factors around their common value, 1: what they multiply, and its name in tables and figures.
FACTORS = {"output_rate_factors": "η_W/η_H", "embedding_std_factors": "σ_E √d", "output_std_factors": "σ_W √d"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the paper tier. The paper gives no grids: these are ours."""

    seeds: tuple[int, ...] = (0, 1)  # C.1
    vocab: int = 32768  # C.1
    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # C.1
    rates: tuple[float, ...] = geometric(2**-13, 2**-5, 9)  # η_E
    hidden_rates: tuple[float, ...] = geometric(0.05, 0.8, 5)  # η_H, times d
    output_rate_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # η_W over η_H
    embedding_std_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # σ_E over d^(−1/2)
    output_std_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # σ_W over d^(−1/2)
    design: str = "full"
    steps: int = 10_000  # C.1
    tolerance: float = 0.05  # what "near" optimal is to mean

    def __post_init__(self):
        super().__post_init__()
        sorted_values(self, "widths", positive=True)
        sorted_values(self, "rates", least=3, positive=True)
        for name in ("hidden_rates", *FACTORS):
            sorted_values(self, name, positive=True)
        for name in FACTORS:
            if 1.0 not in getattr(self, name):
                raise InputError(f"{name} must hold 1, the common value that the claim is about")
        if self.design not in DESIGNS:
            raise InputError(f"design must be one of {', '.join(DESIGNS)}, got {self.design!r}")
        check_positive("tolerance", self.tolerance)


TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=8_000,
        valid_bytes=2_000,
        vocab=300,
        widths=(16, 24, 32),
        rates=geometric(0.004, 0.064, 3),
        hidden_rates=(0.2,),
        output_rate_factors=(0.25, 1.0),
        embedding_std_factors=(1.0,),
        output_std_factors=(1.0, 4.0),
        design="star",
        context=32,
        batch=4,
        steps=30,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=60_000,
        valid_bytes=20_000,
        vocab=4096,
        widths=(32, 48, 80, 128),
        rates=geometric(0.004, 0.256, 7),
        hidden_rates=(0.1, 0.2, 0.4, 0.8),
        design="star",
        context=64,
        batch=8,
        steps=400,
    ),
    "gpu": Config(
        slice_bytes=2_000_000,
        valid_bytes=200_000,
        widths=(256, 512, 1024),
        rates=geometric(2**-12, 2**-4, 9),
        hidden_rates=(0.1, 0.2, 0.4),
        design="star",
        steps=600,
    ),
    "paper": Config(),
}

REACH = 2
COMMON = dict.fromkeys(FACTORS, 1.0)


def rays(config: Config) -> list[dict[str, float]]:
    """The factors of a star's rays: one of them not at one."""
    return [COMMON | {name: value} for name in FACTORS for value in getattr(config, name) if value != 1.0]


def all_factors(config: Config) -> list[dict[str, float]]:
    """Every combination of factors that the design runs."""
    if config.design == "star":
        return [COMMON, *rays(config)]
    return [dict(zip(FACTORS, values, strict=True)) for values in product(*(getattr(config, n) for n in FACTORS))]


def settings(config: Config) -> list[tuple[float, float, dict[str, float]]]:
    """(η_E, η_H d, factors) of every lane, seeds and what follows aside."""
    first = [COMMON] if config.design == "star" else all_factors(config)
    return list(product(config.rates, config.hidden_rates, first))


def lane(width: int, rate: float, hidden: float, factors: dict[str, float], seed: int) -> Lane:
    """One lane; positions and gains, of which the paper says nothing, take the embedding's and the hidden row."""
    std, hidden = width**-0.5, hidden / width
    rates = {"embedding": rate, "position": rate, "hidden": hidden, "vector": hidden}
    stds = {"hidden": std, "vector": std, "output": std * factors["output_std_factors"]}
    stds |= dict.fromkeys(("embedding", "position"), std * factors["embedding_std_factors"])
    return Lane(rates | {"output": hidden * factors["output_rate_factors"]}, stds, seed)


def label(config: Config, width: int) -> str:
    return f"d {width}, m {config.vocab}"


def cells(config: Config) -> list[CellLanes]:
    """One cell a width."""
    found = []
    for width in config.widths:
        lanes = [lane(width, *setting, seed) for setting in settings(config) for seed in config.seeds]
        cell = config.cell(width, config.vocab, config.steps)
        found.append(CellLanes(label(config, width), cell, lanes))
    return found


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The rays of a star: up to REACH rates to either side of the best η_E, at the width's best η_H."""
    if config.design != "star":
        return {}
    found = {}
    for width in config.widths:
        hidden = best_hidden(table, config, width)
        means = ray(table, config, width, hidden, COMMON).mean(axis=0)
        best = int(np.argmin(np.where(np.isfinite(means), means, np.inf)))
        near = config.rates[max(0, best - REACH) : best + REACH + 1]
        found[label(config, width)] = [
            lane(width, rate, hidden, factors, seed)
            for factors, rate, seed in product(rays(config), near, config.seeds)
        ]
    return found


# --- what the records say ---------------------------------------------------------------------------------------------


def ray(table, config: Config, width: int, hidden: float, factors: dict[str, float]) -> np.ndarray:
    """Final train loss [seeds, rates] over η_E, all else given."""
    example = lane(width, config.rates[0], hidden, factors, config.seeds[0])
    columns: dict[str, float] = {"cell.model.width": width}
    columns |= {f"lane.learning_rates.{role}": example.learning_rates[role] for role in ("hidden", "output")}
    columns |= {f"lane.init_std.{role}": example.init_std[role] for role in ("embedding", "output")}
    return grid(where(table, columns), config.rates, config.seeds)


def _least(lanes: np.ndarray) -> float:
    """The least mean over seeds; NaN where no rate finished with every seed."""
    means = lanes.mean(axis=0)
    return float(np.min(means[np.isfinite(means)], initial=np.inf)) if np.isfinite(means).any() else np.nan


def best_hidden(table, config: Config, width: int) -> float:
    """The η_H d of the least loss at this width, all factors at one."""
    least = [_least(ray(table, config, width, hidden, COMMON)) for hidden in config.hidden_rates]
    return config.hidden_rates[int(np.nanargmin(least))] if np.isfinite(least).any() else config.hidden_rates[0]


def curves(table, config: Config) -> list[np.ndarray]:
    """Loss over η_E by width [seeds, rates], at the width's best η_H."""
    return [ray(table, config, d, best_hidden(table, config, d), COMMON) for d in config.widths]


def optima(table, config: Config):
    """Per width the optimal η_E at its best η_H, and the slope of their power law. Flagged "hidden edge" where a better
    η_H may lie beyond the grid."""
    found = []
    for width, best in zip(config.widths, analysis.optima(config.rates, curves(table, config)), strict=True):
        ends = {config.hidden_rates[0], config.hidden_rates[-1]} if len(config.hidden_rates) > 1 else ()
        edge = ("hidden edge",) if best_hidden(table, config, width) in ends else ()
        found.append(replace(best, flags=best.flags + edge))
    return found, analysis.slope(config.widths, found)


def gaps(table, config: Config) -> np.ndarray:
    """[widths, seeds]: the least loss with every factor at one, over the least of all settings, less one, each setting
    chosen by its mean over seeds; NaN where no other setting has run, which is no comparison."""
    found = []
    for width in config.widths:
        rows = where(table, {"cell.model.width": width})
        equal = rows["lane.learning_rates.output"] == rows["lane.learning_rates.hidden"]
        for role in ("embedding", "output"):
            equal &= rows[f"lane.init_std.{role}"] == rows["lane.init_std.hidden"]
        cost = best_known(rows[equal], config.seeds) / best_known(rows, config.seeds) - 1
        found.append(cost if not equal.all() else np.full(len(config.seeds), np.nan))
    return np.array(found)


def near_optimal(table, config: Config) -> tuple[float, tuple[float, float] | None]:
    """What equal init and rate cost: the mean gap over widths, with a 95 % t interval over widths."""
    found = gaps(table, config)
    return float(found.mean()), analysis.t_interval(found.mean(axis=1))


def summary(table, config: Config) -> str:
    """Optima and slope; the least loss of every ray against the common setting's."""
    found, slope = optima(table, config)
    lines = [f"{'width':>6} {'η_H d':>6} {OPTIMUM_HEAD}  flags"]
    for width, best in zip(config.widths, found, strict=True):
        numbers, flags = optimum_row(best)
        lines.append(f"{width:>6} {best_hidden(table, config, width):>6.3g} {numbers}  {flags}")
    lines.append(slope_line(slope, config.widths))
    lines += ["", "least train loss over η_E (and η_H where it is swept), above the common setting's, in %"]
    lines.append(f"{'setting':<22}" + "".join(f"d {d}".rjust(9) for d in config.widths))
    for name, values in ray_gaps(table, config).items():
        lines.append(f"{name:<22}" + "".join(f"{100 * v:>9.1f}" for v in values))
    return "\n".join(lines)


def ray_gaps(table, config: Config) -> dict[str, list[float]]:
    """Name of every value of a factor → by width, its least loss over the least with all factors at one, less one."""
    found = {}
    for name, what in FACTORS.items():
        for value in getattr(config, name):
            if value != 1.0:
                alike = [x for x in product(config.hidden_rates, all_factors(config)) if x[1][name] == value]
                found[f"{what} = {value:g}"] = [_ray_gap(table, config, d, alike) for d in config.widths]
    return found


def _ray_gap(table, config: Config, width: int, alike) -> float:
    common = _least(ray(table, config, width, best_hidden(table, config, width), COMMON))
    least = [_least(ray(table, config, width, hidden, factors)) for hidden, factors in alike]
    return float(np.nanmin(least)) / common - 1 if np.isfinite(least).any() else np.nan


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Loss over η_E × η_H by width, the optimum over width, and what unequal settings cost."""
    return sheet(
        [*(_losses(table, config, d) for d in config.widths), _optima(table, config), _unequal(table, config)],
        title=f"Embedding and hidden learning rates at a fixed vocabulary, m = {config.vocab}",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Colour and number: final train loss over the least of the width with all settings equal, mean over seeds; "
            "× diverged.",
            "Optimum: at each width's best η_H, 95 % interval; dashed: width^(−1/2). Unequal settings: least loss over "
            "η_E, in % of the least with equal ones.",
        ],
        size=(5.2, 3.9),
    )


def _losses(table, config: Config, width: int) -> Heat:
    rows = [ray(table, config, width, hidden, COMMON).mean(axis=0) for hidden in config.hidden_rates]
    values = np.array(rows) / _least(ray(table, config, width, best_hidden(table, config, width), COMMON))
    texts = [["×" if np.isinf(x) else "" if np.isnan(x) else f"{x:.2f}" for x in row] for row in values]
    return Heat(
        f"d {width}",
        rows=[f"{hidden:g}" for hidden in config.hidden_rates],
        columns=[f"{rate:.2g}" for rate in config.rates],
        values=np.where(np.isfinite(values), values, np.nan),
        ylabel="hidden rate η_H · d",
        xlabel="embedding rate η_E",
        scale="loss",
        texts=texts,
    )


def _optima(table, config: Config) -> Panel:
    found, fit = optima(table, config)
    series = []
    for label, wanted in (("optimum", True), ("flagged, not fitted", False)):
        chosen = [(d, o) for d, o in zip(config.widths, found, strict=True) if o.resolved == wanted and o.rate > 0]
        if not chosen:
            continue
        x, best = zip(*chosen, strict=True)
        y = np.array([o.rate for o in best])
        ends = np.abs(np.transpose([o.interval for o in best]) - y)
        if not wanted:
            series.append(Series(label, x, y))
            continue
        root = np.exp(np.mean(np.log(y * np.sqrt(x)))) / np.sqrt(x)
        line = fit.line(x)[0] if fit.num_points > 1 else None
        series.append(Series(f"{label}: {in_words(fit)}", x, y, ends, fitted=line, predicted=root))
    return Panel("optimal η_E over width", "width d", "best embedding rate η_E", series, "power of d")


def _unequal(table, config: Config) -> Dots:
    found = ray_gaps(table, config)
    costs = [100 * np.array(values) for values in found.values()]
    means = [float(values.mean()) for values in costs]
    intervals = [analysis.t_interval(values) for values in costs]
    labels = [name.replace(" = ", "\n= ") for name in found]
    return Dots(
        "unequal settings", labels, [("mean over widths", means, intervals)], "least loss (%)", costs, "a width"
    )


def claims(table, config: Config, context) -> list[Claim]:
    """Does η_E fall with width, more slowly than 1/d; are equal hidden and output settings near-optimal?"""
    _, slope = optima(table, config)
    shared = dict(context) | {"source": "Hayou & Liu 2025, figure 1"}
    used = f"{slope.num_points} of {len(config.widths)} widths resolved"
    gap, interval = near_optimal(table, config)
    return [
        Claim(
            statement="at a fixed vocabulary the best embedding learning rate falls with width, more slowly than 1/d "
            "(exponent between −1 and 0)",
            paper_value="−1 < exponent < 0",
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=(-1.0, 0.0)),
            note=used,
            **shared,
        ),
        Claim(
            statement="the same init and rate for hidden and output matrices (and the same init for the embedding) is "
            f"near-optimal: within {config.tolerance:.0%} of the best setting tried",
            paper_value=f"≤ {config.tolerance}",
            value=gap,
            interval=interval,
            verdict=judge(gap, interval, claimed=(-np.inf, config.tolerance)),
            note="relative excess of the final train loss, mean over widths with its t interval; "
            + ("one factor changed at a time, at the best η_H" if config.design == "star" else "all changed together"),
            **shared,
        ),
    ]


EXPERIMENT = Experiment(
    name="width_fixed_vocab",
    question="at a fixed vocabulary, how does the best embedding learning rate move with width, and do hidden and "
    "output matrices want the same init and rate?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    follow_up=follow_up,
    paper="Hayou & Liu 2025",
    answers=("figure 1",),
)
