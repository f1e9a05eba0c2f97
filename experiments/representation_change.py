"""How large are changes of representations for updates of a given size, and why are they large early in training?

Kosson et al. 2024, section 6: for normalised gradient descent on a neuron the squared relative change of its outputs
(RRC², equation 9) grows with the signal-to-noise ratio φ of the gradient, once the batch B exceeds 1/φ; figure 4: φ
starts high and falls, B exceeds 1/φ for nearly all of training, the gradient points against its own momentum, and that
momentum cancels about half of it. Claimed here, each with the paper's value beside ours:

- equation 9 holds within 3 % from C = 64 inputs on, and is off by more below (calculated cells, by Monte Carlo);
- the limit of large C, which figure 4 draws, is equation 9 at the paper's C 768 and B 480 (not claimed, but used);
- φ falls (its first values over those of the last half of training), and B φ > 1 nearly throughout (LionAR with and
  without warm-up, figure 3's two runs);
- gradient and momentum are negatively aligned, and momentum cancels a quarter to three quarters of the gradient (both
  runs, and AdamW).

What is measured in training is of all hidden matrices as one vector; φ is per sequence, and a sequence of the smaller
tiers is shorter than the paper's 1024 tokens. The decoder of the two larger tiers is GPT-2's, that of the smaller ones
has sinusoidal positions and no biases.

    python -m sweeps run representation_change --tier laptop      2 CPU cores, four minutes of CPU time
    python -m sweeps run representation_change --tier laptop --set arms=      equation 9 alone, one minute
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from experiments import equation_nine
from experiments.checks import check_count, check_points, check_schedule, sorted_values
from experiments.decoder_runs import DecoderRuns, same, where
from experiments.experiment import Calculation, CellLanes, Experiment
from lvp import analysis
from lvp.analysis.claims import Claim, judge
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.errors import InputError
from lvp.models.configs import GPT2_FORM
from lvp.training import Cell, Lane, OptimizerConfig, check_positive


class Arm(NamedTuple):
    """An optimizer by its name in `training.OPTIMIZERS`, and whether its rate warms up."""

    optimizer: str
    warms_up: bool


ARMS = {
    "LionAR": Arm("lion_ar", False),
    "LionAR + warm-up": Arm("lion_ar", True),
    "AdamW + warm-up": Arm("adamw", True),
}
NAMES = {"lion_ar": "LionAR", "adamw": "AdamW"}
ROLE = "hidden"
EARLY, LATE, SETTLED = 0.01, 0.5, 0.05  # parts of the steps: φ's first values, its last ones; momentum is built up
PAPER = "Kosson et al. 2024, figure 4"


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are those of Kosson et al. 2024 (paper C), whose sections are named; the rest is ours, and says why.
    `layers` to `b2` are fields of every experiment with decoders."""

    # Section 3: GPT-2 124M on OpenWebText, but for the tokenizer: a BPE of the corpus' own.
    corpus: str = "text:openwebtext"
    layers: int = 12
    width: int = 768
    vocab: int = 50257
    gpt2: bool = True  # learned positions and biases; the head is tied at every tier
    context: int = 1024
    batch: int = 480
    micro_batches: int = 40  # nanoGPT's
    steps: int = 5000
    b2: float = 0.95
    # b1 is 0.9, of AdamW and as LionAR's β.
    weight_decay: float = 0.1
    warmup: float = 0.05  # figure 3
    cooldown: float = 0.5
    lion_rate: float = 0.01  # figure 3
    adamw_rate: float = 0.001  # not stated for figure 4, which has LionAR alone
    init_std: float | None = 0.02  # nanoGPT's, which section 3 adopts; None is width^(−1/2)
    seeds: tuple[int, ...] = (0, 1)
    points: int = 60  # measured steps at equal distances; the first ones come on top
    arms: tuple[str, ...] = tuple(ARMS)
    # Equation 9: B, C and φ, and how many random numbers a simulation may take.
    batch_sizes: tuple[int, ...] = (1, 16, 480)
    fan_ins: tuple[int, ...] = (8, 16, 64, 256, 768)
    snrs: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 1 / 480, 5e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    numbers: int = 1_000_000_000

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "width")
        check_points(self, most=self.steps)
        for name in ("batch_sizes", "fan_ins", "snrs"):
            sorted_values(self, name, positive=True)
        check_count(self, "numbers")
        for name in ("lion_rate", "adamw_rate", "weight_decay"):
            check_positive(name, getattr(self, name))
        check_schedule(self.warmup, self.cooldown)
        if self.micro_batches < 2:
            raise InputError(f"micro_batches must be at least 2, or there is no φ to measure, got {self.micro_batches}")
        for given in self.arms:
            if given not in ARMS:
                raise InputError(f"arms must be of {', '.join(ARMS)}, got {given!r}")

    @property
    def measured_steps(self) -> tuple[int, ...]:
        """At equal distances from the first to the last, and the powers of two before them."""
        spread = np.linspace(0, self.steps - 1, self.points).round().astype(int)
        early = {2**k for k in range(20) if 2**k < spread[1]}
        return tuple(sorted({*spread.tolist(), *early}))


TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        layers=1,
        width=16,
        vocab=300,
        gpt2=False,
        context=32,
        batch=8,
        micro_batches=4,
        steps=40,
        init_std=None,
        points=8,
        batch_sizes=(1, 32),
        fan_ins=(8, 64),
        snrs=(1e-4, 1 / 480, 0.01, 0.1, 0.3, 1.0),
        numbers=4_000_000,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=4_000_000,
        valid_bytes=100_000,
        layers=2,
        width=64,
        vocab=2048,
        gpt2=False,
        context=64,
        batch=32,
        micro_batches=8,
        steps=800,
        adamw_rate=0.004,
        init_std=None,
        numbers=100_000_000,
    ),
    "gpu": Config(
        corpus="wikitext2",
        layers=4,
        width=256,
        vocab=8192,
        context=256,
        micro_batches=8,
        steps=1500,
        init_std=None,
    ),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """Equation 9, a cell for every C; and a trained one for every optimizer, in which its arms differ by warm-up."""
    return [*calculations(config), *trained(config)]


def calculations(config: Config) -> list[CellLanes]:
    found, lanes = [], [{"batch": batch} for batch in config.batch_sizes]
    for fan_in in config.fan_ins:
        arguments = {"fan_in": fan_in, "snrs": list(config.snrs), "numbers": config.numbers, "seed": config.seeds[0]}
        cell = Calculation(arguments, equation_nine.FLOPS_PER_NUMBER * config.numbers)
        found.append(CellLanes(f"equation 9, C {fan_in}", cell, lanes))
    return found


def trained(config: Config) -> list[CellLanes]:
    found = []
    for kind, name in NAMES.items():
        arms = [ARMS[arm] for arm in config.arms if ARMS[arm].optimizer == kind]
        lanes = [lane(config, arm, seed) for arm in arms for seed in config.seeds]
        if lanes:
            found.append(CellLanes(name, trained_cell(config, kind), lanes))
    return found


def trained_cell(config: Config, kind: str) -> Cell:
    constants = {"lion_ar": {"b": config.b1}, "adamw": config.adam.options}[kind]
    decay = {role: config.weight_decay for role in ("embedding", "position", "hidden", "output")}
    optimizer = OptimizerConfig(kind, {**constants, "weight_decay": decay})
    training = {"micro_batches": config.micro_batches, "cooldown": config.cooldown, "measures": ("gradients",)}
    shape = config.width, config.vocab, config.steps
    model = GPT2_FORM if config.gpt2 else {"tied": True}
    return config.cell(*shape, optimizer, config.measured_steps, training, **model)


def lane(config: Config, arm: Arm, seed: int) -> Lane:
    """One rate for all roles."""
    rate = config.lion_rate if arm.optimizer == "lion_ar" else config.adamw_rate
    std = config.width**-0.5 if config.init_std is None else config.init_std
    return Lane(same(rate), same(std), seed, warmup_steps=warmup_steps(config, arm))


def warmup_steps(config: Config, arm: Arm) -> int:
    return round(config.warmup * config.steps) if arm.warms_up else 0


def calculate(arguments: Mapping[str, Any], lane: Mapping[str, Any], dataset) -> dict[str, Any]:
    return equation_nine.calculate(arguments, lane)


# --- what the records say ---------------------------------------------------------------------------------------------


def readings(table, config: Config, name: str):
    """The lanes of an arm, a row a seed and nothing but NaN in it where that one is missing or diverged; empty where
    none finished."""
    arm = ARMS[name]
    columns = {"cell.optimizer.kind": arm.optimizer, "lane.warmup_steps": warmup_steps(config, arm)}
    rows = where(table, columns | {"status": "finished"})
    return rows.set_index("lane.seed").reindex(list(config.seeds)) if len(rows) else rows


def measured(rows, config: Config, what: str) -> np.ndarray:
    """A measure of the hidden matrices [seeds, measured steps]; NaN where there is none."""
    gap = [np.nan] * len(config.measured_steps)
    column = rows.get(f"measures.roles.{ROLE}.{what}", [gap] * len(rows))
    return np.array([x if isinstance(x, list) else gap for x in column], float).reshape(len(rows), len(gap))


def over_training(values: np.ndarray, config: Config, start: float = 0.0, stop: float = 1.0) -> np.ndarray:
    """Means [seeds] of values [seeds, measured steps] over a part of training. A measured step counts for the steps
    nearest to it, for the first ones lie closer together; one that is NaN counts for none."""
    steps = np.array(config.measured_steps)
    within = (steps >= start * config.steps) & ((steps <= stop * config.steps) | (steps == 0))
    weights = np.where(np.isfinite(values), np.gradient(steps.astype(float)), 0.0)[:, within]
    total = weights.sum(axis=1)
    return np.divide(
        (weights * np.nan_to_num(values[:, within])).sum(axis=1),
        total,
        out=np.full(len(values), np.nan),
        where=total > 0,
    )


def falls(rows, config: Config) -> np.ndarray:
    """ln of φ's first values over its last ones [seeds]; NaN where these are not positive."""
    snr = measured(rows, config, "snr")
    ratio = over_training(snr, config, stop=EARLY) / over_training(snr, config, start=LATE)
    return np.log(np.where(ratio > 0, ratio, np.nan))


def exceeds(rows, config: Config) -> np.ndarray:
    """The part of training in which B > 1/φ [seeds]."""
    snr = measured(rows, config, "snr")
    return over_training(np.where(np.isfinite(snr), config.batch * snr > 1, np.nan), config)


def settled(rows, config: Config, what: str) -> np.ndarray:
    """A measure's mean over training once momentum is built up [seeds]."""
    return over_training(measured(rows, config, what), config, start=SETTLED)


def summary(table, config: Config) -> str:
    """Equation 9 against simulation; and of every arm φ, its relation to B, and what momentum does to the gradient."""
    blocks = [equation_nine.lines(table)]
    if any(len(readings(table, config, name)) for name in config.arms):
        blocks.append(_trained_lines(table, config))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) or "nothing has run"


def _trained_lines(table, config: Config) -> list[str]:
    lines = [
        f"hidden matrices, means over seeds and steps; B {config.batch} sequences of {config.context} tokens, "
        f"{config.steps} steps",
        f"{'arm':<18} {'bits/byte':>9} {'φ: first':>9} {'last half':>10} {'B φ > 1':>8} {'cosine':>7} "
        f"{'cancelled':>10}",
    ]
    for name in config.arms:
        rows = readings(table, config, name)
        if not len(rows):
            lines.append(f"{name:<18} no finished lane")
            continue
        snr = measured(rows, config, "snr")
        ends = [over_training(snr, config, stop=EARLY), over_training(snr, config, start=LATE)]
        rest = [exceeds(rows, config), settled(rows, config, "alignment"), settled(rows, config, "cancelled")]
        first, last, share, cosine, cancelled = (_mean(x) for x in (*ends, *rest))
        line = f"{name:<18} {rows['valid_bits_per_byte'].mean():>9.3f} {first:>9.2g} {last:>10.2g} {share:>8.0%} "
        lines.append((line + f"{cosine:>7.2f} {cancelled:>10.2f}").replace("nan", "  –"))
    lines.append(
        f"φ: first {EARLY:.0%} and last {1 - LATE:.0%} of the steps; B φ > 1: part of training; cosine of gradient and "
        f"momentum, and what part of the gradient momentum cancels: after {SETTLED:.0%} of the steps"
    )
    return lines


def _mean(values: np.ndarray) -> float:
    """Over the seeds that finished; NaN without one."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Equation 9 beside its simulation and limit, its error; φ, alignment and cancelled gradient over training."""
    per_batch, half = [(1 / config.batch, f"1/B, B = {config.batch}")], [(0.5, "half (figure 4)")]
    late = f"gradient cancelled by momentum, from {SETTLED:.0%} of the steps on"
    snr, cosine = "signal-to-noise ratio of the gradient", "gradient against momentum"
    panels = [
        *equation_nine.panels(table),
        _over_steps(table, config, "snr", snr, "φ per sequence", per_batch, power=True),
        # At the first step there is no momentum yet.
        _over_steps(table, config, "alignment", cosine, "cosine", [(0.0, "no alignment")], start=1 / config.steps),
        _over_steps(table, config, "cancelled", late, "part of the gradient", half, start=SETTLED),
    ]
    return sheet(
        [panel for panel in panels if panel.series],
        title="How far an update of given size changes representations, and the gradient's signal over training",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Markers: Monte Carlo with standard errors (most are smaller than the marker). RRC² = E[Δy²]/E[y²] of "
            "normalised gradient descent, equation 7.",
            "Over training: all hidden matrices as one vector, means over seeds. φ below zero, as its estimate may "
            "come out, leaves a gap.",
        ],
    )


def _over_steps(
    table, config: Config, what: str, title: str, ylabel: str, levels, *, power: bool = False, start: float = 0.0
) -> Panel:
    """A measure of every arm from a part of the steps on; `power`: log-log, and what is not positive left out."""
    steps = np.array(config.measured_steps)
    shown, series = steps >= start * config.steps, []
    for name in config.arms:
        values = measured(readings(table, config, name), config, what)[:, shown]
        values = values[np.isfinite(values).any(axis=1)]
        if len(values):
            mean = values.mean(axis=0)
            mean = np.where(mean > 0, mean, np.nan) if power else mean
            series.append(Series(name, steps[shown] + 1, mean, line=True))
    scales: dict[str, Any] = {} if power else {"xscale": "linear", "yscale": "linear"}
    return Panel(title, "step", ylabel, series, levels=levels, **scales)


def claims(table, config: Config, context) -> list[Claim]:
    """Equation 9's, and figure 4's of the arms that were trained."""
    made = equation_nine.claims(table, context)
    for statement, paper_value, logs, values, claimed, note in _figure_4(table, config):
        interval = analysis.t_interval(values)
        value = float(np.mean(values)) if len(values) else None  # a seed that diverged is not left out
        if logs and value is not None:
            value, interval = np.exp(value), interval and tuple(np.exp(interval))
        verdict = judge(value, interval, claimed=claimed)
        parts = dict(statement=statement, source=PAPER, paper_value=paper_value, note=note)
        made.append(Claim(value=value, interval=interval, verdict=verdict, **parts, **dict(context)))
    return made


def _figure_4(table, config: Config):
    """Statement, paper's value, whether ours are logarithms, ours by seed, claimed region, note."""
    batch = f"B = {config.batch} sequences of {config.context} tokens"
    for name in config.arms:
        rows = readings(table, config, name)
        if ARMS[name].optimizer == "lion_ar":
            note = f"mean over the first {EARLY:.0%} of the steps over that of the last {1 - LATE:.0%}, hidden matrices"
            yield (
                f"the gradient's φ starts high and falls ({name})",
                "> 1",
                True,
                falls(rows, config),
                (1, np.inf),
                note,
            )
            note = f"part of training in which B > 1/φ, at least 0.9; {batch}; paper: 480 of 1024"
            statement = f"the batch exceeds 1/φ for nearly all of training ({name})"
            yield statement, "nearly 1", False, exceeds(rows, config), (0.9, np.inf), note
        note = f"mean cosine after the first {SETTLED:.0%} of the steps, hidden matrices as one vector"
        values = settled(rows, config, "alignment")
        yield f"gradient and momentum are negatively aligned ({name})", "< 0", False, values, (-np.inf, 0), note
        note = f"−⟨β m, (1−β) g⟩/‖(1−β) g‖² after the first {SETTLED:.0%} of the steps, within 0.25 and 0.75"
        values = settled(rows, config, "cancelled")
        yield f"momentum cancels about half of the gradient ({name})", 0.5, False, values, (0.25, 0.75), note


EXPERIMENT = Experiment(
    name="representation_change",
    question="how far do updates of a given size change representations, and why most of all early in training?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    calculate=calculate,
    paper="Kosson, Messmer & Jaggi 2024",
    answers=("figure 4",),
)
