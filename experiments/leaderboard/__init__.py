"""Which rule has the least loss at larger sizes, if it is tuned at one size?

Every entry is a rule of width and vocabulary with rules of depth, batch and horizon (`lvp.parametrization`). The hidden
rate is tuned at the base size. The entry then sets every rate, init std, multiplier, β and ε at held-out sizes. Each
held-out size moves one axis: width, vocabulary, depth, batch or number of tokens.

The gap of an entry at a size is its loss divided by the loss of a reference, minus 1. The reference is tuned at the
size itself: LVP's init, and the hidden rate and the embedding rate as free numbers. Some seeds tune, the others judge.

    python -m lvp.sweeps run leaderboard --preset laptop --corpus wikitext2      2 CPU cores
    python -m lvp.sweeps run leaderboard --rule mine.py                        with your own rule

`mine.py` defines a function `rule(width, vocab)` as in `lvp.parametrization.table`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from lvp.errors import InputError
from lvp.experiments.common.experiment import Experiment
from lvp.experiments.common.transferred_entries import ENTRIES, Entry
from lvp.experiments.leaderboard import analysis, blocks, claims, config, figure
from lvp.experiments.leaderboard.config import PRESETS, Config
from lvp.parametrization import table
from lvp.parametrization.rules import Rule
from lvp.roles import ROLES

__all__ = ["EXPERIMENT", "PRESETS", "Config", "Entry", "experiment", "with_rule"]


def experiment(name: str, entries: Mapping[str, Entry], presets: Mapping[str, Config]) -> Experiment:
    """The experiment with the given entries."""

    def bound(function: Callable) -> Callable:
        return functools.partial(function, entries=entries)

    return Experiment(
        name=name,
        question="which rule has the least loss at larger sizes, if it is tuned at one size?",
        presets=presets,
        settings=bound(config.settings),
        summary=bound(analysis.summary),
        figure=bound(figure.figure),
        claims=bound(claims.claims),
        follow_up=bound(analysis.follow_up),
        evidence=bound(analysis.evidence),
        blocks=blocks.blocks,
    )


def with_rule(name: str, rule: Rule) -> Experiment:
    """The leaderboard with one more entry: a rule of width and vocabulary, with the axis rules of "LVP".

    Raises:
      InputError: an entry has this name, `lvp.parametrization.table` refuses the rule, or the rule has other roles.
    """
    if name in ENTRIES:
        raise InputError(f"the leaderboard has an entry {name!r}: rename the file")
    size = PRESETS["smoke"].sizes[config.BASE]
    if set(table(rule, width=size.width, vocab=size.vocab)) != set(ROLES):
        raise InputError(f"rule must have the roles {', '.join(ROLES)} and no others")
    entries = {**ENTRIES, name: Entry(rule, ENTRIES[config.RECOMMENDED].axes)}
    presets = {preset: replace(each, entries=(*each.entries, name)) for preset, each in PRESETS.items()}
    return experiment(f"leaderboard-{name}", entries, presets)


EXPERIMENT = experiment("leaderboard", ENTRIES, PRESETS)
