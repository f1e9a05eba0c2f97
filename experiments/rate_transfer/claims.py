"""The claims of `rate_transfer`."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.rate_transfer.analysis import Transfer, TunedWidth, penalty, read
from experiments.rate_transfer.config import Config
from lvp.analysis.claims import ABOVE_ZERO, Claim, Question, refusal, unless_at_edge
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import difference

KALRA = "Kalra & Barkeshli 2026, abstract"
SP, FAST, MUP, LVP = "SP", "SP (embedding × d)", "μP", "LVP"
SHARE = 0.5  # of μP's gain over SP: "the overwhelming benefit"
INVARIANT = 0.25  # largest power of the width of a constant that is "approximately scale invariant"
NEAR = 0.02  # relative loss


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of the abstract about SP, SP with a larger embedding rate and μP, and our claim about LVP."""
    if not {SP, FAST, MUP, LVP} <= set(config.entries):
        return []
    by_entry, last = read(table, config), config.widths[-1]
    at_last = {name: each.widths[last] for name, each in by_entry.items()}
    reason = refusal(config.judging_seeds, config.selecting_seeds)
    seeds = f"t interval over {len(config.judging_seeds)} judging seeds"
    tuned = f"validation bits per byte at d {last}, each tuned there; the interval allows for the tuning; {seeds}"
    own = {name: each.own for name, each in at_last.items()}
    answers = [
        _loss_claim(
            "SP with the embedding's rate times d has a lower loss than SP",
            f"difference; {tuned}",
            difference([[own[SP]]], [[own[FAST]]]),
            (by_entry, last, [SP], [FAST]),
            context,
            reason,
        ),
        _loss_claim(
            f"the embedding's rate gives at least {SHARE:.0%} of μP's gain over SP",
            f"SP's loss minus that of SP with the embedding's rate times d, minus {SHARE:g} times μP's gain; times 2; "
            + tuned,
            difference([[own[SP]], [own[MUP]]], [[own[FAST]], [own[FAST]]]),
            (by_entry, last, [SP, MUP], [FAST]),
            context,
            reason,
        ),
        Question(
            statement="SP with the embedding's rate times d has a smaller transfer gap than SP",
            source=KALRA,
            paper_value="> 0",
            claimed=ABOVE_ZERO,
            note=f"difference of the transfer gaps from d {config.width} to {last}, relative to the loss; {seeds}",
        ).answer(_gap_difference(at_last[SP], at_last[FAST]), context, reason=reason),
    ]
    for name in (MUP, LVP):
        power = by_entry[name].power
        answers.append(
            Question(
                statement=f"the best constant of {name} does not depend on the width (its power is within {INVARIANT} "
                "of 0)",
                source=KALRA if name == MUP else "our result",
                paper_value="approximately scale invariant" if name == MUP else None,
                claimed=(-INVARIANT, INVARIANT),
                note=f"{power.num_points} of {len(config.widths)} widths resolved",
            ).answer(Measurement(power.slope, power.interval), context)
        )
    best = Question(
        statement=f"{LVP} loses at most {NEAR:.0%} to the best other entry",
        source="our result",
        paper_value=None,
        claimed=(-np.inf, NEAR),
        note=f"relative difference of {tuned}",
    )
    others = [name for name in by_entry if name != LVP]
    answer = best.answer(penalty(by_entry, LVP, last), context, reason=reason)
    answers.append(unless_at_edge(answer, best.claimed, *_edges(by_entry, last, [LVP], others)))
    return answers


def _gap_difference(plus: TunedWidth, minus: TunedWidth) -> Measurement:
    """The difference of two transfer gaps. Its interval is unknown if both gaps are exactly 0: the best constant did
    not leave its grid point, and the grid does not show smaller gaps."""
    gaps = plus.gap - minus.gap
    return Measurement.over_seeds(gaps) if gaps.any() else Measurement(0.0, None)


def _loss_claim(
    statement: str,
    note: str,
    measured: Measurement,
    sides: tuple[Mapping[str, Transfer], int, Sequence[str], Sequence[str]],
    context: Mapping[str, str],
    reason: str,
) -> Claim:
    """The claim that a difference of losses is above zero. It is unresolved if a better rate beyond a grid could change
    its verdict."""
    question = Question(statement=statement, source=KALRA, paper_value="> 0", claimed=ABOVE_ZERO, note=note)
    return unless_at_edge(question.answer(measured, context, reason=reason), ABOVE_ZERO, *_edges(*sides))


def _edges(by_entry: Mapping[str, Transfer], width: int, plus: Sequence[str], minus: Sequence[str]):
    """The names in `plus` and in `minus` whose best constant at the width is at the edge of the grid."""
    at_edge = {name for name, each in by_entry.items() if (best := each.widths[width].selected) and best.at_edge}
    return ([name for name in side if name in at_edge] for side in (plus, minus))
