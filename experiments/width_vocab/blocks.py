"""Blocks of README and docs that are made from the committed results of `width_vocab`."""

from collections.abc import Mapping, Sequence
from typing import Any

from lvp.analysis import markdown
from lvp.analysis.power_laws import in_words
from lvp.experiments.width_vocab.analysis import optima
from lvp.experiments.width_vocab.config import ADAPTIVE, READINGS
from lvp.experiments.width_vocab.token_rows import token_rows_table
from lvp.parametrization import published

MAIN = "laptop-wikitext2"  # the result of the README's figure


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """The blocks "headline", "published-powers" and "token-rows"; the first two need the result `MAIN`.

    Args:
      results: see `lvp.experiments.common.experiment.Experiment`.
    """
    rows = token_rows_table([(each.table, each.config) for each in results.values()])
    if (main := results.get(MAIN)) is None:
        return {"token-rows": rows}
    return {
        "headline": headline([each for each in results.values() if each.config.corpus == main.config.corpus]),
        "published-powers": published_powers(main),
        "token-rows": rows,
    }


def headline(results: Sequence[Any]) -> str:
    """A line: the exponents by kind of embedding rows, for each result, and what they depend on.

    Args:
      results: committed results on one corpus.
    """
    sentences = ["- **The paper's exponent of the width is −0.5.**"]
    for each in results:
        slopes = {READINGS[rows]: optima(each.table, each.config, rows)[1] for rows in each.config.token_rows}
        exponents = " and ".join(f"{in_words(fit)} ({name})" for name, fit in slopes.items()).replace("-", "−")
        tuned = ", with a tuned hidden rate" * bool(each.config.hidden_constants)
        design = "on an adaptive grid" if each.config.design == ADAPTIVE else "on a grid"
        sentences.append(
            f"At widths {min(each.config.widths)} to {max(each.config.widths)}, {design}{tuned}: {exponents}."
        )
    limits = (
        "With rows × √d the exponent depends on the number of steps. Training reads the short texts many times "
        "([reasons](docs/width_vocab.md#how-the-laptop-preset-was-chosen))."
    )
    return f"{' '.join(sentences)} {limits}"


def published_powers(result: Any) -> str:
    """A table of `lvp.parametrization.published.POWER_LAWS` beside the exponent of plain rows in a result."""
    widths = result.config.widths
    power = in_words(optima(result.table, result.config, "plain")[1]).replace("-", "−")
    rows = []
    for law in published.POWER_LAWS:
        powers = ", ".join(f"{name}^{x:g}" for name, x in law.exponents.items())
        ours = f"not comparable: {law.other}"
        if law.width_exponent is not None:
            powers, ours = f"d^{law.width_exponent:g}", f"d^{power} (d {widths[0]} to {widths[-1]})"
        rows.append((law.source, law.quantity, powers.replace("-", "−"), ours))
    return markdown.table(("source", "rate", "published", "ours"), rows)
