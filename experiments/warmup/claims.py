"""The claims of `warmup`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lvp.analysis.claims import ABOVE_ZERO, Claim, Question, Seeds, in_setting, unless_at_edge
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import difference
from lvp.experiments.warmup.analysis import (
    UNSTABLE,
    at_edge,
    early,
    gap,
    gap_above_stable_rate,
    gap_at_best_rates,
    gap_at_stable_rate,
    largest_early,
    next_rates,
    rise,
    stable_rate,
    train_losses_at,
    tuned,
    with_reference,
)
from lvp.experiments.warmup.config import (
    CURVES_GROUP,
    LARGER_RATES,
    PRESETS,
    STABLE_GROUP,
    Config,
    momentum_of,
    rates_of,
)

PAPER_C = "Kosson, Messmer & Jaggi 2024"
NOTHING_LOST = 0.01  # nats per token: smaller gaps count as none
MOST_HELD = 1.5  # first RRC over later RRC up to which a group holds the RRC
MOST_UNSTABLE = 0.2  # part of the judging seeds that may be unstable at the largest stable rate
PAPER_WARMUP = 0.05  # part of the training; figures 1 to 3 compare it with training without warm-up
LONGEST_HORIZON = 0.05  # of the training; the paper's longest horizon of momentum is 1 %
GAP, NO_GAP, MUCH = (NOTHING_LOST, np.inf), (-np.inf, NOTHING_LOST), (0.05, np.inf)
MINOR, MOST = (-np.inf, 0.05), (0.5, np.inf)
# Claimed region → the paper's value or words, and the region's end if the paper does not state it.
WORDS = {
    GAP: ("a gap", f"above {NOTHING_LOST:g}"),
    NO_GAP: ("no gap", f"at most {NOTHING_LOST:g}"),
    MUCH: ("drastically lower performance", f"above {MUCH[0]:g}"),
    MINOR: ("minor", f"at most {MINOR[1]:g}"),
    MOST: ("primarily", f"above {MOST[0]:g}"),
    ABOVE_ZERO: ("> 0", ""),
}
EARLY = "hidden matrices without warm-up, first step over the median at constant rate, minus 1"
NATS = "nats per token of validation loss"
ALLOWED = "each at its best rate; the interval allows for the selection of rates"
AT_ONE_RATE = "both at the rate that is best without warm-up"


class Contrast(NamedTuple):
    """A measured value, with the tuned losses in it. A loss at the edge of its grid is an upper bound."""

    measurement: Measurement
    note: str  # the definition of the value
    plus: tuple[tuple[str, float], ...] = ()  # (group, warm-up) of the losses that are added
    minus: tuple[tuple[str, float], ...] = ()  # (group, warm-up) of the losses that are subtracted
    reason: str = ""  # why the value does not test the statement
    doubt: str = ""  # why the value decides nothing, although it tests the statement
    unit: str = "nats per token"


class GroupQuestion(NamedTuple):
    """A statement of the paper about some groups."""

    groups: tuple[str, ...]  # the groups that it needs
    statement: str
    source: str  # the paper's figure or section
    measure: Callable[[Any, Config], Contrast]  # (table, config) → the measured value
    claimed: tuple[float, float]  # the region, as in `lvp.analysis.claims.judge`
    variant: str = ""  # which of the measurements that test the statement


def _settings(name: str, config: Config) -> tuple[tuple[str, float], ...]:
    """A group with every warm-up above 0."""
    return tuple((name, w) for w in config.warmups if w)


def _gap(name: str):
    """The gap of a group to its best warm-up, with the gap to each warm-up in the note."""

    def measure(table, config: Config) -> Contrast:
        settings = _settings(name, config)
        gaps = {w: gap_at_best_rates(table, config, name, w).in_words() for _, w in settings}
        by_warmup = ", ".join(f"{each} with {w:.0%}" for w, each in gaps.items())
        note = f"{NATS} without warm-up minus the least with warm-up, {ALLOWED} and of the warm-up; gaps at the "
        note += f"selected rates: {by_warmup}"
        measured = gap(table, config, name, [w for _, w in settings])
        return Contrast(measured, note, ((name, 0.0),), settings)

    return measure


def _gap_to(name: str, warmup: float):
    """The gap of a group to a warm-up."""

    def measure(table, config: Config) -> Contrast:
        at_rates = gap_at_best_rates(table, config, name, warmup).in_words()
        note = f"{NATS} without warm-up minus that with {warmup:.0%}, {ALLOWED}; at the selected rates {at_rates}"
        measured = gap(table, config, name, [warmup])
        return Contrast(measured, note, ((name, 0.0),), ((name, warmup),))

    return measure


def _stable_gap(name: str):
    """The gap of a group to the reference warm-up at the largest rate that is stable without warm-up."""

    def measure(table, config: Config) -> Contrast:
        values, unstable = gap_at_stable_rate(table, config, name)
        rate = stable_rate(table, config, name)
        note, reason = f"{NATS} without warm-up minus that with {config.reference:.0%}", ""
        if rate is None:
            reason = "no rate is stable without warm-up"
        elif rate == rates_of(config, name)[-1] or next_rates(table, config, name, 0.0, stable=True):
            reason = f"the largest rate tried, {rate:g}, is stable without warm-up"
        elif unstable > MOST_UNSTABLE * len(values):
            reason = (
                f"rate {rate:g} is stable with {len(config.seeds)} selecting seeds and unstable with {unstable} of "
            )
            reason += f"{len(values)} judging seeds"
        else:
            note += f", both at {rate:g}, which is stable without warm-up for all {len(config.seeds)} selecting seeds "
            note += f"and for {len(values) - unstable} of {len(values)} judging seeds (stable: finite, and at "
            note += f"most {UNSTABLE:g} above the least mean loss; at a rate below the best one, at most {UNSTABLE:g} "
            note += "above the selecting seeds' least loss at that rate)"
        measured, doubt = Measurement.over_seeds(values), ""
        if not reason:
            above, stable = gap_above_stable_rate(table, config, name)
            note += f"; at the next rate, which is stable for {stable} of {len(config.seeds)} selecting seeds, their "
            note += f"mean gap is {above:z.2f}".replace("nan", "unknown").replace("-", "−")
            if not np.isnan(above) and (above > NOTHING_LOST) != (measured.value > NOTHING_LOST):
                doubt = "the gap at the next rate has another sign, so the verdict depends on the limit of stability"
        return Contrast(measured, note, reason=reason, doubt=doubt)

    return measure


def _gaps(name: str, source: str, config: Config) -> list[GroupQuestion]:
    """Whether a group keeps a gap to its best warm-up, to the reference warm-up and to the paper's if it was run."""
    statement = f"without warm-up {name} ends at a higher loss"
    warmups = [config.reference] + [PAPER_WARMUP] * (PAPER_WARMUP in set(config.warmups) - {config.reference})
    return [
        GroupQuestion((name,), statement, source, _gap(name), GAP, "than with the best warm-up"),
        *[
            GroupQuestion((name,), statement, source, _gap_to(name, w), GAP, f"than with {w:.0%} of warm-up")
            for w in warmups
        ],
    ]


def _larger_gap(name: str, than: str):
    """The gap of a group minus the gap of another one."""

    def measure(table, config: Config) -> Contrast:
        plus, minus = [((name, 0.0),), _settings(than, config)], [_settings(name, config), ((than, 0.0),)]
        note = f"gap of {name} minus gap of {than}, {NATS}, each against its best warm-up, {ALLOWED} and of warm-ups"
        return _contrast(table, config, plus, minus, note)

    return measure


def _worse(name: str):
    """The loss of a group minus LionAR's loss."""

    def measure(table, config: Config) -> Contrast:
        plus, minus = ([tuple((each, w) for w in config.warmups)] for each in (name, "LionAR"))
        note = f"{NATS} minus LionAR's loss, each at its best warm-up, {ALLOWED} and of warm-ups"
        return _contrast(table, config, plus, minus, note)

    return measure


def _if_held(measure):
    """`measure`, not tested if `HELD` does not hold the RRC."""

    def measure_held(table, config: Config) -> Contrast:
        first = early(table, config, HELD, RRC).mean()
        reason = ""
        if not 1 / MOST_HELD <= first <= MOST_HELD:
            reason = (
                "the group does not hold the relative representation change (RRC): that of the first update is "
                f"{first:.1f} times that of later updates"
            )
        made = measure(table, config)
        note = f"{made.note}; so the relative representation change (RRC) is held; the paper divides by an estimate of "
        note += "it (equation 9)"
        return made._replace(note=note, reason=reason)

    return measure_held


def _contrast(table, config: Config, plus, minus, note: str) -> Contrast:
    """The contrast of groups of (group, warm-up). Each group enters with its least loss."""
    candidates = ([[tuned(table, config, *each) for each in group] for group in groups] for groups in (plus, minus))
    added, subtracted = (tuple(each for group in groups for each in group) for groups in (plus, minus))
    return Contrast(difference(*candidates), note, added, subtracted)


def _faster(table, config: Config) -> Contrast:
    """AdamW's training loss with the reference warm-up minus that without, halfway through the warm-up, at one rate."""
    step = config.rise(config.reference) / 2
    without, with_warmup = (train_losses_at(rows, step) for rows in with_reference(table, config, A))
    note = f"nats per token of training loss at step {step:.0f}, with {config.reference:.0%} of warm-up minus without, "
    note += "when the rate without warm-up is still the larger one, "
    return Contrast(Measurement.over_seeds(with_warmup - without), note + AT_ONE_RATE, doubt=_edge(table, config, A))


def _gap_at_one_rate(table, config: Config) -> Contrast:
    """AdamW's gap to the reference warm-up at the rate that is best without warm-up."""
    without, with_warmup = (rows["valid_loss"].to_numpy(float) for rows in with_reference(table, config, A))
    note = f"{NATS} without warm-up minus that with {config.reference:.0%}, {AT_ONE_RATE}"
    return Contrast(Measurement.over_seeds(without - with_warmup), note, doubt=_edge(table, config, A))


def _larger_rates(than: str, factor: float):
    """The rise of a group's loss at twice its best rate, minus the rise of LionAR's at `factor` times its best rate."""

    def measure(table, config: Config) -> Contrast:
        factors = {than: LARGER_RATES[than][0], R: factor}
        by_group = {name: (multiple, rise(table, config, name, multiple)) for name, multiple in factors.items()}
        note = (
            f"{NATS} at a multiple of the best rate minus that at the best rate, without warm-up, of {than} minus of "
        )
        note += (
            f"{R}; LionAR's angle is proportional to the root of its rate, so 4 times the rate are twice the angle; "
        )
        note += "the interval does not allow for the selection of the best rates"
        for name, (multiple, values) in by_group.items():
            if lost := int(np.isnan(values).sum()):
                note += (
                    f"; {name} at {multiple:g} times its best rate: {lost} of {len(values)} runs diverged or missing"
                )
        (_, larger), (_, of_r) = by_group.values()
        return Contrast(Measurement.over_seeds(larger - of_r), note, doubt=_edge(table, config, than, R))

    return measure


def _edge(table, config: Config, *names: str) -> str:
    """Why values at the rates that are best without warm-up decide nothing; empty if no rate is at an edge."""
    edges = [name for name in names if at_edge(table, config, name, 0.0)]
    return f"the best rate of {' and '.join(edges)} is at the edge of its grid" if edges else ""


def _of_the_correction(table, config: Config) -> Contrast:
    """The part of the excess of AdamW's first updates that vanishes without the correction of β₁'s bias."""
    excess, left = (largest_early(table, config, name, "norm") - 1 for name in (A, UNCORRECTED))
    note = "1 minus the ratio of excesses without and with the correction, both at the rate that is best for AdamW "
    note += f"without warm-up; excess: largest norm at the measured steps in the first {config.reference:.0%} over the "
    note += "median at constant rate, minus 1, hidden matrices"
    part = 1 - left / np.where(excess > 0, excess, np.nan)
    return Contrast(Measurement.over_seeds(part), note, unit="part of the excess")


def _of_the_adjustments(table, config: Config) -> Contrast:
    """The loss of LionAR with high momentum alone minus that with Nesterov's form and inverse bias correction."""
    plus, minus = ([tuple((each, w) for w in config.warmups)] for each in (ALONE, HIGH_R))
    note = f"{NATS} with high momentum alone minus that with both adjustments, each at its best warm-up, {ALLOWED} and "
    return _contrast(table, config, plus, minus, f"{note}of warm-ups")


def _early(name: str, measure: str):
    """The excess of a group's first updates."""
    return lambda table, config: Contrast(
        Measurement.over_seeds(early(table, config, name, measure) - 1), EARLY, unit="relative excess"
    )


def _larger_first_angle(table, config: Config) -> Contrast:
    """The first angle over later angles with a small initial norm, minus that with a large one."""
    small, large = (early(table, config, name, "angle") for name in (SMALL, LARGE))
    note = f"first angle over the median angle at constant rate of {SMALL} minus that of {LARGE}; hidden matrices "
    note += "without warm-up, each at its best rate"
    doubt = _edge(table, config, SMALL, LARGE)
    return Contrast(Measurement.over_seeds(small - large), note, doubt=doubt, unit="difference of ratios")


A, N, R = CURVES_GROUP, STABLE_GROUP, "LionAR"
HELD, STILL, HIGH_R, HIGH_N = (
    "LionAR, measured RRC held",
    "LionAR, no momentum",
    "LionAR, high momentum",
    "LionA, high momentum",
)
DIVIDED = "LionAR whose updates are divided by their measured relative representation change"
SMALL, LARGE = "LionA, init × 1/3", "LionA, init × 3"
UNCORRECTED, ALONE = "AdamW, no β₁ correction", "LionAR, high momentum only"
RRC = "representation_change"
HIGH = "with high momentum, Nesterov's form and inverse bias correction, LionAR needs no warm-up but LionA does"


def questions(config: Config) -> list[GroupQuestion]:
    """The questions of figures 1 to 3 and 5 and of sections 3, 4 and 8."""
    return [
        *_gaps(A, "figure 1", config),
        GroupQuestion(
            (A,),
            "without warm-up AdamW ends at a higher loss",
            "figure 1",
            _gap_at_one_rate,
            GAP,
            f"than with {config.reference:.0%} of warm-up at the same rate",
        ),
        GroupQuestion(
            (A,),
            "at the same rate, AdamW trains faster at first without warm-up than with it",
            "section 3",
            _faster,
            ABOVE_ZERO,
        ),
        GroupQuestion(
            (A, UNCORRECTED),
            "the excess of AdamW's first updates comes mostly from the correction of β₁'s bias",
            "section 4",
            _of_the_correction,
            MOST,
        ),
        *_gaps(N, "figure 2", config),
        GroupQuestion(
            (N,),
            "without warm-up LionA ends at a higher loss",
            "figure 2",
            _stable_gap(N),
            GAP,
            f"than with {config.reference:.0%}, at the largest rate that is stable without",
        ),
        *_gaps(R, "figure 3", config),
        *[
            GroupQuestion(
                (A, name),
                "under LionA and LionAR warm-up lowers the final loss less than under AdamW",
                "figures 2 and 3",
                _larger_gap(A, name),
                ABOVE_ZERO,
                name,
            )
            for name in (N, R)
        ],
        *[
            GroupQuestion(
                (name,),
                "without warm-up the first update exceeds the median one at constant rate, in the measure of that "
                "optimizer's figure",
                "figures 1 to 3",
                _early(name, measure),
                ABOVE_ZERO,
                f"{name}, {words}",
            )
            for name, measure, words in (
                (A, "norm", "norm of the update"),
                (N, "angle", "angle of the update"),
                (R, RRC, "relative change of representations"),
            )
        ],
        *[
            GroupQuestion(
                (than, R),
                "without warm-up, a rate above the best costs AdamW and LionA more loss than LionAR",
                "figure 3",
                _larger_rates(than, factor),
                ABOVE_ZERO,
                f"{than} at {LARGER_RATES[than][0]:g} times its best rate, LionAR at {factor:g} times",
            )
            for factor in LARGER_RATES[R]
            for than in (A, N)
        ],
        GroupQuestion(
            (HELD,),
            f"{DIVIDED} gains nothing from warm-up",
            "figure 5",
            _if_held(_gap(HELD)),
            NO_GAP,
        ),
        GroupQuestion(
            (R, HELD),
            f"{DIVIDED} ends at a higher loss than LionAR",
            "figure 5",
            _if_held(_worse(HELD)),
            ABOVE_ZERO,
        ),
        GroupQuestion(
            (R, STILL), "LionAR without momentum ends at least 0.05 nats above LionAR", "figure 5", _worse(STILL), MUCH
        ),
        GroupQuestion((HIGH_R,), HIGH, "figure 5", _gap(HIGH_R), NO_GAP, "LionAR"),
        GroupQuestion((HIGH_N,), HIGH, "figure 5", _gap(HIGH_N), GAP, "LionA"),
        GroupQuestion(
            (HIGH_R, ALONE),
            "at high momentum Nesterov's form and inverse bias correction lower LionAR's loss by at most 0.05 nats",
            "figure 5",
            _of_the_adjustments,
            MINOR,
        ),
        GroupQuestion(
            (SMALL, LARGE),
            "smaller initial weights make LionA's first angles larger, relative to later angles",
            "section 8",
            _larger_first_angle,
            ABOVE_ZERO,
        ),
        GroupQuestion(
            (SMALL, LARGE),
            "warm-up lowers LionA's final loss more if the initial weights are smaller",
            "section 8",
            _larger_gap(SMALL, LARGE),
            ABOVE_ZERO,
        ),
    ]


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of the questions whose groups were run.

    A sweep with `HELD` and without AdamW has LionAR's runs to compare. The claims about LionAR alone are not repeated.
    """
    alone = (R,) if HELD in config.groups and A not in config.groups else ()
    asked = [each for each in questions(config) if set(each.groups) <= set(config.groups) and each.groups != alone]
    return [_answer(each, table, config, context) for each in asked]


def _answer(asked: GroupQuestion, table, config: Config, context) -> Claim:
    """The claim of a question.

    It is unresolved, with a note, if an optimum beyond a grid could change the verdict or if the measurement has a
    doubt.
    """
    measured = asked.measure(table, config)
    words, region = WORDS[asked.claimed]
    seeds = f"t interval over {len(config.more_seeds)} judging seeds"
    question = Question(
        statement=asked.statement,
        **in_setting(f"{PAPER_C}, {asked.source}", words, of_paper=config.width == PRESETS["paper"].width),
        claimed=asked.claimed,
        unit=measured.unit,
        variant=asked.variant,
        note="; ".join(filter(None, (measured.note, region, seeds, setting_of(config)))),
    )
    reason = long_momentum(asked.groups, config) or measured.reason
    claim = question.answer(measured.measurement, context, Seeds(config.more_seeds, config.seeds), reason=reason)
    plus, minus = (
        [f"{name} at {warmup:.0%}" for name, warmup in settings if at_edge(table, config, name, warmup)]
        for settings in (measured.plus, measured.minus)
    )
    claim = unless_at_edge(claim, asked.claimed, plus, minus)
    if measured.doubt and claim.verdict in ("supported", "contradicted"):
        note = f"{claim.note}; would be {claim.verdict}, but {measured.doubt}"
        return replace(claim, verdict="unresolved", note=note)
    return claim


def setting_of(config: Config) -> str:
    """The size of the model and of the training, in words."""
    size = f"{config.layers} blocks of width {config.width}"
    return f"{size}, {config.steps} steps of {config.batch} × {config.context} tokens"


def long_momentum(groups: Sequence[str], config: Config) -> str:
    """Why the momentum of some groups is out of the paper's range; empty if it is within."""
    for name in groups:
        steps = round(1 / (1 - momentum_of(config, name)), 6)
        if steps > LONGEST_HORIZON * config.steps:
            part = f"{steps / config.steps:.0%}"
            return f"β = {momentum_of(config, name):g} averages over {steps:.0f} steps, {part} of training; paper: 1%"
    return ""
