"""One file per question: the paper's claim, its cells at every tier, its figure, and how its claims are judged."""

import importlib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, get_type_hints

from lvp.cli.parser import parsed
from lvp.errors import unknown

NAMES = (
    "width_vocab",
    "width_fixed_vocab",
    "regimes",
    "mean_embedding",
    "warmup",
    "large_updates",
    "pretrain_1b",
    "token_frequencies",
    "feature_learning",
    "representation_change",
)


def load(name: str, source=None, kept=None):
    """The `Experiment` of that name, or an InputError with a suggestion; with a source (`experiments.own.Source`) that
    of a file of somebody's own, which is executed, as `experiments.own.load` does."""
    if source is not None:
        from experiments import own

        return own.load(source, kept)
    if name not in NAMES:
        raise unknown("experiment", name, NAMES)
    return importlib.import_module(f"experiments.{name}").EXPERIMENT


def configured(experiment, tier: str, values: Mapping[str, Any] | None = None):
    """The configuration of a tier of an experiment (a name, or an `Experiment`) with some values replaced.

    `values` maps keys to values, or to text as a command line has it (lists by commas, `none` for None). Unknown keys
    and values of the wrong type raise InputError in one line.
    """
    experiment = load(experiment) if isinstance(experiment, str) else experiment
    if tier not in experiment.tiers:
        raise unknown("tier", tier, experiment.tiers)
    base = experiment.tiers[tier]
    hints = get_type_hints(type(base))
    changes = {}
    for key, value in (values or {}).items():
        if key not in hints:
            raise unknown(f"key of {experiment.name}", key, hints)
        changes[key] = parsed(key, value, hints[key])
    return replace(base, **changes)


def to_dict(config) -> dict[str, Any]:
    """A configuration as JSON has it: tuples become lists."""
    return {f.name: list(v) if isinstance(v := asdict(config)[f.name], tuple) else v for f in fields(config)}
