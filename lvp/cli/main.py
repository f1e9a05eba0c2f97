"""python -m lvp recommend | table | coordinates | plan | train | tokenize | convert"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from lvp.cli import recommend
from lvp.cli.parser import CORPORA, Parser, add_command, count, need, run_command
from lvp.cli.recommend import RULE
from lvp.cli.settings import add_options, decoder_of, setting_of
from lvp.errors import InputError

# The run of the 1B model: Hayou & Liu 2025 do not state these values.
BATCH = 256  # sequences per step: 2^20 tokens at a context of 4096
STEPS = 62_000  # at this batch, about the 65 B tokens of the paper


def tokenize(arguments: argparse.Namespace, pool: contextlib.AbstractContextManager | None = None) -> None:
    """Runs the command `tokenize`.

    Args:
      arguments: the parsed command line.
      pool: as in `lvp.data.tokens.tokenization.tokenize`.
    """
    of_tfds = ("tensorflow_datasets", "array_record") if arguments.spec.startswith("tfds") else ()
    need("tokenize", "sentencepiece", "tqdm", *of_tfds, extra="lab")
    from lvp.data.text import corpora
    from lvp.data.tokens import tokenization
    from lvp.files import cache_dir

    names = ("spec", "vocab", "valid_bytes", "limit", "tokenizer", "tokenizer_bytes", "separator")
    settings = tokenization.Settings(**{name: getattr(arguments, name) for name in names})
    cache = cache_dir() / "data"
    meta = tokenization.tokenize(settings, arguments.out, cache=cache, workers=arguments.workers, pool=pool)
    for split, records in meta["shards"].items():
        tokens, size = (sum(record[name] for record in records) for name in ("tokens", "bytes"))
        print(f"{split}: {tokens:,} tokens of {size:,} bytes")
    corpus = corpora.absolute(f"tokens:{arguments.out}")
    print(f"validation is {meta['validation']}; use it in sweeps with --corpus {corpus}")


def _plan(arguments) -> None:
    kind, _, shape = arguments.topology.partition(":")
    if kind == "host" and shape.isdecimal():
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={shape}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the program is only compiled, so no accelerator is needed
    need("plan", "flax", extra="lab,tpu")
    from lvp.parallel.sharding import mesh_sizes
    from lvp.training import plan

    setting = setting_of(arguments, decoder_of(arguments), "none", STEPS)
    devices, _ = plan.devices_of(arguments.topology)
    tried = [("", setting), *plan.remedies(setting, mesh_sizes(arguments.mesh, len(devices)))]
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


def _train(arguments: argparse.Namespace) -> None:
    need("train", "flax", "orbax", "sentencepiece", extra="lab")
    from lvp.cli import train

    train.train(arguments)


def _convert(arguments: argparse.Namespace) -> None:
    need("convert", "flax", "orbax", "safetensors", extra="lab,convert")
    from lvp.models.export import export

    print(f"{arguments.out}: {export(arguments.place, arguments.out)} for transformers, without a tokenizer")


def parser() -> Parser:
    """The parser of the command `lvp`."""
    top = Parser(prog="lvp", description="Learning rates by role and shape, and the cost of training runs.")
    subparsers = top.add_subparsers(dest="command", required=True, parser_class=Parser)
    recommend.add(subparsers)
    text = "compile a model's training for a topology, without the hardware, and print its memory"
    command = add_command(subparsers, "plan", _plan, text)
    add_options(command)
    command.add_argument("--topology", required=True, help="v5e:4x4, v5p:2x2x4, v6e:4x4, …, or host:8")
    command.add_argument("--batch", type=int, default=BATCH, help=f"rows per step (default: {BATCH})")
    _add_train(subparsers)
    add_tokenize(subparsers, tokenize)
    text = "write the weights of a finished run as a model of Hugging Face transformers"
    command = add_command(subparsers, "convert", _convert, text)
    place = "OUT of a finished `lvp train`, or STORE/weights/RUN of a sweep with --keep-weights"
    command.add_argument("place", metavar="PLACE", help=place)
    command.add_argument("out", type=Path, metavar="OUT", help="a new directory")
    return top


def _add_train(subparsers) -> None:
    text = "train one decoder on all devices of one or more machines; the same command continues after an interruption"
    command = add_command(subparsers, "train", _train, text)
    add_options(command)
    command.add_argument("--corpus", required=True, metavar="SPEC", help=CORPORA)
    sizes = {"vocab": "size of the vocabulary", "steps": "training steps", "batch": "rows per step, on all devices"}
    for name, help in sizes.items():
        command.add_argument(f"--{name}", type=count, required=True, metavar="N", help=help)
    rate = "rate of the hidden matrices, from which the rule computes the other rates"
    command.add_argument("--learning-rate", type=float, required=True, metavar="RATE", help=rate)
    command.add_argument("--rule", type=str.lower, default="lvp", help=RULE)
    command.add_argument("--warmup-steps", type=count, default=0, metavar="N", help="rising rates (default: 0)")
    command.add_argument("--clip-norm", type=float, metavar="X", help="largest norm of the gradient (default: any)")
    command.add_argument("--seed", type=count, default=0, metavar="N", help="of init and data order (default: 0)")
    start = "begin with the parameters of OUT of another `lvp train`, or of STORE/weights/RUN"
    command.add_argument("--start-from", metavar="PLACE", help=start)
    place = "directory of the run, which all machines share"
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help=place)
    seconds = "least time between two checkpoints (default: 600)"
    command.add_argument("--checkpoint-seconds", type=float, default=600.0, metavar="S", help=seconds)
    joins = "train together with the other processes of a launcher (SLURM, a TPU pod, Open MPI, or JAX_… variables)"
    command.add_argument("--distributed", action="store_true", help=joins)


def add_tokenize(subparsers: argparse._SubParsersAction, function: Callable) -> argparse.ArgumentParser:
    """Adds the command `tokenize` and returns its parser. The command calls `function` with the parsed arguments."""
    text = "tokenize a text of any size into a directory; the same command continues after an interruption"
    command = add_command(subparsers, "tokenize", function, text)
    forms = "text:FILE-OR-DIR, text:s3://BUCKET/PREFIX, tfds:NAME[/CONFIG][:VERSION][#FEATURE], wikitext2[:DIR]"
    command.add_argument("spec", metavar="SPEC", help=f"{forms} or python-docs")
    command.add_argument("--vocab", type=int, metavar="M", help="size of the vocabulary to train, at least 256")
    place = "an empty directory or prefix of a bucket (s3://BUCKET/PREFIX), or that of an interrupted command"
    command.add_argument("--out", required=True, metavar="DIR", help=place)
    sizes = {
        "--valid-bytes": (10_000_000, "largest size of the validation text (default: 10 MB)"),
        "--limit": (None, "approximate size of the training text (default: all)"),
        "--tokenizer-bytes": (100_000_000, "size of the text that trains the tokenizer (default: 100 MB)"),
    }
    for name, (default, help) in sizes.items():
        command.add_argument(name, type=int, default=default, metavar="BYTES", help=help)
    file = "use a SentencePiece model or a tokenizer.json (default: train a tokenizer)"
    command.add_argument("--tokenizer", type=Path, metavar="FILE", help=file)
    mark = "token between documents (default: bos or eos if the tokenizer has one)"
    command.add_argument("--separator", choices=["none", "bos", "eos"], help=mark)
    command.add_argument("--workers", type=int, metavar="N", help="processes that encode (default: one per core)")
    return command


def main(argv: list[str] | None = None) -> int:
    """Runs the command `python -m lvp` and returns its exit code (`lvp.cli.parser.run_command`)."""
    return run_command(parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
