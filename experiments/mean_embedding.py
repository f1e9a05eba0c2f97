"""Which optimizers drag the embeddings off centre, does Adam's second moment follow token frequency, and what does an
embedding rate √d times the others do to it?

Stollenwerk & Stollenwerk 2025 (paper B): the gradients of an LM head sum to zero over the vocabulary, so SGD leaves the
mean embedding where it was; Adam divides by √v̂_i, which differ between tokens (E[v̂_i] = A p_i), and moves it. Coupled
Adam (arXiv 2502.08441) shares v̂ over the vocabulary. Here with a head of its own and with a tied one, each optimizer
at its tuned rate; and the question that joins paper B to paper A (Hayou & Liu 2025): does the √d-rule worsen the
drift, and does coupling mend that at no loss?

One rate for all roles (times √d for the embedding in the arms that say so), init d^(−1/2). Rates are tuned on the
validation loss of the first seed; the other seeds run at the tuned rate alone.

    python -m sweeps run mean_embedding --tier laptop      2 CPU cores, ten minutes
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from experiments.checks import check_count, check_names, sorted_values
from experiments.decoder_runs import DecoderRuns, geometric, of_optimizer, same, where
from experiments.experiment import CellLanes, Experiment
from lvp.analysis.claims import Claim, of_values
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.analysis.update_vectors import toys
from lvp.errors import InputError
from lvp.training import Cell, Lane, OptimizerConfig

# Name → kind, options, and the configured list of its rates. Both kinds of Adam take the configured constants too.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "SGD": ("sgd", {}, "sgd_rates"),
    "momentum SGD": ("sgd", {"momentum": 0.9}, "momentum_rates"),
    "SignSGD": ("sign_sgd", {}, "sign_rates"),
    "LionA": ("lion_a", {}, "adam_rates"),
    "Adam": ("adam", {}, "adam_rates"),
    "Coupled Adam": ("coupled_adam", {"couple": ["output", "embedding"]}, "adam_rates"),
}


class Arm(NamedTuple):
    """An optimizer by name, and whether the embedding's rate is √d times the others'."""

    optimizer: str
    scaled: bool = False


ARMS = {name: Arm(name) for name in OPTIMIZERS}
ARMS |= {f"{name} √d": Arm(name, scaled=True) for name in ("Adam", "Coupled Adam")}
HEADS = {"untied": False, "tied": True}
# The vocabulary matrices of each form, by path, as the measures name them.
HEAD = {"untied": "head/kernel", "tied": "tied_embedding/embedding"}
EMBEDDING = {"untied": "embedding/embedding", "tied": "tied_embedding/embedding"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Paper B gives no set-up for the section that we have; width and batch of the larger tiers are paper A's."""

    width: int = 768
    vocab: int = 32768
    steps: int = 10_000
    adam_rates: tuple[float, ...] = geometric(2**-13, 2**-7, 7)  # Adam, Coupled Adam, LionA
    sign_rates: tuple[float, ...] = geometric(2**-15, 2**-9, 7)
    sgd_rates: tuple[float, ...] = geometric(2**-3, 2**5, 5)
    momentum_rates: tuple[float, ...] = geometric(2**-6, 2**2, 5)
    measured: tuple[float, ...] = (0.0, 0.05, 0.2, 0.5, 1.0)  # parts of the steps
    arms: tuple[str, ...] = tuple(ARMS)
    heads: tuple[str, ...] = tuple(HEADS)

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "width")
        for name in ("adam_rates", "sign_rates", "sgd_rates", "momentum_rates"):
            sorted_values(self, name, positive=True)
        sorted_values(self, "measured", least=2)
        if not 0 <= self.measured[0] <= self.measured[-1] <= 1:
            raise InputError(f"measured holds parts of the steps, from 0 to 1, got {self.measured}")
        check_names("arms", self.arms, ARMS)
        check_names("heads", self.heads, HEADS)

    @property
    def measured_steps(self) -> tuple[int, ...]:
        return tuple(sorted({min(round(part * self.steps), self.steps - 1) for part in self.measured}))


TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        seeds=(0, 1),
        layers=1,
        context=32,
        batch=4,
        width=16,
        vocab=300,
        steps=40,
        adam_rates=(0.004, 0.016),
        sign_rates=(0.004,),
        sgd_rates=(1.0,),
        momentum_rates=(0.1,),
        measured=(0.0, 0.5, 1.0),
        arms=("SGD", "Adam", "Adam √d"),
        heads=("untied",),
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=400_000,
        valid_bytes=50_000,
        context=64,
        batch=8,
        width=64,
        vocab=2048,
        steps=600,
        adam_rates=geometric(0.0005, 0.016, 6),
        sign_rates=geometric(0.0005, 0.016, 6),
        sgd_rates=geometric(0.125, 32, 5),
        momentum_rates=geometric(0.03125, 8, 5),
    ),
    "gpu": Config(slice_bytes=20_000_000, valid_bytes=400_000, width=256, vocab=8192, steps=2000),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """A cell for every optimizer and form of head; arms of one optimizer share it."""
    found = []
    for head, name in product(config.heads, OPTIMIZERS):
        arms = [ARMS[arm] for arm in config.arms if ARMS[arm].optimizer == name]
        lanes = [lane(config, arm, head, rate, config.seeds[0]) for arm in arms for rate in rates_of(config, arm)]
        if lanes:
            found.append(CellLanes(f"{name}, {head}", _cell(config, name, head), lanes))
    return found


def rates_of(config: Config, arm: Arm) -> tuple[float, ...]:
    return getattr(config, OPTIMIZERS[arm.optimizer][2])


def _cell(config: Config, name: str, head: str) -> Cell:
    kind, options, _ = OPTIMIZERS[name]
    constants = config.adam.options if "adam" in kind else {}
    optimizer = OptimizerConfig(kind, {**constants, **options})
    shape, of = (config.width, config.vocab, config.steps), {"measures": ("vocabulary",)}
    return config.cell(*shape, optimizer, config.measured_steps, of, tied=HEADS[head])


def lane(config: Config, arm: Arm, head: str, rate: float, seed: int) -> Lane:
    """One rate for all, and √d times that for what embeds, if the arm says so."""
    rates = same(rate)
    if arm.scaled:
        rates["output" if HEADS[head] else "embedding"] *= config.width**0.5
    return Lane(rates, same(config.width**-0.5), seed)


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The other seeds of every arm at its tuned rate."""
    found: dict[str, list[Lane]] = {}
    for head, arm in product(config.heads, (ARMS[name] for name in config.arms)):
        rate = tuned(table, config, arm, head)
        more = [] if rate is None else [lane(config, arm, head, rate, seed) for seed in config.seeds[1:]]
        found.setdefault(f"{arm.optimizer}, {head}", []).extend(more)
    return found


# --- what the records say ---------------------------------------------------------------------------------------------


def _rows(table, config: Config, arm: Arm, head: str, rate: float):
    """The lanes of an arm at a rate, by seed."""
    cell, example = _cell(config, arm.optimizer, head), lane(config, arm, head, rate, config.seeds[0])
    columns: dict[str, Any] = {"cell.model.tied": HEADS[head]}
    columns |= {f"lane.learning_rates.{r}": example.learning_rates[r] for r in ("embedding", "hidden", "output")}
    return where(of_optimizer(table, cell), columns).sort_values("lane.seed")


def tuned(table, config: Config, arm: Arm, head: str) -> float | None:
    """The rate of the least validation loss of the first seed; None where every rate diverged or has no lane."""
    losses = {}
    for rate in rates_of(config, arm):
        rows = where(_rows(table, config, arm, head, rate), {"lane.seed": config.seeds[0], "status": "finished"})
        if len(rows):
            losses[rate] = rows["valid_loss"].iloc[0]
    return min(losses, key=losses.__getitem__) if losses else None


def readings(table, config: Config, name: str, head: str):
    """The lanes of an arm at its tuned rate, a row a seed and nothing but NaN in it where that one is missing or
    diverged; empty where no rate finished."""
    rate = tuned(table, config, ARMS[name], head)
    if rate is None:
        return table[:0]
    rows = _rows(table, config, ARMS[name], head, rate)
    return rows[rows["status"] == "finished"].set_index("lane.seed").reindex(list(config.seeds))


def measured(rows, path: str, what: str) -> np.ndarray:
    """A measure of a vocabulary matrix [seeds, measured steps, ...]; NaN where there is none."""
    column = f"measures.vocabulary.{path}.{what}"
    lists = [x for x in rows.get(column, ()) if isinstance(x, list)]
    if not lists:
        return np.full((len(rows), 1), np.nan)
    gap = np.full(np.shape(np.array(lists[0], float)), np.nan)
    return np.array([np.array(x, float) if isinstance(x, list) else gap for x in rows[column]])


def _mean(values: np.ndarray) -> float:
    """Over the seeds that finished; NaN without one."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def last(rows, path: str, what: str) -> np.ndarray:
    """The same at the last measured step [seeds]."""
    return measured(rows, path, what)[:, -1]


def moment_fit(table, config: Config, head: str) -> tuple[np.ndarray, np.ndarray]:
    """Of Adam's head: R² of v̂ against frequency (mean over the measured steps but the first) and A times the tokens of
    a step, which is about E[h²] (last measured step); [seeds] each."""
    rows = readings(table, config, "Adam", head)
    r_squared = np.array([points[1:].mean() for points in measured(rows, HEAD[head], "r_squared")])
    return r_squared, last(rows, HEAD[head], "slope") * config.batch * config.context


def summary(table, config: Config) -> str:
    """Every arm at its tuned rate: validation loss, and the geometry of its vocabulary matrices at the end."""
    columns = f"{'optimizer':<17} {'rate':>8} {'bits/byte':>10} {'drift: head':>12} {'embedding':>10}"
    columns += f" {'cosine':>8} {'isotropy':>9} {'R²':>6}"
    lines = []
    for head in config.heads:
        about = "means over seeds; cosine, isotropy and R² of v̂ against frequency are the head's"
        lines += [f"{head} head, {about}", columns]
        for name in config.arms:
            arm = ARMS[name]
            rows, rate = readings(table, config, name, head), tuned(table, config, arm, head)
            if not len(rows):
                lines.append(f"{name:<17} no finished lane")
                continue
            edge = "*" if rate in (rates_of(config, arm)[0], rates_of(config, arm)[-1]) else " "
            numbers = [last(rows, HEAD[head], "mean_drift"), last(rows, EMBEDDING[head], "mean_drift")]
            numbers += [last(rows, HEAD[head], what) for what in ("average_cosine", "isotropy", "r_squared")]
            drift, own, cosine, isotropy, fit = map(_mean, numbers)
            line = f"{name:<17} {rate:>7.4g}{edge} {rows['valid_bits_per_byte'].mean():>10.3f} {drift:>12.2g} "
            lines.append(line + f"{own:>10.2g} {cosine:>8.3f} {isotropy:>9.2g} {fit:>6.2f}".replace("nan", "  –"))
        lines.append("")
    for head in config.heads:
        r_squared, scale = moment_fit(table, config, head)
        if not len(scale):
            continue
        lines.append(
            f"Adam, {head}: R² of v̂ against frequency {_mean(r_squared):.2f} over the measured steps; slope A times "
            f"the tokens of a step {_mean(scale):.2g} (E[h²] is about 1 behind the last norm)"
        )
    lines.append("drift: of the mean row from its start, over the mean norm of a row. *: rate at the edge of its grid")
    return "\n".join(lines)


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """The toy, drift over training, second moment and update size against frequency, and drift against loss."""
    return sheet(
        [*toys(), _drift(table, config), _moments(table, config), _sizes(table, config), _costs(table, config)],
        title="What optimizers do to the mean embedding",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Toy: three embeddings, hidden state h, the updates after one token (e1 is the true one), in grey their "
            "sum. Dashed: v̂ = A p through the origin.",
            "Drift below 1e-9 is drawn there; its bars are as long as what lies between seeds. Means over seeds, each "
            "optimizer at its tuned rate.",
        ],
    )


OF_BIN = "mean frequency p of a bin's tokens"


def _drift(table, config: Config) -> Panel:
    series, steps = [], np.array(config.measured_steps[1:]) + 1
    for name in OPTIMIZERS:
        if len(rows := readings(table, config, name, "untied")):
            values = measured(rows, HEAD["untied"], "mean_drift")[:, 1:]
            means, spread = np.nanmean(values, axis=0), (np.nanmax(values, axis=0) - np.nanmin(values, axis=0)) / 2
            series.append(Series(name, steps, np.maximum(means, 1e-9), error=spread))
    return Panel("drift of the mean output embedding, untied", "step", "‖μ − μ₀‖ / mean ‖e_i‖", series)


def _by_bin(rows, head: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean frequency of a bin and what was measured there at the last step, over seeds; bins where both exist."""
    found = [measured(rows, HEAD[head], f"by_frequency.{each}")[:, -1] for each in ("frequency", what)]
    finished = np.isfinite(found[0]).any(axis=1)
    x, y = (values[finished].mean(axis=0) for values in found)
    return x[(x > 0) & (y > 0)], y[(x > 0) & (y > 0)]


def _moments(table, config: Config) -> Panel:
    series = []
    for head in config.heads:
        if len(rows := readings(table, config, "Adam", head)):
            x, y = _by_bin(rows, head, "second_moment")
            line = _mean(last(rows, HEAD[head], "slope_through_origin")) * x
            series.append(Series(head, x, y, predicted=line))
    return Panel("Adam: second moment of the head, last step", OF_BIN, "mean v̂", series, named_ticks=False)


def _sizes(table, config: Config) -> Panel:
    found = [(name, readings(table, config, name, "untied")) for name in OPTIMIZERS]
    series = [Series(name, *_by_bin(rows, "untied", "norm")) for name, rows in found if len(rows)]
    title = "size of a token's update in the untied head, last step"
    return Panel(title, OF_BIN, "mean ‖u_i‖", series, named_ticks=False)


def _costs(table, config: Config) -> Panel:
    series = []
    for name, head in product(("Adam", "Coupled Adam", "Adam √d", "Coupled Adam √d"), config.heads):
        if len(rows := readings(table, config, name, head)):
            bits = rows["valid_bits_per_byte"].to_numpy()
            series.append(Series(f"{name}, {head}", last(rows, EMBEDDING[head], "mean_drift"), bits))
    title = "drift against loss, tuned, a point a seed"
    return Panel(title, "drift of the mean input embedding", "validation bits/byte", series)


DRIFT = "drift of the mean row over the mean norm of a row, at the end; t interval over seeds"
OWN = "each arm at its own tuned rate"
PAPER_B = "Stollenwerk & Stollenwerk 2025"
BOTH = f"{PAPER_B}; Hayou & Liu 2025"


def claims(table, config: Config, context) -> list[Claim]:
    """Paper B's, and the two that join it to paper A."""
    made = []
    for row in [*_paper_b(table, config), *_joined(table, config)]:
        statement, source, paper_value, values, claimed, note = row
        parts = dict(statement=statement, source=source, paper_value=paper_value, note=note)
        made.append(of_values(values, claimed=claimed, **parts, **dict(context)))
    return made


def _paper_b(table, config: Config):
    """Statement, source, paper's value, ours by seed, claimed region, note."""
    for name in [n for n in ("SGD", "momentum SGD", "Coupled Adam") if n in config.arms and "untied" in config.heads]:
        values = last(readings(table, config, name, "untied"), HEAD["untied"], "mean_drift")
        statement = f"{name} leaves the mean of an untied LM head where it was, to rounding"
        yield statement, PAPER_B, 0.0, values, (-np.inf, 1e-5), f"{DRIFT}; rounding is taken as 1e-5"
    for head in config.heads if "Adam" in config.arms else ():
        values = last(readings(table, config, "Adam", head), HEAD[head], "mean_drift")
        statement = f"Adam moves the mean of the {head} head"
        yield statement, PAPER_B, "> 0", values, (0.01, np.inf), f"{DRIFT}; at least 0.01"
    for head in config.heads if "Adam" in config.arms else ():
        r_squared, scale = moment_fit(table, config, head)
        statement = f"Adam's second moment is linear in token frequency ({head} head)"
        note = "R², at least 0.78: mean over the measured steps, t interval over seeds"
        yield statement, PAPER_B, "R² = 0.85(7)", r_squared, (0.78, 1.0), note
        statement = f"its slope A is E[h²] over the tokens of a step, in order of magnitude ({head} head)"
        note = "log₁₀ of A times tokens per step; E[h²] is about 1 behind the last norm"
        yield statement, PAPER_B, "A ≈ 10⁻⁴ in its set-up", np.log10(scale), (-1.0, 1.0), note


def _joined(table, config: Config):
    """The same of the question that joins both papers."""
    for head in config.heads if {"Adam", "Adam √d", "Coupled Adam √d"} <= set(config.arms) else ():
        which = "tied matrix" if HEADS[head] else "input embedding"
        arms = [readings(table, config, name, head) for name in ("Adam", "Adam √d", "Coupled Adam √d")]
        plain, scaled, mended = (last(rows, EMBEDDING[head], "mean_drift") for rows in arms)
        statement = f"an embedding rate √d times the others' worsens Adam's drift of the {which}"
        yield statement, BOTH, "–", _paired(scaled, plain), (0.0, np.inf), f"difference in {DRIFT}; {OWN}"
        statement = f"Coupled Adam with that embedding rate drifts less in the {which} than Adam without it"
        yield statement, BOTH, "–", _paired(plain, mended), (0.0, np.inf), f"difference in {DRIFT}; {OWN}"
        bits = [rows["valid_bits_per_byte"].to_numpy(float) for rows in arms[1:] if len(rows)]
        statement = f"with that embedding rate Coupled Adam loses nothing against Adam ({head} head)"
        note = f"difference in validation bits per byte, within 0.01; t interval over seeds; {OWN}"
        yield statement, BOTH, "≤ 0", _paired(*bits[::-1]) if len(bits) == 2 else [], (-np.inf, 0.01), note


def _paired(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Differences seed by seed; NaN where a seed is missing on either side, empty where an arm is."""
    return first - second if len(first) and len(second) else np.array([])


EXPERIMENT = Experiment(
    name="mean_embedding",
    question="which optimizers drag the embeddings off centre, and does an embedding rate of √d times the others' "
    "worsen it?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    follow_up=follow_up,
    paper=PAPER_B,
    answers=("toy figure", "second moment against token frequency"),
)
