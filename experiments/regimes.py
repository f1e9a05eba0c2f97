"""How does the best embedding learning rate move when width and vocabulary move apart, and which rule transfers best?

No paper moves the vocabulary at a fixed width. Here width d × vocabulary m form a grid, each m with a BPE tokenizer of
its own on the same slice of text, and every cell goes equally often through it.

(a) At a common init (d^(−1/2)) and a common hidden rate (0.2/d), the embedding rate is swept: which powers of d and m
does its optimum follow? SP and μP (Hayou & Liu 2025, tables 1 and 2) say d^0, LVP d^(−1/2), `interpolated` what lies
between theorem 1's two regimes (`lvp.parametrization.embedding_ratio`).

(b) Each rule with its own init and all its rates: its one constant is tuned at the smallest cell and used at all
others. What does that cost against the best that is known of a cell?

    python -m sweeps run regimes --tier laptop      2 CPU cores, an hour
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.checks import sorted_values
from experiments.decoder_runs import (
    EMBEDDING,
    OPTIMUM_HEAD,
    DecoderRuns,
    best_known,
    geometric,
    grid,
    optimum_row,
    same,
    setting_of,
    where,
)
from experiments.experiment import CellLanes, Experiment
from lvp import analysis, parametrization
from lvp.analysis.claims import Claim, judge
from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat
from lvp.analysis.power_laws import with_interval
from lvp.errors import InputError
from lvp.training import Lane, check_positive

RULES = {"sp": "SP", "mup": "μP", "lvp": "LVP", "interpolated": "interpolated"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """No paper's set-up: shapes, batch and the common hidden rate are those of Hayou & Liu 2025, figure 3."""

    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    vocabs: tuple[int, ...] = (2048, 8192, 32768)
    epochs: float = 20.0  # so many times through the slice, whatever its number of tokens
    rates: tuple[float, ...] = geometric(2**-12, 2**-4, 9)
    rate_times_width: float = 0.2  # of (a): η_hidden = η_output = 0.2/d
    constants: tuple[float, ...] = geometric(0.0125, 1.6, 8)  # of (b): the hidden rate at the smallest cell, times d

    def __post_init__(self):
        super().__post_init__()
        for name in ("widths", "vocabs"):
            sorted_values(self, name)
        for name in ("rates", "constants"):
            sorted_values(self, name, least=3, positive=True)
        for name in ("epochs", "rate_times_width", "batch", "context"):
            check_positive(name, getattr(self, name))
        if min(self.widths) < 8:
            raise InputError(f"widths must be at least 8, got {self.widths}")
        if len(self.shapes) < 2:
            raise InputError("widths and vocabs make a single cell: a rule tuned there has no other to go to")

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(d, m), the smallest first."""
        return [(d, m) for d in self.widths for m in self.vocabs]


TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=8_000,
        valid_bytes=2_000,
        seeds=(0, 1),
        widths=(16, 24),
        vocabs=(256, 320),
        epochs=2.0,
        rates=geometric(0.004, 0.064, 3),
        constants=geometric(0.05, 0.8, 3),
        context=32,
        batch=4,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=60_000,
        valid_bytes=20_000,
        widths=(32, 64, 128),
        vocabs=(256, 1024, 4096),
        epochs=16.0,
        rates=geometric(0.002, 0.512, 9),
        context=64,
        batch=8,
    ),
    "gpu": Config(widths=(128, 256, 512, 1024), slice_bytes=2_000_000, valid_bytes=200_000, epochs=30.0),
    "paper": Config(epochs=180.0),  # figure 3's 10,000 steps at m 2048
}


def label(width: int, vocab: int) -> str:
    return f"d {width}, m {vocab}"


def cells(config: Config) -> list[CellLanes]:
    """A cell a shape, with the lanes of (a); at the smallest one also every constant of every rule."""
    found = []
    for width, vocab in config.shapes:
        fixed, std = same(config.rate_times_width / width), same(width**-0.5)
        lanes = [Lane(fixed | {"embedding": rate}, std, seed) for rate in config.rates for seed in config.seeds]
        if (width, vocab) == config.shapes[0]:
            for rule in RULES:
                lanes += [rule_lane(config, rule, c, width, vocab, s) for c in config.constants for s in config.seeds]
        cell = config.cell(width, vocab, _guessed_steps(config, vocab))
        found.append(CellLanes(label(width, vocab), cell, lanes, config.epochs))
    return found


def _guessed_steps(config: Config, vocab: int) -> int:
    """For the forecast: a token of English text stands for about log₂(m)/4 bytes."""
    num_bytes = config.slice_bytes or 10_000_000
    return max(1, round(config.epochs * num_bytes * 4 / np.log2(vocab) / (config.batch * config.context)))


def rule_lane(config: Config, rule: str, constant: float, width: int, vocab: int, seed: int) -> Lane:
    """A rule's lane at (d, m): its own init and rates, its η such that the hidden rate is constant/d at the smallest
    cell."""
    smallest, fewest = config.shapes[0]
    eta = constant / smallest / parametrization.table(rule, width=smallest, vocab=fewest)["hidden"].lr_multiplier
    return Lane.under(parametrization.table(rule, width=width, vocab=vocab), eta, seed)


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """Every rule at every other cell, with the constant that was best at the smallest."""
    chosen = {rule: tuned(table, config, rule) for rule in RULES}
    return {
        label(d, m): [rule_lane(config, rule, c, d, m, s) for rule, c in chosen.items() for s in config.seeds if c]
        for d, m in config.shapes[1:]
    }


# --- what the records say ---------------------------------------------------------------------------------------------

# Of a token of another vocabulary a nat is worth another number of bytes: these losses compare.
LOSS = "train_bits_per_byte"


def shape(width: int, vocab: int) -> dict[str, int]:
    """A cell, by the columns of the table."""
    return {"cell.model.width": width, "cell.model.vocab": vocab}


def rule_losses(table, config: Config, rule: str, constant: float, width: int, vocab: int) -> np.ndarray:
    """Final train loss [seeds] of a rule at a cell, in bits per byte; as `grid` has it."""
    columns = setting_of(rule_lane(config, rule, constant, width, vocab, config.seeds[0]))
    rows = where(table, shape(width, vocab) | columns)
    return grid(rows, [columns[EMBEDDING]], config.seeds, LOSS)[:, 0]


def tuned(table, config: Config, rule: str) -> float | None:
    """The constant of the least mean loss at the smallest cell; None where all diverged."""
    means = [rule_losses(table, config, rule, c, *config.shapes[0]).mean() for c in config.constants]
    return config.constants[int(np.nanargmin(means))] if np.isfinite(means).any() else None


def gap(table, config: Config, rule: str, constant: float | None, width: int, vocab: int) -> np.ndarray:
    """Loss of a rule with its tuned constant over the best known of a cell, less one [seeds]: seed by seed, so that
    what a seed does to all settings alike is no gap. NaN without a constant."""
    if constant is None:
        return np.full(len(config.seeds), np.nan)
    best = best_known(where(table, shape(width, vocab)), config.seeds, LOSS)
    return rule_losses(table, config, rule, constant, width, vocab) / best - 1


def gaps(table, config: Config) -> dict[str, np.ndarray]:
    """By rule, its gaps at all cells but the smallest [cells, seeds]."""
    constants = {rule: tuned(table, config, rule) for rule in RULES}
    return {r: np.array([gap(table, config, r, c, *at) for at in config.shapes[1:]]) for r, c in constants.items()}


def mean_and_worst(gap: np.ndarray) -> dict[str, tuple[float, tuple[float, float] | None]]:
    """Of gaps [cells, seeds]: the mean and the largest over cells, each with a 95 % t interval over seeds."""
    made = {}
    for name, over in (("mean", np.mean), ("worst", np.max)):
        value = float(over(gap.mean(axis=1)))
        made[name] = value, analysis.t_interval([over(column) for column in gap.T], centre=value)
    return made


def optima(table, config: Config):
    """The optimum of (a) at every shape, and the powers of width and vocabulary that they follow."""
    found = []
    for d, m in config.shapes:
        fixed = setting_of(Lane(same(config.rate_times_width / d), same(d**-0.5), 0))
        del fixed[EMBEDDING]
        found.append(grid(where(table, shape(d, m) | fixed), config.rates, config.seeds, LOSS))
    best = analysis.optima(config.rates, found)
    return best, powers(config, best)


def powers(config: Config, best, *, include_flagged: bool = False) -> analysis.Powers:
    widths, vocabs = zip(*config.shapes, strict=True)
    return analysis.powers({"width": widths, "vocab": vocabs}, best, include_flagged=include_flagged)


def _percent(value: float, interval) -> str:
    middle, *ends = (f"{round(100 * x, 1) + 0:.1f}" for x in (value, *(interval or ())))  # not "-0.0"
    return f"{middle} [{', '.join(ends)}]" if ends else middle


def summary(table, config: Config) -> str:
    """The optima of (a) and their powers; the gaps of (b)."""
    best, fit = optima(table, config)
    lines = [
        f"(a) best η_E at init d^(−1/2) and hidden rate {config.rate_times_width:g}/d; train loss in bits per byte"
    ]
    lines.append(f"{'width':>6} {'vocab':>6} {OPTIMUM_HEAD}  flags")
    for (d, m), o in zip(config.shapes, best, strict=True):
        numbers, flags = optimum_row(o)
        lines.append(f"{d:>6} {m:>6} {numbers}  {flags}")
    every = powers(config, best, include_flagged=True)
    for name in fit.powers:
        words = [f"{with_interval(*f.of(name))} from {which}" for which, f in (("resolved cells", fit), ("all", every))]
        lines.append(f"best η_E as a power of {name}, the other held: {', '.join(words)}")
    lines += _slices(config, best)
    lines += ["", "(b) train loss above the best known of each cell but the smallest, in %, 95 % intervals"]
    lines.append(f"{'rule':<13} {'constant':>9} {'where tuned':>12} {'mean':>22} {'worst':>22}  at")
    for rule, found in gaps(table, config).items():
        constant, made = tuned(table, config, rule), mean_and_worst(found)
        edge = "*" if constant in (config.constants[0], config.constants[-1]) else ""
        at = "d {}, m {}".format(*config.shapes[1:][int(np.argmax(found.mean(axis=1)))])
        cells_ = " ".join(f"{_percent(*made[name]):>22}" for name in ("mean", "worst"))
        own = _percent(float(gap(table, config, rule, constant, *config.shapes[0]).mean()), None)
        lines.append(f"{RULES[rule]:<13} {constant or np.nan:>8.4g}{edge or ' '} {own:>12} {cells_}  {at}")
    lines.append("constant: hidden rate times width at the smallest cell, tuned there (*: at the edge of its grid)")
    return "\n".join(lines)


def _slices(config: Config, best) -> list[str]:
    """The power of one quantity at each value of the other, through flagged cells too."""
    logs = dict(zip(config.shapes, np.log([o.rate for o in best]), strict=True))
    lines = []
    for name, moving, held, cell in (
        ("width", config.widths, config.vocabs, lambda d, m: (d, m)),
        ("vocab", config.vocabs, config.widths, lambda m, d: (d, m)),
    ):
        steep = [np.polyfit(np.log(moving), [logs[cell(x, y)] for x in moving], 1)[0] for y in held if len(moving) > 1]
        if steep and np.isfinite(steep).all():
            other = "m" if name == "width" else "d"
            words = ", ".join(f"{x:.2f} at {other} {y}" for x, y in zip(steep, held, strict=True))
            lines.append(f"power of {name} by slice, all cells: {words}")
    return lines


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Optima over width and vocabulary beside what the rules predict; and the rules' gaps."""
    best, _ = optima(table, config)
    size = len(config.widths), len(config.vocabs)
    measured = np.reshape([o.rate for o in best], size)
    doubtful = np.reshape([not o.resolved for o in best], size)
    names: dict[str, Any] = dict(
        rows=[f"{d}" for d in config.widths],
        columns=[f"{m}" for m in config.vocabs],
        ylabel="width d",
        xlabel="vocabulary m",
        scale="rate",
    )
    panels: list[Heat | Dots] = [Heat("measured best η_E", values=measured, doubtful=doubtful, **names)]
    for rule, title in (("sp", "SP, μP: d^0"), ("lvp", "LVP: d^(−1/2)"), ("interpolated", "interpolated")):
        rows = [parametrization.table(rule, width=d, vocab=m)["embedding"].lr_multiplier for d, m in config.shapes]
        predicted = np.reshape(rows, size)
        known = np.isfinite(measured) & ~doubtful
        anchor = np.exp(np.mean(np.log(measured[known] / predicted[known]))) if known.any() else 1.0
        panels.append(Heat(f"{title} (height fitted)", values=anchor * predicted, **names))
    found = {rule: 100 * each for rule, each in gaps(table, config).items()}
    made = {rule: mean_and_worst(each) for rule, each in found.items()}
    series = [
        (f"{name} over cells", [made[r][name][0] for r in RULES], [made[r][name][1] for r in RULES])
        for name in ("mean", "worst")
    ]
    panels.append(
        Dots(
            "constant tuned at the smallest cell only",
            list(RULES.values()),
            series,
            "train loss above best known (%)",
            [found[rule].mean(axis=1) for rule in RULES],
            "a cell",
        )
    )
    return sheet(
        panels,
        title="Best embedding learning rate over width and vocabulary, and what each rule's transfer costs",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Hatched: flagged (edge of the grid or within noise), not fitted. Predictions: each rule's powers, through "
            "the mean of the resolved cells.",
            "Intervals: 95 % over seeds.",
        ],
        size=(4.6, 3.8),
    )


def claims(table, config: Config, context) -> list[Claim]:
    """The powers of width and vocabulary; does LVP transfer better than SP and μP?"""
    best, fit = optima(table, config)
    every = powers(config, best, include_flagged=True)
    shared, found, made = dict(context), gaps(table, config), []
    for name, statement, paper_value, claimed, rivals in (
        (
            "width",
            "at fixed vocabulary the best embedding learning rate falls as width^(−1/2), not as width^0 or width^(−1)",
            -0.5,
            -0.5,
            (0.0, -1.0),
        ),
        (
            "vocab",
            "at fixed width the best embedding learning rate does not move with the vocabulary (its power is within "
            "0.1 of 0)",
            0.0,
            (-0.1, 0.1),
            (),
        ),
    ):
        verdicts = [judge(*f.of(name), claimed=claimed, rivals=rivals) for f in (fit, every)]
        made.append(
            Claim(
                statement=statement,
                source="Hayou & Liu 2025, table 2",
                paper_value=paper_value,
                value=fit.powers[name],
                interval=fit.intervals[name],
                verdict=verdicts[0] if verdicts[0] == verdicts[1] else "unresolved",
                note=f"{fit.num_points} of {len(best)} cells resolved; with the flagged ones, which must not change "
                f"the verdict, {with_interval(*every.of(name))}",
                **shared,
            )
        )
    for rival in ("sp", "mup", "interpolated"):
        with np.errstate(invalid="ignore"):  # where both diverged, there is no difference
            by_seed = (found[rival] - found["lvp"]).mean(axis=0)
            value, interval = float(by_seed.mean()), analysis.t_interval(by_seed)
        made.append(
            Claim(
                statement=f"tuned at the smallest cell only, LVP loses less than {RULES[rival]} at the others",
                source="Hayou & Liu 2025, section 3",
                paper_value="> 0",
                value=value,
                interval=interval,
                verdict=judge(value, interval, claimed=(0.0, np.inf)),
                note="difference of the mean relative gaps to each cell's best known loss, the rules' own levels "
                "included; t interval over seeds",
                **shared,
            )
        )
    return made


def evidence(table, config: Config) -> dict:
    """Table (b) as data: see `lvp.parametrization.evidence.transfer`."""
    found = {}
    for rule, each in gaps(table, config).items():
        constant = tuned(table, config, rule)
        own = gap(table, config, rule, constant, *config.shapes[0]).mean()
        row: dict[str, Any] = {"constant": constant, "tuned_gap": _finite(float(own))}
        for name, (value, interval) in mean_and_worst(each).items():
            row |= {f"{name}_gap": _finite(value), f"{name}_gap_interval": interval and list(map(_finite, interval))}
        found[rule] = row
    shapes = {"widths": list(config.widths), "vocabs": list(config.vocabs), "seeds": len(config.seeds)}
    return shapes | {"rules": found}


def _finite(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


EXPERIMENT = Experiment(
    name="regimes",
    question="how does the best embedding learning rate move when width and vocabulary move apart, and which rule "
    "transfers best?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    follow_up=follow_up,
    evidence=evidence,
    paper="Hayou & Liu 2025",
    answers=("table 2",),
)
