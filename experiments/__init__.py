"""Experiments: one package per question, with its configuration, analysis, figure and claims."""

import importlib
from collections.abc import Mapping
from typing import Any

from lvp.errors import unknown
from lvp.experiments.common import configuration, user_experiments
from lvp.experiments.common.configuration import restored, to_dict
from lvp.experiments.common.names import NAMES

__all__ = ["NAMES", "configured", "load", "restored", "to_dict"]


def load(name: str, source=None, content=None):
    """The `Experiment` of a name or of a user's file.

    Args:
      name: one of `NAMES`; not used with a source.
      source: an `lvp.experiments.common.user_experiments.Source`; its file is executed.
      content: the content of that file; None reads it.

    Raises:
      InputError: the name is unknown, or the file cannot be read, has changed, or does not define one experiment.
    """
    if source is not None:
        return user_experiments.load(source, content, _with_rule)
    if name not in NAMES:
        raise unknown("experiment", name, NAMES)
    return importlib.import_module(f"lvp.experiments.{name}").EXPERIMENT


def _with_rule(name: str, rule):
    from lvp.experiments import leaderboard  # takes seconds, and most files define an experiment

    return leaderboard.with_rule(name, rule)


def configured(experiment, preset: str, values: Mapping[str, Any] | None = None):
    """The configuration of a preset, with some values replaced.

    Args:
      experiment: a name or an `Experiment`.
      values: field → value, or its text on a command line (a list has commas, `none` is None).

    Raises:
      InputError: the experiment, the preset or a field is unknown, or the configuration refuses a value.
    """
    experiment = load(experiment) if isinstance(experiment, str) else experiment
    return configuration.configured(experiment, preset, values)
