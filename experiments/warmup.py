"""Which optimizers need warm-up, by which measure are their first updates too large, and what removes the need?

Kosson, Messmer & Jaggi 2024 (paper C) train GPT-2 under a trapezoid schedule whose peak and cool-down do not depend on
the warm-up, and sweep learning rate × warm-up. AdamW without warm-up keeps a lasting gap (figure 1); LionA, whose
update norm follows the schedule, a smaller one (figure 2); so does LionAR, whose angular update does (figure 3). LionAR
that holds the relative representation change gains nothing from warm-up, without momentum it is much worse, and with
high momentum, Nesterov's form and inverse bias correction it needs none, while LionA does (figure 5).

All roles have one rate and one init. The gap is the validation loss without warm-up less that with the best warm-up,
each at its best rate; warm-up and rates are chosen by the first seeds, and the gap is read from other seeds, which run
at the chosen rates alone: the least of several noisy losses would be too good.

    python -m sweeps run warmup --tier laptop --corpus wikitext2      2 CPU cores, two hours
    python -m sweeps run warmup --tier gpu                            one accelerator, an hour or two
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from experiments.experiment import Experiment
from experiments.warmup_reading import (
    at_edge,
    best_rate,
    best_warmup,
    departure,
    early,
    gap,
    losses,
    over_time,
    rows,
    schedule,
    tuned_losses,
)
from experiments.warmup_runs import ARMS, TIERS, Config, arm_cell, arm_lane, cells, rates_of
from lvp import analysis
from lvp.analysis.claims import ABOVE_ZERO, Claim, of_values
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.training import Lane


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The other seeds, at every arm's best rate of each warm-up."""
    labels = [(c.label, c.cell) for c in cells(config)]
    found: dict[str, list[Lane]] = {}
    for name in config.arms:
        (label,) = [label for label, cell in labels if cell == arm_cell(config, name)]
        for warmup in config.warmups:
            rate = best_rate(table, config, name, warmup)
            more = [arm_lane(config, name, rate, warmup, seed) for seed in config.more_seeds if rate]
            found.setdefault(label, []).extend(more)
    return found


def _interval(values: np.ndarray) -> str:
    interval = analysis.t_interval(values)
    if not np.isfinite(values).all():
        return "–"
    ends = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return f"{values.mean():.3f}{ends}"


def summary(table, config: Config) -> str:
    """Every arm: the best rate and loss of each warm-up, and what no warm-up costs."""
    heads = "".join(f"{f'{w:.0%}: rate':>12} {'loss':>7}" for w in config.warmups)
    gaps = f"{f'gap to {config.reference:.0%}':<24}{'to the best warm-up':<30}"
    lines = [f"{'optimizer':<24}{heads}  {gaps} early norm / angle / RRC"]
    for name in config.arms:
        line = f"{name:<24}"
        for warmup in config.warmups:
            rate = best_rate(table, config, name, warmup)
            edge = "*" if at_edge(table, config, name, warmup) else " "
            least = rows(table, config, name, rate, warmup, config.seeds)["valid_loss"].mean() if rate else np.nan
            line += f"{rate or np.nan:>11.4g}{edge} {least:>7.3f}"
        best = best_warmup(table, config, name)
        found = _interval(gap(table, config, name, best)) if best else "–"
        line += f"  {_interval(gap(table, config, name, config.reference)):<24}{f'{found} ({best or 0:.0%})':<30} "
        ratios = [early(table, config, name, what).mean() for what in ("norm", "angle", "representation_change")]
        lines.append(line + " / ".join(f"{x:5.2f}" for x in ratios))
    lines += [
        "",
        f"loss: validation, nats per token, mean over {len(config.seeds)} seeds, at the best rate (*: at the edge of "
        f"its grid). gap: what no warm-up loses, {len(config.more_seeds)} other seeds at these rates, 95 % t interval",
        "early: of the hidden matrices without warm-up, first step over the median at constant rate; RRC: relative "
        "representation change",
    ]
    return "\n".join(lines).replace("nan", "  –")


# --- figure -----------------------------------------------------------------------------------------------------------


# Paper C's figures 1, 2, 3 and 5, a row each.
LAYOUT = [
    *(("AdamW", "loss"), ("AdamW, no β₁ correction", "loss"), ("AdamW", "curve"), ("AdamW", "norm")),
    *(("LionA", "loss"), ("LionA", "curve"), ("LionA", "norm"), ("LionA", "angle")),
    *(("LionAR", "loss"), ("LionAR", "curve"), ("LionAR", "angle"), ("LionAR", "representation_change")),
    *((name, "loss") for name in list(ARMS)[4:]),
]


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Loss over rate by warm-up; training curves, update norm, angle and representation change of 0 % against the
    reference."""
    panels = []
    for name, what in LAYOUT:
        if name in config.arms:
            draw = {"loss": _losses, "curve": _curves}.get(what)
            panels.append(draw(table, config, name) if draw else _course(table, config, name, what))
    return sheet(
        panels,
        title="Which optimizers need warm-up, and what their first updates do",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            f"Losses: means over seeds {', '.join(map(str, config.seeds))}, bars as long as what lies between them; "
            "what diverged is not drawn. Trapezoid: constant from the end of the warm-up, linear cool-down over the "
            f"last {config.cooldown:.0%}. *: best at the edge of its grid.",
            "Over time: at the rate that is best without warm-up, hidden matrices, mean over seeds. Dashed: the "
            "schedule, through the value at half of the training.",
        ],
        columns=4,
        size=(4.4, 3.9),
    )


def _losses(table, config: Config, name: str) -> Panel:
    series = []
    for warmup in config.warmups:
        by_seed = losses(table, config, name, warmup)
        means, spread = by_seed.mean(axis=1), np.ptp(by_seed, axis=1) / 2
        known = np.isfinite(means)
        rates = np.array(rates_of(config, name))
        label = f"{warmup:.0%}" + "*" * at_edge(table, config, name, warmup)
        series.append(Series(label, rates[known], means[known], error=spread[known], fitted=means[known]))
    ylabel = "validation loss (nats per token)"
    return Panel(name, "peak learning rate", ylabel, series, legend="warm-up", ordered=True)


def _same_rate(table, config: Config, name: str) -> list[tuple]:
    """Label, warm-up and lanes [first seeds] of 0 % and the reference at the rate that is best for 0 %."""
    rate = best_rate(table, config, name, 0.0)
    if rate is None:
        return []
    pairs = ((w, rows(table, config, name, rate, w, config.seeds)) for w in (0.0, config.reference))
    return [(f"{w:.0%}", w, found) for w, found in pairs]


def _curves(table, config: Config, name: str) -> Panel:
    series = []
    for label, _, found in _same_rate(table, config, name):
        read = [x for x in found.get("curve_losses", ()) if isinstance(x, list)]
        if read:
            series.append(Series(label, found["curve_steps"].dropna().iloc[0], np.mean(read, axis=0), line=True))
    return Panel(
        f"{name}: training",
        "step",
        "training loss (nats per token)",
        series,
        legend="warm-up",
        ordered=True,
        named_ticks=False,
    )


AXES = {
    "norm": "update norm",
    "angle": "angle of the update (rad)",
    "representation_change": "relative representation change",
}


def _course(table, config: Config, name: str, what: str) -> Panel:
    series, step = [], np.array(config.measured_steps) + 1
    middle = int(np.argmin(np.abs(step - config.steps / 2)))
    for label, warmup, found in _same_rate(table, config, name):
        values, planned = over_time(found, config, what).mean(axis=0), schedule(config, warmup)
        if np.isfinite(values).all():
            follows = planned * values[middle] / planned[middle]
            series.append(Series(label, step, values, predicted=follows))
    return Panel(f"{name}: {AXES[what]}", "step", AXES[what], series, legend="warm-up", ordered=True, named_ticks=False)


# --- claims -----------------------------------------------------------------------------------------------------------

PAPER_C = "Kosson, Messmer & Jaggi 2024"
NOTHING_LOST = 0.01  # nats per token: what counts as no gap
SOME, NONE, WITHIN = (NOTHING_LOST, np.inf), (-np.inf, NOTHING_LOST), (-np.inf, 0.1)
EARLY = "hidden matrices without warm-up, first step over the median at constant rate, less one"
FOLLOWS = "largest relative departure from the schedule, hidden matrices without warm-up; within 0.1"


class Measured(NamedTuple):
    """Values by seed, what they are, and the tuned losses they are made of: (arm, warm-up) pairs of those that come in
    with a plus and with a minus. A loss at the edge of its grid is an upper bound of the tuned one."""

    values: np.ndarray
    note: str
    plus: tuple[tuple[str, float], ...] = ()
    minus: tuple[tuple[str, float], ...] = ()


class Question(NamedTuple):
    """A statement of the paper, the arms it needs, what is measured, where it should lie."""

    arms: tuple[str, ...]
    statement: str
    figure: int
    measured: Callable[[Any, Config], Measured]
    claimed: tuple[float, float]


def _gap(name: str, reference: bool = False):
    def measured(table, config: Config) -> Measured:
        warmup = config.reference if reference else best_warmup(table, config, name)
        if warmup is None:
            return Measured(np.full(len(config.more_seeds), np.nan), "no rate finished")
        note = f"validation loss without warm-up less that with {warmup:.0%}, nats per token, each at its best rate"
        which = "" if reference else ", the best warm-up"
        return Measured(gap(table, config, name, warmup), note + which, ((name, 0.0),), ((name, warmup),))

    return measured


def _smaller_gap(name: str, than: str):
    def measured(table, config: Config) -> Measured:
        larger, smaller = (_gap(each)(table, config) for each in (than, name))
        note = f"{than}'s gap less {name}'s, each against its best warm-up, nats per token"
        return Measured(larger.values - smaller.values, note, larger.plus + smaller.minus, larger.minus + smaller.plus)

    return measured


def _early(name: str, what: str):
    return lambda table, config: Measured(early(table, config, name, what) - 1, EARLY)


def _follows(name: str, what: str):
    return lambda table, config: Measured(departure(table, config, name, what), FOLLOWS)


def _worse(name: str):
    def measured(table, config: Config) -> Measured:
        best = {each: best_warmup(table, config, each, none=True) for each in (name, "LionAR")}
        chosen_ = [(each, warmup) for each, warmup in best.items() if warmup is not None]
        note = "validation loss less that of LionAR, each at its best rate and warm-up, nats per token"
        if len(chosen_) < len(best):
            return Measured(np.full(len(config.more_seeds), np.nan), note)
        values = [tuned_losses(table, config, *each) for each in chosen_]
        return Measured(values[0] - values[1], note, tuple(chosen_[:1]), tuple(chosen_[1:]))

    return measured


A, N, R = "AdamW", "LionA", "LionAR"
HELD, STILL, HIGH_R, HIGH_N = "LionAR, RRC held", "LionAR, no momentum", "LionAR, high momentum", "LionA, high momentum"
RRC = "representation_change"
QUESTIONS = [
    Question((A,), "AdamW without warm-up keeps a lasting gap", 1, _gap(A), SOME),
    Question((A,), "AdamW without warm-up keeps a gap to the reference warm-up", 1, _gap(A, True), SOME),
    Question((A,), "AdamW's first updates are larger in norm than later ones", 1, _early(A, "norm"), ABOVE_ZERO),
    Question((N,), "LionA's update norm follows the schedule", 2, _follows(N, "norm"), WITHIN),
    Question((N,), "LionA without warm-up keeps a gap", 2, _gap(N), SOME),
    Question((N,), "LionA without warm-up keeps a gap to the reference warm-up", 2, _gap(N, True), SOME),
    Question((A, N), "LionA's gap is smaller than AdamW's", 2, _smaller_gap(N, A), ABOVE_ZERO),
    Question((N,), "LionA's first updates are larger in angle than later ones", 2, _early(N, "angle"), ABOVE_ZERO),
    Question((R,), "LionAR's angle follows the schedule", 3, _follows(R, "angle"), WITHIN),
    Question((R,), "LionAR without warm-up keeps a gap", 3, _gap(R), SOME),
    Question((R,), "LionAR without warm-up keeps a gap to the reference warm-up", 3, _gap(R, True), SOME),
    Question((A, R), "LionAR's gap is smaller than AdamW's", 3, _smaller_gap(R, A), ABOVE_ZERO),
    Question((R,), "LionAR's first updates change representations more than later ones", 3, _early(R, RRC), ABOVE_ZERO),
    Question((HELD,), "LionAR that holds the RRC gains nothing from warm-up", 5, _gap(HELD), NONE),
    Question((R, HELD), "LionAR that holds the RRC is worse than LionAR", 5, _worse(HELD), ABOVE_ZERO),
    Question((R, STILL), "LionAR without momentum is much worse", 5, _worse(STILL), (0.05, np.inf)),
    Question((HIGH_R,), "LionAR with high momentum needs no warm-up", 5, _gap(HIGH_R), NONE),
    Question((HIGH_N,), "LionA with high momentum still needs it", 5, _gap(HIGH_N), SOME),
]


def claims(table, config: Config, context) -> list[Claim]:
    """Those of figures 1 to 3 and 5 whose arms were run. A verdict that an optimum beyond its grid could turn is
    unresolved, and the note names it."""
    made = []
    for q in QUESTIONS:
        if not set(q.arms) <= set(config.arms):
            continue
        measured = q.measured(table, config)
        low, high = q.claimed
        claim = of_values(
            measured.values,
            claimed=q.claimed,
            statement=q.statement,
            source=f"{PAPER_C}, figure {q.figure}",
            paper_value=f"≤ {high:g}" if np.isinf(low) else "> 0" if q.claimed == ABOVE_ZERO else f"> {low:g}",
            note=f"{measured.note}; t interval over {len(measured.values)} seeds that did not choose the rates",
            **dict(context),
        )
        leant_on = _leant_on(claim.verdict, q.claimed, measured)
        edges = [f"{name} at {warmup:.0%}" for name, warmup in leant_on if at_edge(table, config, name, warmup)]
        if edges:
            note = f"{claim.note}; {claim.verdict} but for the best rate at the edge of its grid: {', '.join(edges)}"
            claim = replace(claim, verdict="unresolved", note=note)
        made.append(claim)
    return made


def _leant_on(verdict: str, claimed: tuple[float, float], measured: Measured) -> tuple[tuple[str, float], ...]:
    """The losses that a verdict needs tuned: those that could only lower a value said to be large, or raise a small
    one."""
    if verdict == "unresolved":
        return ()
    large = (verdict == "supported") == np.isinf(claimed[1])
    return measured.plus if large else measured.minus


EXPERIMENT = Experiment(
    name="warmup",
    question="which optimizers need warm-up, by which measure are their first updates too large, and what removes the "
    "need?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    follow_up=follow_up,
    paper=PAPER_C,
    answers=("figure 1", "figure 2", "figure 3", "figure 5"),
)
