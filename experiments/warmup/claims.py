"""The claims of `warmup`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from experiments.warmup.analysis import at_edge, best_warmup, departure, early, gap, tuned_losses
from experiments.warmup.config import Config
from lvp.analysis.claims import ABOVE_ZERO, Claim, of_values

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
