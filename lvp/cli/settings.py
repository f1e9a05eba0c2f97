"""The options of `plan` and `train` that describe a decoder and its training, and the setting that they give."""

import argparse
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from lvp.cli.parser import key_value, parsed
from lvp.errors import InputError, unknown

if TYPE_CHECKING:
    from lvp.models.configs import DecoderConfig
    from lvp.training import Setting

COOLDOWN = 0.2  # the part of the steps, at the end, in which the rates fall to zero
WEIGHT_DECAY = 0.1  # of the optimizers that decay


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of a decoder, its optimizer and its mesh. The caller adds `--batch`."""
    command.add_argument("model", help="1b (Hayou & Liu 2025, Table 3), gpt2, or FILE.json with the model's fields")
    command.add_argument("--mesh", default="", help="sizes such as data=1,model=1; fsdp gets the remaining devices")
    command.add_argument("--micro-batches", type=int, default=1, help="sequential parts of a step (default: 1)")
    command.add_argument("--remat", help="none, dots or block: the activations that the backward pass computes again")
    command.add_argument("--optimizer", default="adamw", help="adamw, lion_a, lion_ar, …")
    command.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="fields of the model"
    )


def decoder_of(
    arguments: argparse.Namespace, under: Mapping[str, Any] | None = None, **changes: Any
) -> "DecoderConfig":
    """The decoder of the options.

    Args:
      under: fields that the file and `--set` override.
      **changes: fields with an option of their own, which override the file.

    Raises:
      InputError: `--set` gives another value than an option; otherwise as `decoder`.
    """
    given = dict(key_value(text) for text in arguments.set)
    changes |= {"remat": arguments.remat} if arguments.remat else {}
    for name in (name for name in changes if given.get(name, str(changes[name])) != str(changes[name])):
        raise InputError(f"--set {name}={given[name]} contradicts --{name} {changes[name]}: omit one")
    return decoder(arguments.model, given | changes, under)


def decoder(name: str, changes: Mapping[str, Any], under: Mapping[str, Any] | None = None) -> "DecoderConfig":
    """The decoder of a name or of a JSON file with fields of `lvp.models.configs.DecoderConfig`, with changes.

    Args:
      under: fields that the file and the changes override.

    Raises:
      InputError: the name or a field is unknown, the file cannot be read, or a value does not fit.
    """
    from lvp.models import configs

    known = {"1b": configs.hayou_liu_1b, "gpt2": configs.gpt2}
    base: Callable[..., configs.DecoderConfig]
    if name in known:
        base, fields = known[name], {}
    elif Path(name).suffix == ".json":
        base, fields = configs.DecoderConfig, _fields(Path(name))
    else:
        raise unknown("model", name, [*known, "FILE.json"])
    fields, hints = {**(under or {}), **fields, **changes}, get_type_hints(configs.DecoderConfig)
    for key, value in fields.items():
        if key not in hints:
            raise unknown("field of the model", key, hints)
        fields[key] = parsed(key, value, hints[key])
    try:
        return base(**fields)
    except TypeError as error:
        raise InputError(f"{name}: {error}") from None


def _fields(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: must be a JSON object of the model's fields")
    return config


def setting_of(
    arguments: argparse.Namespace, model: "DecoderConfig", corpus: str, steps: int, **more: Any
) -> "Setting":
    """The setting of the options. Its rows are streamed from disk, and its rates fall in the last fifth of the steps.

    Args:
      **more: further fields of the setting.
    """
    from lvp.training import OPTIMIZERS, DataConfig, OptimizerConfig, Setting

    decays = "weight_decay" in inspect.signature(OPTIMIZERS.get(arguments.optimizer, lambda: None)).parameters
    return Setting(
        model,
        DataConfig(corpus, order="rows"),
        arguments.batch,
        steps,
        OptimizerConfig(arguments.optimizer, {"weight_decay": WEIGHT_DECAY} if decays else {}),
        micro_batches=arguments.micro_batches,
        cooldown=COOLDOWN,
        **more,
    )
