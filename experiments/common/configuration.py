"""Configurations of experiments: replacement of values by key, and conversion to JSON."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
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
    base = _tier(experiment, tier)
    hints = get_type_hints(type(base))
    changes = {}
    for key, value in (values or {}).items():
        if key not in hints:
            raise unknown(f"key of {experiment.name}", key, hints)
        changes[key] = parsed(key, value, hints[key])
    return replace(base, **changes)


def _tier(experiment: "Experiment", tier: str):
    """The configuration of a tier. Raises: InputError for an unknown tier."""
    if tier not in experiment.tiers:
        raise unknown("preset", tier, experiment.tiers)
    return experiment.tiers[tier]


def restored(experiment: "Experiment", tier: str, recorded: Mapping[str, Any]):
    """Returns the configuration of a recorded sweep.

    A field that is newer than the record has its class default. The default must reproduce older sweeps; the tier's
    value need not. Raises: InputError, as `configured` does.
    """
    added = {
        field.name: records.configuration(field.default)
        for field in fields(_tier(experiment, tier))
        if field.name not in recorded and field.default is not MISSING
    }
    return configured(experiment, tier, {**recorded, **added})


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
