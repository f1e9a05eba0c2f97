"""One package per question: the paper's claim, its cells at every tier, its figure, and how its claims are judged."""

import importlib
from collections.abc import Mapping
from typing import Any

from experiments.common import configuration
from experiments.common.configuration import to_dict
from experiments.common.names import NAMES
from lvp.errors import unknown

__all__ = ["NAMES", "configured", "load", "to_dict"]


def load(name: str, source=None, kept=None):
    """The `Experiment` of that name, or an InputError with a suggestion; with a source
    (`experiments.common.user_experiments.Source`) that of a file of somebody's own, which is executed, as
    `experiments.common.user_experiments.load` does."""
    if source is not None:
        from experiments.common import user_experiments

        return user_experiments.load(source, kept)
    if name not in NAMES:
        raise unknown("experiment", name, NAMES)
    return importlib.import_module(f"experiments.{name}").EXPERIMENT


def configured(experiment, tier: str, values: Mapping[str, Any] | None = None):
    """The configuration of a tier of an experiment (a name, or an `Experiment`) with some values replaced.

    `values` maps keys to values, or to text as a command line has it (lists by commas, `none` for None). Unknown keys
    and values of the wrong type raise InputError in one line.
    """
    experiment = load(experiment) if isinstance(experiment, str) else experiment
    return configuration.configured(experiment, tier, values)
