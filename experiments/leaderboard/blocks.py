"""Blocks of README and docs that are made from the committed results of `leaderboard`."""

from collections.abc import Mapping
from typing import Any

from lvp.analysis import markdown
from lvp.analysis.measurement import Measurement
from lvp.experiments.leaderboard.analysis import read
from lvp.parametrization import evidence, published

MAIN = "laptop-wikitext2"  # the result of the README's table


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """The blocks "transfer" and "published-ratios" of the result `MAIN`; no block without it.

    Args:
      results: see `lvp.experiments.common.experiment.Experiment`.
    """
    if (main := results.get(MAIN)) is None:
        return {}
    return {"transfer": transfer(main.evidence), "published-ratios": published_ratios(main)}


def transfer(result: Mapping[str, Any]) -> str:
    """The gaps of every entry at every size in percent, as a table. The least mean gap is first.

    Args:
      result: a result from `lvp.parametrization.evidence.transfer`.
    """
    ranked = evidence.ranked(result)
    sizes, edges = list(ranked[0][1]["gaps"]), result["references_at_edge"]
    head = ["entry", "base", *(size + " *" * (size in edges) for size in sizes), "mean", "largest"]
    lines = []
    for name, row in ranked:
        gaps = [_percent(row["base_gap"]), *(_percent(row["gaps"][size]) for size in sizes)]
        ends = [_percent(row[f"{which}_gap"], row[f"{which}_gap_interval"]) for which in ("mean", "worst")]
        lines.append([name + " *" * row["constant_at_edge"], *gaps, *ends])
    table = markdown.table(head, lines, align="l" + "r" * (len(head) - 1))
    return f"{table}\n\n*: at the edge of its grid. A better value may exist." if "*" in table else table


def _percent(gap: float | None, interval: list[float] | None = None) -> str:
    """A gap in percent with its interval; "–" for None: a run diverged or is missing."""
    text = "–" if gap is None else Measurement(gap, (interval[0], interval[1]) if interval else None).percent()
    return text.replace("-", "−")


def published_ratios(result: Any) -> str:
    """A table of `lvp.parametrization.published.TUNED` beside the ratios of the references in a result."""
    references = read(result.table, result.config, {}).references.values()
    ratios = [each.reference.ratio for each in references]
    widths = [size.width for size in result.config.sizes.values()]
    ours = f"{min(ratios):g} to {max(ratios):g} √d (d {min(widths)} to {max(widths)}, references)"
    rows = []
    for tuned in published.TUNED:
        numbers = ("–", "not comparable: Muon trains the hidden matrices")
        if tuned.ratio_over_lvp is not None:
            numbers = (f"{tuned.ratio_over_lvp:.2f} √d", ours)
        rows.append((tuned.source, tuned.width, *numbers))
    return markdown.table(("source", "d", "published", "ours"), rows, align="lrll")
