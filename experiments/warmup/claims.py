"""The claims of `warmup`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from experiments.warmup.analysis import at_edge, best_warmup, departure, early, gap, tuned_losses
from experiments.warmup.config import Config
from lvp.analysis.claims import ABOVE_ZERO, Claim, Question
from lvp.analysis.measurement import Measurement

PAPER_C = "Kosson, Messmer & Jaggi 2024"
NOTHING_LOST = 0.01  # nats per token: smaller gaps count as none
GAP, NO_GAP, WITHIN = (NOTHING_LOST, np.inf), (-np.inf, NOTHING_LOST), (-np.inf, 0.1)
EARLY = "hidden matrices without warm-up, first step over the median at constant rate, less one"
FOLLOWS = "largest relative departure from the schedule, hidden matrices without warm-up; within 0.1"


class LossDifference(NamedTuple):
    """Values by seed, with the tuned losses in them. A loss at the edge of its grid is an upper bound."""

    values: np.ndarray  # [other seeds]
    note: str  # the definition of the values
    plus: tuple[tuple[str, float], ...] = ()  # (arm, warm-up) of the losses that are added
    minus: tuple[tuple[str, float], ...] = ()  # (arm, warm-up) of the losses that are subtracted


class ArmQuestion(NamedTuple):
    """A statement of the paper about some arms."""

    arms: tuple[str, ...]  # the arms that it needs
    statement: str
    figure: int  # of the paper
    measure: Callable[[Any, Config], LossDifference]  # (table, config) → the measured values
    claimed: tuple[float, float]  # the region, as in `lvp.analysis.claims.judge`


def _gap(name: str, reference: bool = False):
    """The gap of an arm to its best warm-up, or to the reference."""

    def measure(table, config: Config) -> LossDifference:
        warmup = config.reference if reference else best_warmup(table, config, name)
        if warmup is None:
            return LossDifference(np.full(len(config.more_seeds), np.nan), "no rate finished")
        note = f"validation loss without warm-up less that with {warmup:.0%}, nats per token, each at its best rate"
        note += "" if reference else ", the best warm-up"
        return LossDifference(gap(table, config, name, warmup), note, ((name, 0.0),), ((name, warmup),))

    return measure


def _smaller_gap(name: str, than: str):
    """The gap of the arm `than` less that of the arm `name`."""

    def measure(table, config: Config) -> LossDifference:
        larger, smaller = (_gap(each)(table, config) for each in (than, name))
        note = f"{than}'s gap less {name}'s, each against its best warm-up, nats per token"
        return LossDifference(
            larger.values - smaller.values, note, larger.plus + smaller.minus, larger.minus + smaller.plus
        )

    return measure


def _early(name: str, measure: str):
    """The excess of an arm's first updates."""
    return lambda table, config: LossDifference(early(table, config, name, measure) - 1, EARLY)


def _follows(name: str, measure: str):
    """The departure of an arm's updates from the schedule."""
    return lambda table, config: LossDifference(departure(table, config, name, measure), FOLLOWS)


def _worse(name: str):
    """The loss of an arm less that of LionAR."""

    def measure(table, config: Config) -> LossDifference:
        best = {each: best_warmup(table, config, each, none=True) for each in (name, "LionAR")}
        tuned = [(each, warmup) for each, warmup in best.items() if warmup is not None]
        note = "validation loss less that of LionAR, each at its best rate and warm-up, nats per token"
        if len(tuned) < len(best):
            return LossDifference(np.full(len(config.more_seeds), np.nan), note)
        losses, baseline = (tuned_losses(table, config, *setting) for setting in tuned)
        return LossDifference(losses - baseline, note, tuple(tuned[:1]), tuple(tuned[1:]))

    return measure


A, N, R = "AdamW", "LionA", "LionAR"
HELD, STILL, HIGH_R, HIGH_N = "LionAR, RRC held", "LionAR, no momentum", "LionAR, high momentum", "LionA, high momentum"
RRC = "representation_change"
QUESTIONS = [
    ArmQuestion((A,), "AdamW without warm-up keeps a lasting gap", 1, _gap(A), GAP),
    ArmQuestion((A,), "AdamW without warm-up keeps a gap to the reference warm-up", 1, _gap(A, True), GAP),
    ArmQuestion((A,), "AdamW's first updates are larger in norm than later ones", 1, _early(A, "norm"), ABOVE_ZERO),
    ArmQuestion((N,), "LionA's update norm follows the schedule", 2, _follows(N, "norm"), WITHIN),
    ArmQuestion((N,), "LionA without warm-up keeps a gap", 2, _gap(N), GAP),
    ArmQuestion((N,), "LionA without warm-up keeps a gap to the reference warm-up", 2, _gap(N, True), GAP),
    ArmQuestion((A, N), "LionA's gap is smaller than AdamW's", 2, _smaller_gap(N, A), ABOVE_ZERO),
    ArmQuestion((N,), "LionA's first updates are larger in angle than later ones", 2, _early(N, "angle"), ABOVE_ZERO),
    ArmQuestion((R,), "LionAR's angle follows the schedule", 3, _follows(R, "angle"), WITHIN),
    ArmQuestion((R,), "LionAR without warm-up keeps a gap", 3, _gap(R), GAP),
    ArmQuestion((R,), "LionAR without warm-up keeps a gap to the reference warm-up", 3, _gap(R, True), GAP),
    ArmQuestion((A, R), "LionAR's gap is smaller than AdamW's", 3, _smaller_gap(R, A), ABOVE_ZERO),
    ArmQuestion(
        (R,), "LionAR's first updates change representations more than later ones", 3, _early(R, RRC), ABOVE_ZERO
    ),
    ArmQuestion((HELD,), "LionAR that holds the RRC gains nothing from warm-up", 5, _gap(HELD), NO_GAP),
    ArmQuestion((R, HELD), "LionAR that holds the RRC is worse than LionAR", 5, _worse(HELD), ABOVE_ZERO),
    ArmQuestion((R, STILL), "LionAR without momentum is much worse", 5, _worse(STILL), (0.05, np.inf)),
    ArmQuestion((HIGH_R,), "LionAR with high momentum needs no warm-up", 5, _gap(HIGH_R), NO_GAP),
    ArmQuestion((HIGH_N,), "LionA with high momentum still needs it", 5, _gap(HIGH_N), GAP),
]


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of figures 1 to 3 and 5 whose arms were run."""
    asked = [each for each in QUESTIONS if set(each.arms) <= set(config.arms)]
    return [_answer(each, table, config, context) for each in asked]


def _answer(asked: ArmQuestion, table, config: Config, context) -> Claim:
    """A verdict that an optimum beyond its grid could change is unresolved, and the note names it."""
    measured = asked.measure(table, config)
    low, high = asked.claimed
    question = Question(
        statement=asked.statement,
        source=f"{PAPER_C}, figure {asked.figure}",
        paper_value=f"≤ {high:g}" if np.isinf(low) else "> 0" if asked.claimed == ABOVE_ZERO else f"> {low:g}",
        claimed=asked.claimed,
        note=f"{measured.note}; t interval over {len(measured.values)} seeds that did not choose the rates",
    )
    claim = question.answer(Measurement.over_seeds(measured.values), context)
    bounds = _upper_bounds_needed(claim.verdict, asked.claimed, measured)
    edges = [f"{name} at {warmup:.0%}" for name, warmup in bounds if at_edge(table, config, name, warmup)]
    if not edges:
        return claim
    note = f"{claim.note}; {claim.verdict} but for the best rate at the edge of its grid: {', '.join(edges)}"
    return replace(claim, verdict="unresolved", note=note)


def _upper_bounds_needed(
    verdict: str, claimed: tuple[float, float], measured: LossDifference
) -> tuple[tuple[str, float], ...]:
    """The (arm, warm-up) whose losses must be tuned for a verdict.

    A lower loss could reduce a value that the verdict calls large, or raise a value that it calls small.
    """
    if verdict == "unresolved":
        return ()
    large = (verdict == "supported") == np.isinf(claimed[1])
    return measured.plus if large else measured.minus
