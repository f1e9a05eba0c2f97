"""The claims of `rate_transfer`."""

import math
from collections.abc import Iterator, Mapping

from lvp.analysis.claims import ABOVE_ZERO, OUR_RESULT, Claim, Question, Seeds, unless_at_edge
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import difference
from lvp.experiments.common import slope_claims
from lvp.experiments.rate_transfer.analysis import Transfer, TunedWidth, read
from lvp.experiments.rate_transfer.config import Config

AFTER = f"{OUR_RESULT}, after Kalra & Barkeshli 2026, abstract"  # whose models are larger
SP, FAST, MUP, LVP = "SP", "SP (embedding × d)", "μP", "LVP"
BASE_RATE = "a rule tunes one number, the base rate: the hidden rate at the base width; it is tuned again at every d; "
BASE_RATE += "the power is that of its best value"
SHARE = 0.5  # of μP's gain over SP: "the overwhelming benefit"
INVARIANT = 0.25  # largest power of the width of a constant that is "approximately scale invariant"


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of the abstract about SP, SP with a larger embedding rate and μP, and our claim about LVP."""
    if not {SP, FAST, MUP, LVP} <= set(config.entries):
        return []
    by_entry = read(table, config)
    return [*_of_losses(by_entry, config, context), *_of_powers(by_entry, config, context)]


def _of_losses(by_entry: Mapping[str, Transfer], config: Config, context) -> Iterator[Claim]:
    """The claims about the losses at the largest width."""
    last, seeds = config.widths[-1], Seeds(config.judging_seeds, config.selecting_seeds)
    at_last = {name: each.widths[last] for name, each in by_entry.items()}
    interval = f"t interval over {len(config.judging_seeds)} judging seeds"
    tuned = f"validation bits per byte at d {last}, each tuned there; the interval allows for the tuning; {interval}"
    own = {name: each.own for name, each in at_last.items()}
    gain = difference([[own[SP]]], [[own[MUP]]])
    no_gain = "" if gain.interval and gain.interval[0] > 0 else f"μP has no resolved gain over SP at d {last}"
    share = f"the embedding's rate gives at least {SHARE:.0%} of μP's gain over SP"
    fast = f"tuned at d {last} itself, SP has a lower loss if the embedding's rate is multiplied by d"
    # Statement, source, names of the losses that are added and subtracted, reason
    for statement, source, plus, minus, reason in [
        (fast, AFTER, [SP], [FAST], ""),
        (f"tuned at d {last} itself, LVP has a lower loss than SP", OUR_RESULT, [SP], [LVP], ""),
        (share, AFTER, [SP, MUP], [FAST, FAST], no_gain),
    ]:
        question = Question(
            statement=statement,
            source=source,
            paper_value=None if source == OUR_RESULT else "> 0",
            claimed=ABOVE_ZERO,
            unit="bits per byte",
            note=f"{' + '.join(plus)} − {' − '.join(minus)}: {tuned}",
        )
        measured = difference([[own[name]] for name in plus], [[own[name]] for name in minus])
        answer = question.answer(measured, context, seeds, reason=reason)
        edges = ([name for name in side if _at_edge(at_last[name])] for side in (plus, minus))
        yield unless_at_edge(answer, ABOVE_ZERO, *edges)


def _of_powers(by_entry: Mapping[str, Transfer], config: Config, context) -> Iterator[Claim]:
    """The claims about the power of the width in the best base rate."""
    seeds = Seeds(config.selecting_seeds)  # whose runs are at every constant
    less = Question(
        statement="SP's best base rate falls less with the width of the tuned model if the embedding's rate is "
        "multiplied by d",
        source=AFTER,
        paper_value="> 0",
        claimed=ABOVE_ZERO,
        unit="difference of powers",
        note=f"power of d with the embedding's rate times d, minus power of d of SP; {BASE_RATE}",
    )
    yield less.answer(_power_difference(by_entry[FAST], by_entry[SP]), context, seeds)
    for name in (MUP, LVP):  # the abstract is about μP
        widths = by_entry[name].widths
        invariant = Question(
            statement="a rule's one tuned number, the base rate, has the same best value at every width: power of d "
            f"within {INVARIANT:g} of 0",
            source=AFTER,
            paper_value="μP: approximately scale invariant",
            claimed=(-INVARIANT, INVARIANT),
            variant=name,
            unit="power of d",
            note=BASE_RATE,
        )
        yield slope_claims.answer(invariant, list(widths), [x.optimum for x in widths.values()], context, seeds)


def _at_edge(tuned: TunedWidth) -> bool:
    """Whether the best constant is the first or the last of the grid."""
    return tuned.selected is not None and tuned.selected.at_edge


def _power_difference(plus: Transfer, minus: Transfer) -> Measurement:
    """The difference of two powers of the width. The parts of their intervals on each side add in quadrature."""
    (first, (low, high)), (second, (least, most)) = ((x.power.slope, x.power.interval) for x in (plus, minus))
    difference = first - second
    ends = difference - math.hypot(first - low, most - second), difference + math.hypot(high - first, second - least)
    return Measurement(difference, ends)
