"""Reads the records of `mean_embedding`: tuned runs, measures of their vocabulary matrices, and the summary."""

from itertools import product
from typing import Any

import numpy as np

from lvp.analysis.tuned import Selected
from lvp.analysis.tuned import select as select_rate
from lvp.experiments.common.tables import (
    MATRICES,
    finished_by_seed,
    lists_by_row,
    mean_of_finite,
    with_optimizer,
)
from lvp.experiments.mean_embedding.config import (
    EMBEDDING_PATH,
    GROUPS,
    HEAD_PATH,
    HEADS,
    Config,
    EmbeddingRateGroup,
    rates_of,
    run,
    setting_of,
)
from lvp.training import Run


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """Setting label → runs of the judging seeds of every group, at the group's tuned rate."""
    by_label: dict[str, list[Run]] = {}
    for head, group in product(config.heads, (GROUPS[name] for name in config.groups)):
        rate = tuned_rate(table, config, group, head)
        runs = [] if rate is None else [run(config, group, head, rate, seed) for seed in config.judging_seeds]
        by_label.setdefault(f"{group.optimizer}, {head}", []).extend(runs)
    return by_label


def _columns(config: Config, group: EmbeddingRateGroup, head: str, rate: float) -> dict[str, Any]:
    """The values of the table's columns for a group at a rate; the optimizer and the seed are left out."""
    example = run(config, group, head, rate, config.seeds[0])
    rates = {f"run.learning_rates.{role}": example.learning_rates[role] for role in MATRICES}
    return {"setting.model.tied": HEADS[head]} | rates


def selected_rate(table, config: Config, group: EmbeddingRateGroup, head: str) -> Selected | None:
    """The index of the rate with the least validation loss of the first seed; None if no run of that seed finished."""
    rows, seeds = with_optimizer(table, setting_of(config, group.optimizer, head)), config.selecting_seeds
    by_rate = [finished_by_seed(rows, _columns(config, group, head, rate), seeds) for rate in rates_of(config, group)]
    return select_rate(np.array([each["valid_bits_per_byte"].to_numpy(float) for each in by_rate]))


def tuned_rate(table, config: Config, group: EmbeddingRateGroup, head: str) -> float | None:
    """The rate that the first seed selects; None if no run of that seed finished."""
    selected = selected_rate(table, config, group, head)
    return None if selected is None else rates_of(config, group)[selected.best]


def at_edge(table, config: Config, name: str, head: str) -> bool:
    """Whether the tuned rate of a group is the first or last of several rates."""
    selected = selected_rate(table, config, GROUPS[name], head)
    return selected is not None and selected.at_edge


def tuned_runs(table, config: Config, name: str, head: str):
    """One row per judging seed of a group at its tuned rate; no row if no rate finished.

    The row of a missing or diverged run holds NaN.
    """
    group = GROUPS[name]
    rate = tuned_rate(table, config, group, head)
    if rate is None:
        return table[:0]
    rows = with_optimizer(table, setting_of(config, group.optimizer, head))
    return finished_by_seed(rows, _columns(config, group, head, rate), config.judging_seeds)


def over_steps(rows, path: str, measure: str) -> np.ndarray:
    """A measure of a vocabulary matrix [seeds, measured steps, ...]; NaN for a missing or diverged run."""
    column = f"measures.vocabulary.{path}.{measure}"
    lists = [x for x in rows.get(column, ()) if isinstance(x, list)]
    return lists_by_row(rows, column, np.shape(np.array(lists[0], float)) if lists else (1,))


def at_last_step(rows, path: str, measure: str) -> np.ndarray:
    """A measure of a vocabulary matrix at the last measured step [seeds, ...]."""
    return over_steps(rows, path, measure)[:, -1]


def moment_fit(table, config: Config, head: str) -> tuple[np.ndarray, np.ndarray]:
    """The fit of v̂ over token frequency, for the head under Adam.

    Returns:
      R² [seeds], the mean over the measured steps except the first, and the slope A [seeds] at the last measured
      step times the tokens of a step, which estimates E[h²].
    """
    rows = tuned_runs(table, config, "Adam", head)
    r_squared = np.array([steps[1:].mean() for steps in over_steps(rows, HEAD_PATH[head], "r_squared")])
    return r_squared, at_last_step(rows, HEAD_PATH[head], "slope") * config.batch * config.context


def summary(table, config: Config) -> str:
    """Validation loss and geometry of the vocabulary matrices at the end, of every group at its tuned rate."""
    header = f"{'optimizer':<17} {'rate':>8} {'bits/byte':>10} {'drift: head':>12} {'embedding':>10}"
    header += f" {'mean row':>9} {'cosine':>8} {'isotropy':>9} {'R²':>6}"
    lines = []
    for head in config.heads:
        about = (
            "means over the judging seeds; mean row, cosine, isotropy and R² (of v̂ against frequency) are measured on "
            "the head"
        )
        lines += [f"{head} head, {about}", header]
        for name in config.groups:
            group = GROUPS[name]
            rows, rate = tuned_runs(table, config, name, head), tuned_rate(table, config, group, head)
            if not len(rows):
                lines.append(f"{name:<17} no finished run")
                continue
            edge = "*" if at_edge(table, config, name, head) else " "
            numbers = [at_last_step(rows, path[head], "mean_drift") for path in (HEAD_PATH, EMBEDDING_PATH)]
            measures = ("mean_norm", "average_cosine", "isotropy", "r_squared")
            numbers += [at_last_step(rows, HEAD_PATH[head], measure) for measure in measures]
            drift, embedding_drift, mean_norm, cosine, isotropy, fit = map(mean_of_finite, numbers)
            line = f"{name:<17} {rate:>7.4g}{edge} {rows['valid_bits_per_byte'].mean():>10.3f} {drift:>12.2g} "
            line += f"{embedding_drift:>10.2g} {mean_norm:>9.2g} {cosine:>8.3f} {isotropy:>9.2g} {fit:>6.2f}"
            lines.append(line.replace("nan", "  –"))
        lines.append("")
    for head in config.heads:
        r_squared, scale = moment_fit(table, config, head)
        if not len(scale):
            continue
        lines.append(
            f"Adam, {head}: R² of v̂ against frequency {mean_of_finite(r_squared):.2f} over the measured steps; slope A "
            f"times the tokens of a step {mean_of_finite(scale):.2g} (E[h²] is about 1 after the last norm layer)"
        )
    lines.append(
        "drift: distance of the mean row from its initial value; mean row: its norm; both divided by the mean norm "
        "of a row. *: rate at the edge of its grid"
    )
    return "\n".join(lines)
