"""The claims of `muon`."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lvp.analysis.claims import ABOVE_ZERO, OUR_RESULT, Claim, Question, Seeds, unless_at_edge
from lvp.analysis.tuned import difference
from lvp.experiments.common.tuned_groups import TunedGroup
from lvp.experiments.muon.analysis import tuned
from lvp.experiments.muon.config import LVP_POWER, NANOCHAT, Config, Group

NEAR = 0.01  # bits per byte
SOURCE = f"{OUR_RESULT}, after Hayou & Liu 2025, section 4.2"  # about a 1B model under Adam
NOTE = "difference in validation bits per byte; each group at its own tuned rate; the interval allows for the tuning"


class Comparison(NamedTuple):
    """A question, and the groups whose tuned losses are added and subtracted. A group counts with its least loss."""

    question: Question
    plus: Sequence[Sequence[TunedGroup]]
    minus: Sequence[Sequence[TunedGroup]]


def claims(table, config: Config, context) -> list[Claim]:
    """Whether the ratio matters under Adam and under Muon, whether √d is near the best, and who has less loss."""
    seeds = Seeds(config.judging_seeds, config.selecting_seeds)
    answers = []
    for question, *sides in _compared(table, config):
        measured = difference(*([[each.judged for each in group] for group in side] for side in sides))
        plus, minus = ([x.label for group in side for x in group if x.at_edge] for side in sides)
        answer = question.answer(measured, context, seeds)
        answers.append(unless_at_edge(answer, question.claimed, plus, minus))
    return answers


def _compared(table, config: Config) -> Iterator[Comparison]:
    seeds = f"{NOTE}; t interval over {len(config.judging_seeds)} judging seeds"

    def question(
        statement: str,
        variant: str = "",
        claimed: tuple[float, float] = ABOVE_ZERO,
        note: str = seeds,
        source: str = SOURCE,
    ) -> Question:
        return Question(
            statement=statement,
            source=source,
            paper_value=None,
            claimed=claimed,
            unit="bits per byte",
            variant=variant,
            note=note,
        )

    adam, muon = (
        {power: tuned(table, config, Group(optimizer, power)) for power in config.powers}
        for optimizer in ("Adam", "Muon")
    )
    ratios = f"{seeds}, and may reach below 0; ratios d^p with p = {', '.join(f'{power:g}' for power in config.powers)}"
    gains = [[each[power].judged] for each, power in ((adam, 0.0), (muon, LVP_POWER), (adam, LVP_POWER), (muon, 0.0))]
    smaller = f"{seeds}; gain under Adam minus gain under Muon: {difference(gains[:2], gains[2:]).in_words()}"
    for optimizer, groups in (("Adam", adam), ("Muon", muon)):
        better = question(
            "LVP's ratio η_E/η_hidden = √d gives a lower loss than one rate for all matrices",
            f"under {optimizer}",
            note=smaller,
        )
        yield Comparison(better, [[groups[0.0]]], [[groups[LVP_POWER]]])
        near = question(
            f"the loss at η_E/η_hidden = √d is within {NEAR} bits per byte of the loss at the best ratio",
            f"under {optimizer}",
            (-math.inf, NEAR),
            ratios,
        )
        yield Comparison(near, [[groups[LVP_POWER]]], [list(groups.values())])
    rivals = {
        "Adam with LVP's rates": adam[LVP_POWER],
        "Muon with nanochat's constants": tuned(table, config, NANOCHAT),
    }
    for name, rival in rivals.items():
        better = question(
            "Muon with LVP's rates has a lower loss than Adam with LVP's rates, or than Muon with nanochat's constants",
            f"than {name}",
            source=OUR_RESULT,
        )
        yield Comparison(better, [[rival]], [[muon[LVP_POWER]]])
