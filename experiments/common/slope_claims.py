"""Claims about powers and other values over several settings. No single setting may decide them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lvp import analysis
from lvp.analysis import Optimum
from lvp.analysis.claims import Claim, Question, Seeds, judge
from lvp.analysis.measurement import Measurement
from lvp.analysis.slopes import without_each
from lvp.experiments.common.shape_powers import joint_powers


def answer(
    question: Question, widths: Sequence[int], best: Sequence[Optimum], context: Mapping[str, str], seeds: Seeds
) -> Claim:
    """The claim about the slope of ln optimum over ln width.

    It is unresolved if the verdict is another one without one of the widths. The note gives the scatter about the power
    law and the slopes without each width.

    Args:
      widths: [W].
      best: W optima.
      context, seeds: as in `Question.answer`.
    """
    fit, others = analysis.slope(widths, best), without_each(widths, best)
    notes = [question.note, f"{fit.num_points} of {len(widths)} widths resolved"]
    if fit.lack_of_fit == fit.lack_of_fit:
        notes.append(f"p of the scatter about the power law {fit.lack_of_fit:.2g}")
    noted = replace(question, note="; ".join(filter(None, notes)).replace("-", "−"))
    measured, *without = (Measurement(x.slope, x.interval) for x in (fit, *others.values()))
    by_width = {f"width {d:g}": other for d, other in zip(others, without, strict=True)}
    return answer_without_each(noted, measured, by_width, context, seeds, what="width")


def answer_jointly(
    question: Question,
    quantity: str,
    shapes: Sequence[tuple[int, int]],
    best: Sequence[Optimum],
    context: Mapping[str, str],
    seeds: Seeds,
) -> Claim:
    """The claim about the power of d or m in a fit of both to all shapes.

    It is unresolved if the verdict is another one without one of the values of the quantity.

    Args:
      quantity: "d" or "m".
      shapes: S pairs (d, m).
      best: S optima.
      context, seeds: as in `Question.answer`.
    """
    values = [shape["dm".index(quantity)] for shape in shapes]
    others = {}
    for left in sorted(set(values)):
        if kept := [i for i, value in enumerate(values) if value != left]:
            fit = joint_powers([shapes[i] for i in kept], [best[i] for i in kept])
            others[f"{quantity} {left}"] = fit.power(quantity)
    return answer_without_each(
        question, joint_powers(shapes, best).power(quantity), others, context, seeds, what=quantity
    )


def answer_without_each(
    question: Question,
    measured: Measurement,
    without: Mapping[str, Measurement],
    context: Mapping[str, str],
    seeds: Seeds | None,
    *,
    what: str,
    decimals: int = 2,
) -> Claim:
    """The claim about a measurement, unresolved if its verdict is another one without one of the settings.

    The note gives the range of the values without one setting.

    Args:
      without: name of a setting → the measurement without it.
      context, seeds: as in `Question.answer`.
      what, decimals: as in `range_without`.
    """
    rest = range_without([other.value for other in without.values()], what, decimals)
    noted = replace(question, note="; ".join(filter(None, (question.note, rest))))
    return unless_on_one(noted.answer(measured, context, seeds), question, without)


def range_without(values: Collection[float], what: str, decimals: int = 2) -> str:
    """The range of a value if one of several settings is left out, in words; empty if one of the values is unknown.

    Args:
      values: the value without each setting.
      what: what a setting is, such as "width".
    """
    if not values or not np.isfinite(list(values)).all():
        return ""
    low, high = (f"{end:z.{decimals}f}".replace("-", "−") for end in (min(values), max(values)))
    return f"{low} to {high} without one {what}"


def unless_on_one(claim: Claim, question: Question, without: Mapping[str, Measurement]) -> Claim:
    """The claim, or an unresolved claim if its verdict is another one without one of the settings.

    Args:
      without: name of a setting → the measurement without it.
    """
    if claim.verdict not in ("supported", "contradicted"):
        return claim
    deciding = [
        f"{name} ({measured.text()})".replace("-", "−")
        for name, measured in without.items()
        if judge(*measured, claimed=question.claimed, rivals=question.rivals) != claim.verdict
    ]
    if deciding:
        some = deciding if len(deciding) < 5 else [*deciding[:3], f"one of {len(deciding) - 3} others"]
        note = f"{claim.verdict} with all, but not without {' or '.join(some)}"
        return replace(claim, verdict="unresolved", note=f"{claim.note}; {note}")
    return claim
