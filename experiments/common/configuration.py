"""Configurations of experiments: values replaced by key, and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from lvp.cli.parser import parsed
from lvp.errors import unknown

if TYPE_CHECKING:  # takes seconds, and whoever asks how far a sweep is trains nothing
    from experiments.common.experiment import Experiment


def configured(experiment: "Experiment", tier: str, values: Mapping[str, Any] | None = None):
    """The configuration of a tier of an experiment with some values replaced.

    `values` maps keys to values, or to text as a command line has it (lists by commas, `none` for None). Unknown keys
    and values of the wrong type raise InputError in one line.
    """
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
