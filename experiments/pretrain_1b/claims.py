"""The claims of `pretrain_1b`.

The paper's sentences are about a 1B model, so claims about a smaller model are our results.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lvp.analysis.claims import ABOVE_ZERO, Claim, Question, Seeds, in_setting, unless_at_edge
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Tuned, difference
from lvp.experiments.pretrain_1b.analysis import (
    ratio_label,
    selected_rate,
    tuned,
    tuned_rate,
    validation_curves,
    values_by_seed,
    word_perplexities,
)
from lvp.experiments.pretrain_1b.config import PRESETS, Config

PAPER_A = "Hayou & Liu 2025"
UNIT = "nats per token of validation text"
MARGINAL = 0.02  # nats per token
PARTS = (0.4, 0.6, 0.8, 1.0)  # of the training, at which the note gives the gain of larger ratios


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of figures 4 and 5. They compare the losses of the ratios seed by seed."""
    answers, seeds = [], Seeds(config.seeds, config.selecting_seeds)
    for question, measurement, reason, plus, minus in _questions(table, config):
        answer = question.answer(measurement, context, seeds, reason=reason)
        answers.append(unless_at_edge(answer, question.claimed, plus, minus))
    return answers


def _from_paper(config: Config, figures: str, paper_value: str) -> dict[str, Any]:
    """The source and the paper's value of a question about figures."""
    of_paper = config.width == PRESETS["paper"].width
    return in_setting(f"{PAPER_A}, {figures}", paper_value, of_paper=of_paper)


class Asked(NamedTuple):
    """A question with its measurement."""

    question: Question
    measurement: Measurement
    reason: str = ""  # why the measurement does not test the question
    plus: Sequence[str] = ()  # added ratios at the edge of their grid
    minus: Sequence[str] = ()  # subtracted ratios at the edge of their grid


def _questions(table, config: Config) -> Iterator[Asked]:
    """Yields the questions of figures 4 and 5."""
    losses = {ratio: values_by_seed(table, config, ratio, "valid_loss") for ratio in config.ratios}
    rate = tuned_rate(table, config)
    at_rate = "no η finished"
    if rate:
        tuning = "which is tuned at √d; other ratios have the same η" if config.rates else "which was not tuned"
        at_rate = f"at η = {rate:g}, {tuning}"
    interval = f"t interval over {len(config.seeds)} seeds; {at_rate}"
    yield from _against_one_rate(table, config)
    yield from _about_larger_ratios(table, config, losses, interval, _untested(rate, config, _largest_if_best(losses)))


def _against_one_rate(table, config: Config) -> Iterator[Asked]:
    """Yields whether √d is better than one rate for all, each at its own η.

    The losses are those at the end, at every measured step and by word.
    """
    ratios = (1.0, config.root)
    edges: list[list[str]] = [[], []]
    own = f"η = {config.rate:g}, which was not tuned"
    if config.rates:
        own = ", ".join(f"η = {tuned_rate(table, config, r) or np.nan:g} at {ratio_label(config, r)}" for r in ratios)
        selected = [(ratio_label(config, ratio), selected_rate(table, config, ratio)) for ratio in ratios]
        edges = [[f"η at {name}"] * (each is not None and each.at_edge) for name, each in selected]
    own = f"t interval over {len(config.seeds)} seeds; {own}"
    of_tuning = "; the interval allows for the tuning" if config.rates else ""
    statement = (
        f"at d {config.width}, the loss is lower with the embedding at √d times the other rates than with one rate"
    )
    per_token: dict[str, Any] = {"statement": statement, "claimed": ABOVE_ZERO, "unit": "nats per token"}
    per_token |= _from_paper(config, "figures 4 and 5", "> 0")
    question = Question(variant="loss per token, at the end", note=f"{UNIT}{of_tuning}; {own}", **per_token)
    yield Asked(question, difference(*([[tuned(table, config, ratio)]] for ratio in ratios)), "", *edges)
    note = f"{UNIT}, least of {len(config.measured_steps)} measured steps; {own}"
    question = Question(variant="loss per token, at every measured step", note=note, **per_token)
    lead = np.subtract(*(validation_curves(table, config, ratio, own_rate=True) for ratio in ratios))
    yield Asked(question, _least(lead), "", *edges)
    by_word = np.subtract(*(np.log(word_perplexities(table, config, ratio)) for ratio in ratios))
    per_word = per_token | {"unit": "ln perplexity by word"}
    note = f"difference in ln of word-level perplexity, at the end of training; {own}"
    question = Question(variant="ln of word-level perplexity, at the end", note=note, **per_word)
    yield Asked(question, Measurement.over_seeds(by_word[:, -1]), "", *edges)
    note = f"difference in ln of word-level perplexity, least of {by_word.shape[1]} scored steps; {own}"
    question = Question(variant="ln of word-level perplexity, at every scored step", note=note, **per_word)
    untested = "" if config.scored_points else "words are scored only at the end of training"
    yield Asked(question, _least(by_word), untested, *edges)


def _least(differences: np.ndarray) -> Measurement:
    """The least mean over the columns of [seeds, steps]. The interval allows for the choice of the step."""
    return difference([[Tuned(at_step) for at_step in differences.T]], [[Tuned(np.zeros(len(differences)))]])


def _about_larger_ratios(table, config: Config, losses, interval: str, untested: str) -> Iterator[Asked]:
    """Yields whether √d is near the best ratio. The note has the gain of larger ratios during training."""
    root, largest = config.root, _largest_if_best(losses)
    larger = [ratio for ratio in config.ratios if ratio > root]
    question = Question(
        statement="with the other rates tuned at the embedding ratio √d, the loss at √d is within "
        f"{MARGINAL:g} nats per token of the best ratio's",
        claimed=(-np.inf, MARGINAL),
        unit="nats per token",
        note=f"{UNIT}, against the best of {len(config.ratios)} ratios; the interval allows for the choice of the best "
        f"ratio, and cannot lie below 0, because √d is one of them; {_gain_over_training(table, config, larger)}; "
        f"{interval}",
        **_from_paper(config, "figure 4", "near-optimal"),
    )
    measured = difference([[Tuned(losses[root])]], [list(map(Tuned, losses.values()))])
    yield Asked(question, measured, untested, minus=largest)


def _largest_if_best(losses) -> list[str]:
    """The name of the largest ratio if its mean loss is the least; otherwise an empty list."""
    means = {ratio: x.mean() for ratio, x in losses.items() if np.isfinite(x).all()}
    best = min(means, key=means.__getitem__, default=None)
    return [f"ratio {best:g}"] if best is not None and best == max(losses) else []


def _untested(rate: float | None, config: Config, largest: list[str]) -> str:
    """Why the best ratio is not known, or an empty string if it is known."""
    if config.rates:
        return f"η = {rate:g} is at the edge of its grid" if rate in (config.rates[0], config.rates[-1]) else ""
    at_end = f"; the best ratio is the largest tried ({largest[0]})" if largest else ""
    return f"η = {config.rate:g} was not tuned; the run has {config.steps} steps{at_end}"


def _at_part(table, config: Config, part: float) -> dict[float, np.ndarray]:
    """Ratio → validation losses [seeds] at the measured step nearest to a part of the training."""
    at = int(np.argmin(np.abs(np.array(config.measured_steps) + 1 - part * config.steps)))
    return {ratio: validation_curves(table, config, ratio)[:, at] for ratio in config.ratios}


def _gain_over_training(table, config: Config, larger: list[float]) -> str:
    """The gain of the best larger ratio over √d at parts of the training, in words."""
    texts = []
    for part in PARTS:
        losses = {ratio: values.mean() for ratio, values in _at_part(table, config, part).items()}
        gain = losses[config.root] - np.min([losses[ratio] for ratio in larger])
        texts.append(f"{gain:.3f} at {part:.0%}")
    gains = ", ".join(texts).replace("nan", "–").replace("-", "−")
    return f"loss of √d minus that of the best larger ratio: {gains} of the training"
