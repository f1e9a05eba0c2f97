"""Configurations of experiments: replacement of values by key, and conversion to JSON."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_type_hints

from lvp.cli.parser import parsed
from lvp.errors import unknown
from lvp.training import records

if TYPE_CHECKING:  # the import takes seconds, and the status of a sweep does not need it
    from experiments.common.experiment import Experiment


def configured(experiment: "Experiment", tier: str, values: Mapping[str, Any] | None = None):
    """The configuration of a tier of an experiment, with some values replaced.

    Args:
      values: field → value, or its text on a command line (a list has commas, `none` is None).

    Raises:
      InputError: an unknown tier or field, a value of the wrong type, or a value that the configuration refuses.
        The message is one line.
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


def to_dict(config, tier=None) -> dict[str, Any]:
    """A configuration as JSON: tuples become lists, and fields marked `omit_default` are left out at their default.

    Args:
      tier: the configuration of the tier, or None. Fields that differ from it are always stored, so `configured`
        restores them.
    """
    stored = records.configuration(config)
    if tier is not None:
        present = records.configuration(tier)
        stored |= {name: records.configuration(getattr(config, name)) for name in present if name not in stored}
    return stored
