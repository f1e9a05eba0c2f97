"""The claims of `representation_change`."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds
from lvp.analysis.measurement import Measurement
from lvp.experiments.representation_change.analysis import (
    EARLY,
    JOINT_SNR,
    LATE,
    NEURON_SNR,
    SETTLED,
    alignment,
    cancelled,
    exceeds,
    falls,
    runs_by_seed,
)
from lvp.experiments.representation_change.config import GROUPS, PAPER_BATCH, PAPER_CONTEXT, PAPER_STEPS, Config

SOURCE = f"{OUR_RESULT}, after Kosson, Messmer & Jaggi 2024, figure 4"  # which is about GPT-2 with 124M parameters
NEARLY_ALL = 0.9  # of training
AVERAGES = (NEURON_SNR, JOINT_SNR)  # both are judged, because the paper does not state how it averages φ


def claims(table, config: Config, context) -> list[Claim]:
    """Claims about figure 4 for the trained groups. What equation 9 gives is a test and not a claim."""
    return [
        replace(question, note=f"{question.note}; t interval over {len(config.seeds)} seeds").answer(
            measurement, context, Seeds(config.seeds), reason=reason
        )
        for question, measurement, reason in _figure_4(table, config)
    ]


def _figure_4(table, config: Config) -> Iterator[tuple[Question, Measurement, str]]:
    """Questions with their measurements, and why a measurement does not test its question.

    Figure 4 shows LionAR only, so AdamW is in the table and has no claims.
    """
    other_batch = f"the runs train with batch {config.batch}, the paper with {PAPER_BATCH}"
    for name in (name for name in config.groups if GROUPS[name].optimizer == "lion_ar"):
        rows, untested = runs_by_seed(table, config, name), other_batch if config.batch != PAPER_BATCH else ""
        for question, measurement, reason in (_falls(rows, config, name), _exceeds(rows, config, name)):
            yield question, measurement, untested or reason
        question = Question(
            statement=f"after the first {SETTLED:.0%} of steps gradient and momentum are negatively aligned on average",
            variant=name,
            source=SOURCE,
            paper_value="< 0 (strongly, for most of training)",
            claimed=(-np.inf, 0),
            unit="cosine",
            note=f"mean cosine after the first {SETTLED:.0%} of the steps, all hidden matrices together; the paper "
            "shows one layer",
        )
        yield question, Measurement.over_seeds(alignment(rows, config)), untested
        median, mean = (Measurement.over_seeds(cancelled(rows, config, average)) for average in (np.median, np.mean))
        question = Question(
            statement="momentum cancels between 25% and 75% of the gradient",
            variant=name,
            source=SOURCE,
            paper_value="0.5 on average",
            claimed=(0.25, 0.75),
            unit="part of the gradient",
            note=f"−⟨β m, (1−β) g⟩/‖(1−β) g‖² after the first {SETTLED:.0%} of the steps, between 0.25 and 0.75; "
            f"{median.in_words()} with the median over the steps, {mean.in_words()} with the mean; the interval "
            f"covers both; {config.steps} steps, in the paper {PAPER_STEPS}",
        )
        yield question, median.containing(mean), untested


def _falls(rows, config: Config, name: str) -> tuple[Question, Measurement, str]:
    """Whether φ is higher at the start than later."""
    neurons, joint = (Measurement.over_seeds(falls(rows, config, measure)).exp() for measure in AVERAGES)
    question = Question(
        statement="the signal-to-noise ratio φ of the gradient is higher at the start than in the last half",
        variant=name,
        source=SOURCE,
        paper_value="> 1",
        claimed=(1, np.inf),
        unit="ratio",
        note=f"mean over the first {EARLY:.0%} of {config.steps} steps over that of the last {1 - LATE:.0%}; "
        f"{_values(neurons, joint)}",
    )
    return question, neurons.containing(joint), ""


def _exceeds(rows, config: Config, name: str) -> tuple[Question, Measurement, str]:
    """Whether the paper's batch exceeds 1/φ."""
    neurons, joint = (Measurement.over_seeds(exceeds(rows, config, measure, PAPER_BATCH)) for measure in AVERAGES)
    question = Question(
        statement=f"B φ exceeds 1 in at least {NEARLY_ALL:.0%} of training, with B = {PAPER_BATCH} sequences of "
        f"{config.context} tokens and φ the gradient's signal-to-noise ratio",
        variant=name,
        source=SOURCE,
        paper_value="nearly 1",
        claimed=(NEARLY_ALL, np.inf),
        unit="part of training",
        note=f"part of training in which B φ > 1 for B = {PAPER_BATCH}, at least {NEARLY_ALL:g}; "
        f"{_values(neurons, joint)}; {config.steps} steps with {config.batch} sequences of {config.context} tokens, in "
        f"the paper {PAPER_STEPS} steps with {PAPER_BATCH} of {PAPER_CONTEXT}",
    )
    part, reason = neurons.containing(joint), ""
    if config.context < PAPER_CONTEXT and part.interval and part.interval[1] < NEARLY_ALL:
        reason = f"φ grows with the tokens of a sequence: {config.context} here, {PAPER_CONTEXT} in the paper"
    return question, _at_most_one(part), reason


def _at_most_one(part: Measurement) -> Measurement:
    """A part of the training, whose interval ends at 1."""
    return part._replace(interval=part.interval and (part.interval[0], min(1.0, part.interval[1])))


def _values(neurons: Measurement, joint: Measurement) -> str:
    """The values of both averages of φ in words."""
    both = f"{neurons.in_words()} with the median of φ over neurons, {joint.in_words()} with the joint φ of all hidden "
    return f"{both}matrices; the interval covers both"
