"""The claims of `row_growth`: a prediction of this project, not of a paper."""

from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds
from lvp.analysis.measurement import Measurement
from lvp.experiments.common.slope_claims import answer_without_each
from lvp.experiments.row_growth.analysis import (
    LAW,
    best_rival,
    exponents,
    fitted_points,
    later_losses,
    optimizer_ratio,
    points,
    prefix_exponent,
    spreads,
)
from lvp.experiments.row_growth.config import OPTIMIZERS, Config
from lvp.experiments.row_growth.laws import LAWS

SOURCE = f"{OUR_RESULT}, after docs/row_growth.md"
# Factor → rival powers, as in `lvp.analysis.claims.judge`.
RIVALS = {"width": (-0.5, -1.0), "steps": (0.0, -1.0), "row factor": (0.0,), "added": (0.0,), "σ_E √d": (1.0,)}
NAMES = {
    "width": "the width, with the row factor held",
    "steps": "the number of steps, by runs of their own",
    "row factor": "the factor on the rows",
    "added": "the RMS of the positions",
    "σ_E √d": "the init std of the rows",
}

POWERS = "the best η_E varies with each factor as if rows grew to the size of the positions"


def claims(table, config: Config, context) -> list[Claim]:
    """The claims about a constant η_E s √T / RMS(positions), the power of every factor, and optimizers' constants."""
    made, seeds = points(table, config), Seeds(config.seeds)
    by_law, fitted = spreads(made), exponents(config, made)
    law, rival = by_law[LAW], best_rival(by_law)
    note = "multiple: η_E s √T over the RMS of the positions (s: factor on the rows, T: steps), an estimate of a row's "
    note += "growth; 95 % of the variants depart from their common multiple by less than the value; "
    note += f"{law.num_points} of {sum(p.added > 0 for p in made)} variants with added positions resolved; common "
    note += f"multiple {law.constant.text('.2g')}"
    if rival is not None:
        better = by_law[rival].width.value < law.width.value
        note += f"; the law “{rival}” departs by {by_law[rival].width.text('.2g')}, {'less' if better else 'more'}"
    answers = [
        Question(
            statement=_in_all_settings(config),
            variant="best η_E by training loss",
            source=SOURCE,
            paper_value=None,
            claimed=(0.0, config.tolerance),
            unit="relative departure",
            note=note,
        ).answer(law.width, context, seeds)
    ]
    used = fitted_points(config, made)
    without = {p.variant.label: exponents(config, [other for other in used if other is not p]) for p in used}
    for name, rivals in RIVALS.items():
        power, others = LAWS[LAW].get(name, 0.0), {label: powers[name] for label, powers in without.items()}
        question = Question(
            statement=POWERS,
            variant=f"{NAMES[name]}, predicted {_number(power)}",
            source=SOURCE,
            paper_value=None,
            claimed=power,
            rivals=rivals,
            unit="power of the factor",
            note=f"all factors fitted together to {len(used)} optima",
        )
        answers.append(answer_without_each(question, fitted[name], others, context, seeds, what="optimum"))
    within = Question(
        statement=POWERS,
        variant=f"the number of steps, by parts of a run, predicted {_number(-0.5)}",
        source=SOURCE,
        paper_value=None,
        claimed=-0.5,
        rivals=(0.0, -1.0),
        unit="power of the factor",
        note="mean over variants, t interval",
    )
    answers.append(within.answer(prefix_exponent(table, config), context, seeds))
    for name in config.optimizers[1:]:
        question = Question(
            statement=_in_all_settings(config),
            variant=f"{OPTIMIZERS[name]}'s multiple over {OPTIMIZERS[config.optimizers[0]]}'s, minus 1",
            source=SOURCE,
            paper_value=None,
            claimed=(1 / (1 + config.tolerance) - 1, config.tolerance),
            unit="relative departure",
            note="at the base variant",
        )
        ratio = optimizer_ratio(config, made, name)
        departure = Measurement(ratio.value - 1, ratio.interval and (ratio.interval[0] - 1, ratio.interval[1] - 1))
        answers.append(question.answer(departure, context, seeds))
    answers.append(_with_later_losses(table, config, context))
    return answers


def _with_later_losses(table, config: Config, context) -> Claim:
    """The claim that the law holds for the loss on the second half of each window."""
    later = spreads(points(table, config, later_losses))[LAW]
    by_later_loss = Question(
        statement=_in_all_settings(config),
        variant="best η_E by validation loss on the second half of each window",
        source=SOURCE,
        paper_value=None,
        claimed=(0.0, config.tolerance),
        unit="relative departure",
        note=f"as for the training loss; {later.num_points} variants resolved; common multiple "
        f"{later.constant.text('.2g')}",
    )
    return by_later_loss.answer(later.width, context, Seeds(config.seeds))


def _in_all_settings(config: Config) -> str:
    return (
        "at the best η_E, η_E × row factor × √steps over the positions' RMS is the same for all variants, within "
        f"±{config.tolerance:.0%}"
    )


def _number(power: float) -> str:
    return {-0.5: "−1/2"}.get(power, f"{power:g}".replace("-", "−"))
