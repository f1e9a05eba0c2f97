"""Which rule transfers settings from a small model to a large one at the least cost, on every axis?

Every entry is a rule of width and vocabulary with rules of depth, batch and horizon (`lvp.parametrization`). Its one
constant, the hidden rate, is tuned at the base size. The entry then sets every rate, init std, multiplier, β and ε at
held-out sizes. Each held-out size moves one axis: width, vocabulary, depth, batch or number of tokens.

The gap of an entry at a size is its loss over that of a reference that was tuned at this size: LVP's init with the
hidden rate and the embedding's rate as free numbers. A gap can be negative. Some seeds tune, the others judge.

    python -m sweeps run leaderboard --tier laptop --corpus wikitext2      2 CPU cores
    python -m sweeps run leaderboard --rule mine.py                        with your own rule

`mine.py` defines a function `rule(width, vocab)` as in `lvp.parametrization.table`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from experiments.common.experiment import Experiment
from experiments.leaderboard import analysis, claims, config, figure
from experiments.leaderboard.config import ENTRIES, TIERS, Config, Entry
from lvp.parametrization.rules import Rule

__all__ = ["EXPERIMENT", "TIERS", "Config", "Entry", "experiment", "with_rule"]


def experiment(name: str, entries: Mapping[str, Entry], tiers: Mapping[str, Config]) -> Experiment:
    """The experiment with the given entries."""

    def bound(function: Callable) -> Callable:
        return functools.partial(function, entries=entries)

    return Experiment(
        name=name,
        question="which rule transfers settings from a small model to a large one at the least cost?",
        tiers=tiers,
        cells=bound(config.cells),
        summary=bound(analysis.summary),
        figure=bound(figure.figure),
        claims=bound(claims.claims),
        follow_up=bound(analysis.follow_up),
    )


def with_rule(name: str, rule: Rule) -> Experiment:
    """The leaderboard with one more entry: a rule of width and vocabulary, with the axis rules of "LVP on all axes"."""
    entries = {**ENTRIES, name: Entry(rule, ENTRIES[config.RECOMMENDED].axes)}
    tiers = {tier: replace(each, entries=(*each.entries, name)) for tier, each in TIERS.items()}
    return experiment(f"leaderboard-{name}", entries, tiers)


EXPERIMENT = experiment("leaderboard", ENTRIES, TIERS)
