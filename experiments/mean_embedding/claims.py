"""The claims of `mean_embedding`."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds
from lvp.analysis.measurement import Measurement
from lvp.experiments.mean_embedding.analysis import (
    at_last_step,
    moment_fit,
    over_steps,
    tuned_runs,
)
from lvp.experiments.mean_embedding.config import EMBEDDING_PATH, HEAD_PATH, HEADS, Config

DRIFT = "drift of the mean row over the mean norm of a row, at the end"
OWN_RATE = "each group at its own tuned rate"
UNMEASURED = "the records were made before this measure"
Asked = tuple[Question, Measurement, str]  # with the reason why the claim is not tested
PAPER_B = "Stollenwerk & Stollenwerk 2025"
OURS = f"{OUR_RESULT}, after {PAPER_B}"  # whose models are larger
REMEDY = f"{OUR_RESULT}, after arXiv 2502.08441 (Coupled Adam)"


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of Stollenwerk & Stollenwerk, and the claims that combine them with Hayou & Liu.

    The sums that are zero exactly are tests and not claims.
    """
    parts = (_adam, _coupled_adam, _both_papers, _direction)
    seeds = Seeds(config.judging_seeds, config.selecting_seeds)
    interval = f"t interval over {len(config.judging_seeds)} judging seeds"
    return [
        replace(question, note=f"{question.note}; {interval}").answer(measurement, context, seeds, reason=reason)
        for part in parts
        for question, measurement, reason in part(table, config)
    ]


def _adam(table, config: Config) -> Iterator[Asked]:
    for head in config.heads if "Adam" in config.groups else ():
        question = Question(
            statement="Adam moves the mean row of the LM head by at least 1% of a row's norm",
            variant=head,
            source=OURS,
            paper_value="> 0",
            claimed=(0.01, np.inf),
            unit="drift / norm of a row",
            note=DRIFT,
        )
        rows = tuned_runs(table, config, "Adam", head)
        yield question, Measurement.over_seeds(at_last_step(rows, HEAD_PATH[head], "mean_drift")), ""
    for head in config.heads if "Adam" in config.groups else ():
        r_squared, _ = moment_fit(table, config, head)
        question = Question(
            statement="Adam's second moment of the LM head is linear in token frequency",
            variant=head,
            source=OURS,
            paper_value="R² = 0.85(7)",
            claimed=(0.78, np.inf),
            unit="R²",
            note="R² of a line with an intercept, at least 0.78 (0.85 − 0.07): mean over the measured steps except the "
            "first, at which v̂ is one squared gradient",
        )
        yield question, Measurement.over_seeds(r_squared), ""


def _coupled_adam(table, config: Config) -> Iterator[Asked]:
    """Yields the claims about Coupled Adam: isotropy and norm of the mean row, as ratios to Adam's."""
    for head in config.heads if {"Adam", "Coupled Adam"} <= set(config.groups) else ():
        groups = [tuned_runs(table, config, group, head) for group in ("Coupled Adam", "Adam")]
        for measure, name, quantity, claimed, paper in (
            (
                "isotropy",
                "the isotropy I = min Z / max Z, with Z(c) = Σ exp⟨c, row⟩ along the principal directions c,",
                "isotropy I",
                (1.0, np.inf),
                "> 1",
            ),
            (
                "mean_norm",
                "the norm of the mean row over the mean norm of a row",
                "norm of the mean row over that of a row",
                (0.0, 1.0),
                "< 1",
            ),
        ):
            coupled, plain = (at_last_step(rows, HEAD_PATH[head], measure) for rows in groups)
            question = Question(
                statement="Coupled Adam leaves the LM head more isotropic, with a smaller mean row, than Adam does",
                variant=f"{quantity}, {head}",
                source=REMEDY,
                paper_value=paper,
                claimed=claimed,
                unit="ratio",
                note=f"{name} under Coupled Adam over that under Adam, at the end, geometric mean over seeds; "
                f"{OWN_RATE}; the claim is about the direction, because we have no number of the paper",
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.log(coupled) - np.log(plain) if len(coupled) and len(plain) else np.array([])
            yield question, Measurement.over_seeds(ratios).exp(), ""


def _direction(table, config: Config) -> Iterator[Asked]:
    """Yields whether the mean row moves against the hidden state h.

    The paper states this for single rows; for the mean it is our result.
    """
    for head in config.heads if "Adam" in config.groups else ():
        rows = tuned_runs(table, config, "Adam", head)
        measured = f"measures.vocabulary.{HEAD_PATH[head]}.against_hidden" in table
        question = Question(
            statement="under Adam the mean row of the LM head moves against the mean hidden state h",
            variant=head,
            source=OUR_RESULT,
            paper_value=None,
            claimed=(0.0, np.inf),
            unit="cosine",
            note="cosine of the mean row's update and of −h, above 0, mean over the measured steps",
        )
        cosines = over_steps(rows, HEAD_PATH[head], "against_hidden").mean(axis=1)
        yield question, Measurement.over_seeds(cosines), "" if measured else UNMEASURED


def _both_papers(table, config: Config) -> Iterator[Asked]:
    names = ("Adam", "Adam √d", "Coupled Adam √d")
    for head in config.heads if set(names) <= set(config.groups) else ():
        matrix = "tied matrix" if HEADS[head] else "input embedding"
        plain, scaled, coupled = (tuned_runs(table, config, name, head) for name in names)
        drifts = [at_last_step(rows, EMBEDDING_PATH[head], "mean_drift") for rows in (plain, scaled, coupled)]
        question = Question(
            statement="under Adam the embedding's mean row drifts more if its rate is √d times the other rates",
            variant=matrix,
            source=OUR_RESULT,
            paper_value=None,
            claimed=(0.0, np.inf),
            unit="drift / norm of a row",
            note=f"drift at √d times the rate minus drift at one rate; {DRIFT}; {OWN_RATE}",
        )
        yield question, _difference(drifts[1], drifts[0]), ""
        question = Question(
            statement="the embedding's mean row drifts less under Coupled Adam at √d times the rate than under Adam at "
            "one rate",
            variant=matrix,
            source=OUR_RESULT,
            paper_value=None,
            claimed=(0.0, np.inf),
            unit="drift / norm of a row",
            note=f"drift under Adam minus drift under Coupled Adam; {DRIFT}; {OWN_RATE}",
        )
        yield question, _difference(drifts[0], drifts[2]), ""


def _difference(first: np.ndarray, second: np.ndarray) -> Measurement:
    """The mean difference seed by seed; unknown if a group has no run or a seed is missing."""
    return Measurement.over_seeds(first - second if len(first) and len(second) else [])
