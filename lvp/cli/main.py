"""python -m lvp recommend | table | coordinates | plan | tokenize"""

import argparse
import contextlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

from lvp.cli import recommend
from lvp.cli.parser import Parser, add_command, need, parsed, run_command, setting
from lvp.errors import InputError, unknown

# Settings of the 1B model's run that Hayou & Liu 2025 do not state.
BATCH = 256  # rows: 2^20 tokens of context 4096
STEPS = 62_000  # about their 65 B tokens at that batch


def _model(name: str, changes: dict[str, str]):
    """The decoder of a name or of a JSON file with fields of `lvp.models.configs.DecoderConfig`, with changes."""
    from lvp.models import configs

    known = {"1b": configs.hayou_liu_1b, "gpt2": configs.gpt2}
    base: Callable[..., configs.DecoderConfig]
    fields: dict[str, Any]
    if name in known:
        base, fields = known[name], {}
    elif Path(name).suffix == ".json":
        base, fields = configs.DecoderConfig, _fields(Path(name))
    else:
        raise unknown("model", name, [*known, "FILE.json"])
    hints = get_type_hints(configs.DecoderConfig)
    for key, value in (fields | changes).items():
        if key not in hints:
            raise unknown("field of the model", key, hints)
        fields[key] = parsed(key, value, hints[key])
    try:
        return base(**fields)
    except TypeError as error:
        raise InputError(f"{name}: {error}") from None


def _fields(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: must be a JSON object of the model's fields")
    return config


def tokenize(arguments: argparse.Namespace, pool: contextlib.AbstractContextManager | None = None) -> None:
    """Runs the command `tokenize`. `pool`: see `lvp.data.tokens.tokenization.tokenize`."""
    of_tfds = ("tensorflow_datasets", "array_record") if arguments.spec.startswith("tfds") else ()
    need("tokenize", "sentencepiece", "tqdm", *of_tfds, extra="lab")
    from lvp.data.text import corpora
    from lvp.data.tokens import tokenization
    from lvp.files import cache_dir

    names = ("spec", "vocab", "valid_bytes", "limit", "tokenizer", "tokenizer_bytes")
    settings = tokenization.Settings(**{name: getattr(arguments, name) for name in names})
    cache = cache_dir() / "data"
    meta = tokenization.tokenize(settings, arguments.out, cache=cache, workers=arguments.workers, pool=pool)
    for split, count in meta["tokens"].items():
        print(f"{split}: {count:,} tokens of {meta['text_bytes'][split]:,} bytes")
    corpus = corpora.absolute(f"tokens:{arguments.out}")
    print(f"validation is {meta['validation']}; use it in sweeps with --corpus {corpus}")


def _plan(arguments) -> None:
    kind, _, count = arguments.topology.partition(":")
    if kind == "host" and count.isdecimal():
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the program is only compiled, so no accelerator is needed
    need("plan", "flax", extra="lab,tpu")
    from lvp import plan
    from lvp.parallel.sharding import mesh_sizes
    from lvp.training import OPTIMIZERS, Cell, DataConfig, OptimizerConfig

    changes = dict(setting(s) for s in arguments.set)
    if arguments.remat:
        changes["remat"] = arguments.remat
    decays = "weight_decay" in inspect.signature(OPTIMIZERS.get(arguments.optimizer, lambda: None)).parameters
    cell = Cell(
        _model(arguments.model, changes),
        DataConfig("none", order="rows"),
        arguments.batch,
        STEPS,
        OptimizerConfig(arguments.optimizer, {"weight_decay": 0.1} if decays else {}),
        micro_batches=arguments.micro_batches,
        cooldown=0.2,
    )
    devices, _ = plan.devices_of(arguments.topology)
    tried = [("", cell), *plan.remedies(cell, mesh_sizes(arguments.mesh, len(devices)))]
    for words, candidate in tried:
        try:
            planned = plan.plan(candidate, arguments.topology, arguments.mesh)
        except plan.TooLarge as error:
            print(f"does not fit{' with ' if words else ''}{words}: {error}", file=sys.stderr)
            continue
        if planned.fits is False:
            print(f"does not fit{' with ' if words else ''}{words}", file=sys.stderr)
            continue
        print(*([f"it fits with {words}", ""] if words else []), plan.table(planned), sep="\n")
        return
    raise InputError("no tried setting fits in memory; use more devices or another --mesh")


def parser() -> Parser:
    top = Parser(prog="lvp", description="Learning rates by role and shape, and the cost of training runs.")
    subparsers = top.add_subparsers(dest="command", required=True, parser_class=Parser)
    recommend.add(subparsers)
    text = "compile a model's training for a topology, without the hardware, and print memory and time"
    command = add_command(subparsers, "plan", _plan, text)
    command.add_argument("model", help="1b (Hayou & Liu 2025, Table 3), gpt2, or FILE.json with the model's fields")
    command.add_argument("--topology", required=True, help="v5e:4x4, v5p:2x2x4, v6e:4x4, …, or host:8")
    command.add_argument("--mesh", default="", help="sizes such as data=1,model=1; fsdp gets the remaining devices")
    command.add_argument("--batch", type=int, default=BATCH, help=f"rows per step (default: {BATCH})")
    command.add_argument("--micro-batches", type=int, default=1, help="sequential parts of a step (default: 1)")
    command.add_argument("--remat", help="none, dots or block: the activations that the backward pass computes again")
    command.add_argument("--optimizer", default="adamw", help="adamw, lion_a, lion_ar, …")
    command.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="fields of the model"
    )
    add_tokenize(subparsers, tokenize)
    return top


def add_tokenize(subparsers: argparse._SubParsersAction, function: Callable) -> argparse.ArgumentParser:
    """Adds the command `tokenize`, which calls the function with its arguments, and returns the command's parser."""
    text = "tokenize a text of any size into a directory; the same command continues after an interruption"
    command = add_command(subparsers, "tokenize", function, text)
    forms = "text:FILE-OR-DIR, text:s3://BUCKET/PREFIX, tfds:NAME[/CONFIG][:VERSION][#FEATURE], wikitext2[:DIR]"
    command.add_argument("spec", metavar="SPEC", help=f"{forms} or python-docs")
    command.add_argument("--vocab", type=int, required=True, metavar="M", help="size of the vocabulary, at least 256")
    place = "an empty directory or prefix of a bucket (s3://BUCKET/PREFIX), or that of an interrupted command"
    command.add_argument("--out", required=True, metavar="DIR", help=place)
    sizes = {
        "--valid-bytes": (10_000_000, "maximum size of the validation text (default: 10 MB)"),
        "--limit": (None, "maximum size of the training text (default: all)"),
        "--tokenizer-bytes": (100_000_000, "size of the text that trains the tokenizer (default: 100 MB)"),
    }
    for name, (default, help) in sizes.items():
        command.add_argument(name, type=int, default=default, metavar="BYTES", help=help)
    command.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="use the tokenizer.model of another DIR (default: train one)"
    )
    command.add_argument("--workers", type=int, metavar="N", help="processes that encode (default: one per core)")
    return command


def main(argv: list[str] | None = None) -> int:
    return run_command(parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
