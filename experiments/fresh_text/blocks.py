"""The blocks of README and docs that are made from the committed results of `fresh_text`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lvp.analysis import markdown
from lvp.experiments.fresh_text.analysis import (
    Reading,
    costs_of_powers,
    fewest_steps,
    law,
    of_group,
    percent,
    power_in_words,
    power_of_rate,
    power_of_vocab,
    read,
    sizes,
    varied,
)
from lvp.experiments.fresh_text.config import GROUPS
from lvp.experiments.fresh_text.minimum import measured

_ROWS = {"sqrt": "rows × √d", "plain": "plain rows"}
_UNKNOWN = "–"
MODEL, WIDTHS, BEST = "model", "width d", "best η_E / η_hidden"
POWER, POWER_OF_RATE = "the ratio follows", "the best η_E follows"
COST = "cost of twice / half the ratio"
SHORT = (MODEL, WIDTHS, BEST, POWER, POWER_OF_RATE, COST)


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """The best ratio of the embedding's rate to the hidden rate, for each model.

    The block "advice-table" is a table with a column per model. "advice" has its rows of `SHORT`, and a row per model.

    Args:
      results: see `lvp.experiments.common.experiment.Experiment`.
    """
    columns: list[tuple[str, dict[str, str]]] = []
    of_vocab: dict[str, dict[str, str]] = {}
    for each in sorted(results.values(), key=lambda result: len(set(result.config.vocabs))):
        if not (quantity := varied(each.config)):
            continue
        by_setting = read(each.table, each.config)
        for name in each.config.groups:
            readings = of_group(by_setting, name)
            resolved = [x for x in readings if x.best.optimum.resolved]
            if resolved and quantity == "d":
                columns.append((name, _column(each.config, name, resolved)))
            elif resolved:
                of_vocab[name] = _of_vocab(readings)
    if not columns:
        return {}
    for name, powers in of_vocab.items():  # in the model's first column, which has the fewest vocabularies
        next((column for other, column in columns if other == name), {}).update(powers)
    models = [_ROWS[GROUPS[name].token_rows] for name, _ in columns]
    labels = dict.fromkeys(label for _, column in columns for label in column)
    rows = [[label, *(column.get(label, _UNKNOWN) for _, column in columns)] for label in labels]
    short = [[name, *(column[label] for label in SHORT)] for name, (_, column) in zip(models, columns, strict=True)]
    return {
        "advice": markdown.table(["token rows", *SHORT], short),
        "advice-table": markdown.table(["", *models], rows),
    }


def _column(config: Any, name: str, readings: Sequence[Reading]) -> dict[str, str]:
    """Label of a row → text, for a model. The readings are in the order of the widths."""
    costs = {power: measured(100 * cost).value for power, cost in costs_of_powers(readings).items()}
    sides = (percent([getattr(each.best, side).value for each in readings]).value for side in ("twice", "half"))
    half, end = (readings[-1].best_after(part) for part in (0.5, 1.0))
    return {
        MODEL: ", ".join(filter(None, (GROUPS[name].label, sizes(config)))),
        WIDTHS: ", ".join(str(each.shape.width) for each in readings),
        BEST: ", ".join(f"{each.best.optimum.rate:.2g}" for each in readings),
        POWER: power_in_words(law(config, readings).power, "d"),
        POWER_OF_RATE: power_in_words(power_of_rate(readings).measurement, "d"),
        COST: _costs(sides),
        "cost at the largest d of the smallest d's ratio: kept / grown as √d / grown as d": _costs(costs.values()),
        "best ratio after all of the text, over that after half (largest d)": (
            f"{end.rate / half.rate:.2f}" if half.resolved and end.resolved else _UNKNOWN
        ),
    }


def _of_vocab(readings: Sequence[Reading]) -> dict[str, str]:
    """The rows about the vocabulary."""
    widths, vocabs = ([getattr(each.shape, name) for each in readings] for name in ("width", "vocab"))
    where = f"d {', '.join(map(str, sorted(set(widths))))}, m {min(vocabs)} to {max(vocabs)}"
    return {
        f"the ratio follows, after equal {what} ({where})": power_in_words(power_of_vocab(readings, steps).power, "m")
        for what, steps in (("bytes", None), ("steps", fewest_steps(readings)))
    }


def _costs(costs: Iterable[float]) -> str:
    """Costs in % of the loss."""
    return " / ".join(f"{cost:.1f} %" if np.isfinite(cost) else _UNKNOWN for cost in costs)
