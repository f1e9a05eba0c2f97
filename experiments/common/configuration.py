"""Configurations of experiments: replacement of values by key, and conversion to JSON."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from lvp.cli.parser import parsed
from lvp.errors import unknown
from lvp.training import records

if TYPE_CHECKING:  # the import takes seconds, and the status of a sweep does not need it
    from lvp.experiments.common.experiment import Experiment


def configured(experiment: "Experiment", preset: str, values: Mapping[str, Any] | None = None):
    """The configuration of a preset of an experiment, with some values replaced.

    Args:
      values: field → value, or its text on a command line (a list has commas, `none` is None).

    Raises:
      InputError: the preset or a field is unknown, a value has the wrong type, or the configuration refuses a value.
        The message is one line.
    """
    base = _preset(experiment, preset)
    hints = get_type_hints(type(base))
    changes = {}
    for key, value in (values or {}).items():
        if key not in hints:
            raise unknown(f"key of {experiment.name}", key, hints)
        changes[key] = parsed(key, value, hints[key])
    return replace(base, **changes)


def _preset(experiment: "Experiment", preset: str):
    """The configuration of a preset.

    Raises:
      InputError: the preset is unknown.
    """
    if preset not in experiment.presets:
        raise unknown("preset", preset, experiment.presets)
    return experiment.presets[preset]


def restored(experiment: "Experiment", preset: str, recorded: Mapping[str, Any]):
    """The configuration of a recorded sweep.

    A field that is newer than the record has its class default. The default must reproduce older sweeps; the preset's
    value need not.

    Raises:
      InputError: the preset or a recorded field is unknown, a value has the wrong type, or the configuration refuses a
        value. The message is one line.
    """
    known = fields(_preset(experiment, preset))
    names = {field.name for field in known}
    values = {key if key in names else records.field_of(key): value for key, value in recorded.items()}
    added = {
        field.name: records.configuration(field.default)
        for field in known
        if field.name not in values and field.default is not MISSING
    }
    return configured(experiment, preset, {**values, **added})


def to_dict(config, preset=None) -> dict[str, Any]:
    """A configuration as JSON: tuples become lists, and fields marked `omit_default` are left out at their default.

    Args:
      preset: the configuration of the preset, or None. Fields that differ from it are always stored, so `configured`
        restores them.
    """
    stored = records.configuration(config)
    if preset is not None:
        present = records.configuration(preset)
        names = {records.KEYS.get(field.name, field.name): field.name for field in fields(config)}
        stored |= {key: records.configuration(getattr(config, names[key])) for key in present.keys() - stored.keys()}
    return stored
