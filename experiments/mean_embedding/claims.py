"""The claims of `mean_embedding`."""

from collections.abc import Iterator

import numpy as np

from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds, unless_at_edge
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import difference
from lvp.experiments.mean_embedding.analysis import (
    at_edge,
    at_last_step,
    largest_by_seed,
    moment_fit,
    over_steps,
    tuned,
    tuned_runs,
)
from lvp.experiments.mean_embedding.config import EMBEDDING_PATH, HEAD_PATH, HEADS, Config

DRIFT = "drift of the mean row over the mean norm of a row, at the end; t interval over seeds"
OWN_RATE = "each group at its own tuned rate"
AT_ALL_RATES = (
    "largest of all measured steps and trained rates (the first seed trains all rates, other seeds the tuned rates); "
    "t interval over seeds; rounding is taken as 1e-5"
)
ROUNDING = (-np.inf, 1e-5)
UNMEASURED = "the records were made before this measure"
PAPER_B = "Stollenwerk & Stollenwerk 2025"
BOTH_PAPERS = f"{OUR_RESULT}, after {PAPER_B} and Hayou & Liu 2025"
REMEDY = f"{PAPER_B}, Coupled Adam"


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of Stollenwerk & Stollenwerk, and the claims that combine them with Hayou & Liu."""
    judged = [*_adam(table, config), *_coupled_adam(table, config), *_both_papers(table, config)]
    seeds = Seeds(config.judging_seeds, config.selecting_seeds)
    return [
        *(
            question.answer(measurement, context, Seeds(config.seeds), reason=unmeasured)
            for question, measurement, unmeasured in _identities(table, config)
        ),
        *(question.answer(measurement, context, seeds) for question, measurement in judged),
        *_losses(table, config, context),
        *_direction(table, config, context),
    ]


def _identities(table, config: Config) -> Iterator[tuple[Question, Measurement, str]]:
    """Yields the claims that hold at every rate, with their measurements and a reason.

    The reason says why the records cannot judge the claim; it is empty if they can.
    """
    for name in ("SGD", "momentum SGD", "Coupled Adam"):
        if name in config.groups and "untied" in config.heads:
            question = Question(
                statement=f"{name} leaves the mean of an untied LM head where it was, to rounding",
                source=PAPER_B,
                paper_value=0.0,
                claimed=ROUNDING,
                note=f"drift of the mean row over the mean norm of a row, {AT_ALL_RATES}",
            )
            column = f"measures.vocabulary.{HEAD_PATH['untied']}.mean_drift"
            yield question, Measurement.over_seeds(largest_by_seed(table, config, name, "untied", column)), ""
    for head in config.heads:
        by_group = [largest_by_seed(table, config, name, head, "measures.head_gradient_sum") for name in config.groups]
        question = Question(
            statement=f"the gradients of the {head} head sum to zero, under every optimizer",
            source=PAPER_B,
            paper_value=0.0,
            claimed=ROUNDING,
            note=f"‖Σ g_i‖ over Σ ‖g_i‖ of the head, {AT_ALL_RATES}; largest of {len(config.groups)} groups",
        )
        yield question, Measurement.over_seeds(np.max(by_group, axis=0)), ""
    for name in ("Adam", "Coupled Adam"):
        if name in config.groups and "untied" in config.heads:
            column = f"measures.vocabulary.{HEAD_PATH['untied']}.first_moment_sum"
            question = Question(
                statement=f"the first moments of the untied head sum to zero under {name}",
                source=PAPER_B,
                paper_value=0.0,
                claimed=ROUNDING,
                note=f"‖Σ m_i‖ over Σ ‖m_i‖, {AT_ALL_RATES}",
            )
            values = largest_by_seed(table, config, name, "untied", column)
            yield question, Measurement.over_seeds(values), "" if column in table else UNMEASURED


def _adam(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    for head in config.heads if "Adam" in config.groups else ():
        question = Question(
            statement=f"Adam moves the mean of the {head} head",
            source=PAPER_B,
            paper_value="> 0",
            claimed=(0.01, np.inf),
            note=f"{DRIFT}; at least 0.01",
        )
        rows = tuned_runs(table, config, "Adam", head)
        yield question, Measurement.over_seeds(at_last_step(rows, HEAD_PATH[head], "mean_drift"))
    for head in config.heads if "Adam" in config.groups else ():
        r_squared, scale = moment_fit(table, config, head)
        question = Question(
            statement=f"Adam's second moment is linear in token frequency ({head} head)",
            source=PAPER_B,
            paper_value="R² = 0.85(7)",
            claimed=(0.78, np.inf),
            note="R², at least 0.78: mean over the measured steps except the first, at which v̂ is one squared "
            "gradient; t interval over seeds",
        )
        yield question, Measurement.over_seeds(r_squared)
        question = Question(
            statement="the slope A of Adam's second moment against token frequency has the order of magnitude of E[h²] "
            f"divided by the tokens per step ({head} head)",
            source=f"{OUR_RESULT}, after {PAPER_B}",
            paper_value=None,
            claimed=(-1.0, 1.0),
            note="log₁₀(A · tokens per step), within ±1; E[h²] is about 1 after the last norm layer",
        )
        yield question, Measurement.over_seeds(np.log10(scale))


def _coupled_adam(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    """Yields the claims about Coupled Adam: isotropy and norm of the mean row, as ratios to Adam's."""
    for head in config.heads if {"Adam", "Coupled Adam"} <= set(config.groups) else ():
        groups = [tuned_runs(table, config, group, head) for group in ("Coupled Adam", "Adam")]
        for measure, name, statement, claimed, paper in (
            ("isotropy", "isotropy", "{} head more isotropic", (1.0, np.inf), "> 1"),
            (
                "mean_norm",
                "the norm of the mean row over the mean norm of a row",
                "mean row of the {} head smaller, relative to the rows,",
                (0.0, 1.0),
                "< 1",
            ),
        ):
            coupled, plain = (at_last_step(rows, HEAD_PATH[head], measure) for rows in groups)
            question = Question(
                statement=f"Coupled Adam leaves the {statement.format(head)} than Adam does",
                source=REMEDY,
                paper_value=paper,
                claimed=claimed,
                note=f"ratio of {name} at the end, geometric mean over seeds; {OWN_RATE}; the claim is about the "
                "direction, because we have no number of the paper",
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.log(coupled) - np.log(plain) if len(coupled) and len(plain) else np.array([])
            yield question, Measurement.over_seeds(ratios).exp()


def _direction(table, config: Config, context) -> Iterator[Claim]:
    """Yields whether the mean row moves against the hidden state h.

    The paper states this for single rows; for the mean it is our result.
    """
    for head in config.heads if "Adam" in config.groups else ():
        rows = tuned_runs(table, config, "Adam", head)
        measured = f"measures.vocabulary.{HEAD_PATH[head]}.against_hidden" in table
        question = Question(
            statement=f"Adam moves the mean of the {head} head against the mean hidden state",
            source=OUR_RESULT,
            paper_value=None,
            claimed=(0.0, np.inf),
            note="cosine of the mean row's update and of −h, mean over the measured steps; t interval over seeds",
        )
        cosines = over_steps(rows, HEAD_PATH[head], "against_hidden").mean(axis=1)
        seeds, reason = Seeds(config.judging_seeds, config.selecting_seeds), "" if measured else UNMEASURED
        yield question.answer(Measurement.over_seeds(cosines), context, seeds, reason=reason)


def _both_papers(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    names = ("Adam", "Adam √d", "Coupled Adam √d")
    for head in config.heads if set(names) <= set(config.groups) else ():
        matrix = "tied matrix" if HEADS[head] else "input embedding"
        plain, scaled, coupled = (tuned_runs(table, config, name, head) for name in names)
        drifts = [at_last_step(rows, EMBEDDING_PATH[head], "mean_drift") for rows in (plain, scaled, coupled)]
        question = Question(
            statement=f"Adam's drift of the {matrix} increases if the embedding's rate is √d times the other rates",
            source=BOTH_PAPERS,
            paper_value=None,
            claimed=(0.0, np.inf),
            note=f"difference in {DRIFT}; {OWN_RATE}",
        )
        yield question, _difference(drifts[1], drifts[0])
        question = Question(
            statement=f"the mean of the {matrix} drifts less under Coupled Adam with the embedding's rate times √d "
            "than under Adam with equal rates",
            source=BOTH_PAPERS,
            paper_value=None,
            claimed=(0.0, np.inf),
            note=f"difference in {DRIFT}; {OWN_RATE}",
        )
        yield question, _difference(drifts[0], drifts[2])


def _losses(table, config: Config, context) -> Iterator[Claim]:
    """Yields whether Coupled Adam costs loss if the embedding's rate is √d times the other rates."""
    names = ("Coupled Adam √d", "Adam √d")
    for head in config.heads if set(names) <= set(config.groups) else ():
        question = Question(
            statement="if the embedding's rate is √d times the other rates, Coupled Adam has no higher loss than Adam "
            f"({head} head)",
            source=BOTH_PAPERS,
            paper_value=None,
            claimed=(-np.inf, 0.01),
            note=f"difference in validation bits per byte, within 0.01; t interval over seeds; {OWN_RATE}; the "
            "interval allows for the selection of the rates by one seed",
        )
        measured = difference(*([[tuned(table, config, name, head)]] for name in names))
        claim = question.answer(measured, context, Seeds(config.judging_seeds, config.selecting_seeds))
        plus, minus = ([name] * at_edge(table, config, name, head) for name in names)
        yield unless_at_edge(claim, question.claimed, plus, minus)


def _difference(first: np.ndarray, second: np.ndarray) -> Measurement:
    """The mean difference seed by seed; unknown if a group has no run or a seed is missing."""
    return Measurement.over_seeds(first - second if len(first) and len(second) else [])
