"""The claims of `width_fixed_vocab`."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lvp.analysis.claims import Claim, Question, Seeds, in_setting, unless_at_edge
from lvp.analysis.measurement import Measurement
from lvp.experiments.common import slope_claims
from lvp.experiments.width_fixed_vocab.analysis import (
    best_of_init,
    compare,
    cost_of_equal,
    hidden_power,
    mup_over_lvp,
    optima,
)
from lvp.experiments.width_fixed_vocab.config import PRESETS, Config

PAPER_A = "Hayou & Liu 2025"
ROBUST = 0.25  # largest difference of two powers that count as equal


def claims(table, config: Config, context) -> list[Claim]:
    """The claims about the best η_E, equal points, μP's init and the best hidden rate."""
    best, _ = optima(table, config, selecting=config.selecting_seeds, judging=config.judging_seeds)
    judges, of_paper = f"{len(config.judging_seeds)} judging seeds", config.widths == PRESETS["paper"].widths
    falls = Question(
        statement="at a fixed vocabulary the best embedding learning rate falls with width, more slowly than 1/d",
        **in_setting(f"{PAPER_A}, figure 1", "−1 < exponent < 0", of_paper=of_paper),
        claimed=(-1.0, 0.0),
        unit="power of d",
        note=f"exponent between −1 and 0; η_H selected by the other seeds; {judges}",
    )
    power, tried = hidden_power(table, config), ", ".join(f"{x:g}" for x in config.hidden_rates)
    robust = Question(
        statement="the best rate of hidden and output matrices falls as 1/d, as under μP",
        **in_setting(f"{PAPER_A}, section 4.1", "remains robust", of_paper=of_paper),
        claimed=(-1 - ROBUST, -1 + ROBUST),
        rivals=(0.0, -0.5),
        unit="power of d",
        note=f"power of d, within {ROBUST:g} of −1; {power.num_points} of {len(config.widths)} widths have their best "
        f"η_H · d inside of the grid {tried}",
    )
    compared = {width: compare(table, config, width) for width in config.widths}
    by_width = ", ".join(f"{100 * each.gap:.1f}" for each in compared.values())
    by_width = by_width.replace("nan", "–").replace("-", "−")
    equal = Question(
        statement="giving output and hidden matrices the same init and rate costs at most "
        f"{config.tolerance:.0%} of the train loss, in the mean over widths",
        **in_setting(f"{PAPER_A}, section 2", "optimal, generally", of_paper=of_paper),
        claimed=(0.0, 1 + config.tolerance),
        unit="ratio",
        note="final train loss over that of the best point, geometric mean over widths; excess by width in %: "
        f"{by_width}; the interval allows for the selection of the points; {judges}; "
        + ("one factor changed at a time, at the best η_H" if config.design == "star" else "all changed together"),
    )
    seeds = Seeds(config.judging_seeds, config.selecting_seeds)
    untried = [width for width, each in compared.items() if np.isfinite(each.gap) and not each.at_selected_rate]
    one_rate = "" if len(config.hidden_rates) > 1 else f"η_H · d = {tried} was not tuned"
    not_comparable = ""
    if untried:
        not_comparable = "no unequal point was trained at the η_H that the selecting seeds choose at width "
        not_comparable += ", ".join(map(str, untried))
    plus, minus = (
        [f"{name} at d {width}" for width, each in compared.items() if getattr(each, field)]
        for name, field in (("equal points", "equal_at_edge"), ("all points", "best_at_edge"))
    )
    answer = equal.answer(cost_of_equal(list(compared.values())), context, seeds, reason=not_comparable)
    answers = [slope_claims.answer(falls, config.widths, best, context, seeds)]
    answer = unless_at_edge(answer, equal.claimed, plus, minus)
    answers.append(_unless_on_one_width(answer, equal, compared, cost_of_equal))
    if config.mup_init:
        answers.append(_mup_init(table, config, context, seeds, judges))
    answers.append(
        robust.answer(Measurement(power.slope, power.interval), context, Seeds(config.seeds), reason=one_rate)
    )
    return answers


def _mup_init(table, config: Config, context, seeds: Seeds, judges: str) -> Claim:
    """Whether μP's init ends at a higher loss than LVP's."""
    question = Question(
        statement="at LVP's tuned hidden rate, μP's init gives a higher train loss than LVP's, in the mean over widths",
        **in_setting(f"{PAPER_A}, section 3.1", "the best init", of_paper=config.widths == PRESETS["paper"].widths),
        claimed=(1.0, np.inf),
        unit="ratio",
        note="final train loss over that under LVP's init, geometric mean over widths, each at its best η_E; the "
        f"interval allows for the selection of η_E; {judges}",
    )
    of_mup, of_lvp = (
        {width: best_of_init(table, config, width, mup=mup) for width in config.widths} for mup in (True, False)
    )
    edges = (
        [f"{name} init at d {width}" for width, each in inits.items() if each.at_edge]
        for name, inits in (("μP's", of_mup), ("LVP's", of_lvp))
    )
    inits = {width: (of_mup[width], of_lvp[width]) for width in config.widths}
    answer = question.answer(mup_over_lvp(list(inits.values())), context, seeds)
    return _unless_on_one_width(unless_at_edge(answer, question.claimed, *edges), question, inits, mup_over_lvp)


def _unless_on_one_width(
    claim: Claim, question: Question, by_width: Mapping[int, Any], mean: Callable[[list], Measurement]
) -> Claim:
    """The claim about a mean over widths, or an unresolved claim if one of several widths decides it."""
    widths = by_width if len(by_width) > 1 else ()
    without = {f"width {width}": mean([x for other, x in by_width.items() if other != width]) for width in widths}
    return slope_claims.unless_on_one(claim, question, without)
