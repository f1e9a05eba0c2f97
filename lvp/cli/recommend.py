"""The commands recommend, table and coordinates of `python -m lvp`."""

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lvp.cli.parser import add_command, count, key_value, need
from lvp.errors import InputError
from lvp.parametrization import AXES, RULES, TOKEN_ROWS, Shape, check_whole, table
from lvp.parametrization.axes import chosen
from lvp.parametrization.rules import PAPER_RULES

RULE = f"{', '.join(PAPER_RULES)} (default: lvp)"
WIDTHS, VOCAB = (32, 64, 128, 256), 1024
_SIZES = ("width", "vocab", "depth", "batch", "tokens")


def add(subparsers: Any) -> None:
    """Adds the three commands to argparse's subparsers."""
    _add_recommend(subparsers)
    _add_table(subparsers)
    _add_coordinates(subparsers)


def _add_recommend(subparsers) -> None:
    text = "print the recommended learning rate and init std of every role, and code"
    command = add_command(subparsers, "recommend", _recommend, text)
    _add_size(command)
    command.add_argument("--hidden-lr", type=float, required=True, metavar="RATE", help="tuned rate of hidden matrices")
    command.add_argument("--rule", type=str.lower, default="lvp", help=RULE)
    optimizer = "of hidden matrices: adamw (default), or muon, whose rate --hidden-lr then is"
    command.add_argument("--optimizer", type=str.lower, default="adamw", help=optimizer)
    command.add_argument(
        "--from-width", type=count, metavar="W", help="width of the smaller model on which the rates were tuned"
    )
    command.add_argument(
        "--from-vocab", type=count, metavar="M", help="vocabulary of the smaller model (default: M of --vocab)"
    )
    command.add_argument(
        "--embedding-lr", type=float, metavar="RATE", help="embedding rate of the smaller model, if tuned separately"
    )
    _add_axes(command)
    command.add_argument(
        "--kappa", type=float, metavar="K", help="κ for the rule 'interpolated', from 0 to 1 (default: 1)"
    )
    command.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="SentencePiece model, to compute κ from token frequencies"
    )
    command.add_argument("--corpus", type=Path, metavar="FILE", help="text for token frequencies: a file or directory")
    command.add_argument(
        "--evidence", action="store_true", help="formulas, sources, the other rules and the committed measurements too"
    )
    _add_rows(command)
    _add_tied(command)
    _add_json(command)


def _add_axes(command) -> None:
    """Adds the options of depth, batch, horizon, rules of axes, weight decay and AdamW's constants."""
    sizes = {"depth": "residual blocks", "batch": "tokens per step", "tokens": "tokens of the whole training"}
    for name, text in sizes.items():
        command.add_argument(f"--{name}", type=count, metavar="N", help=text)
        command.add_argument(f"--from-{name}", type=count, metavar="N", help=f"{text}, of the smaller model")
    command.add_argument("--steps", type=count, metavar="T", help="training steps, in place of --tokens")
    rules = "; ".join(f"{axis}={'|'.join(names)}" for axis, names in AXES.items())
    command.add_argument(
        "--axis",
        nargs="+",
        action="extend",
        default=[],
        metavar="AXIS=RULE",
        help=f"rules of axes (default: the first of each): {rules}",
    )
    command.add_argument("--weight-decay", type=float, metavar="L", help="tuned decay of AdamW (default: no decay)")
    betas = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}
    for name, default in betas.items():
        command.add_argument(
            f"--{name}", type=float, default=default, metavar="X", help=f"{name} of AdamW (default: {default:g})"
        )


def _add_table(subparsers) -> None:
    text = "print init std, learning-rate multiplier and decay of every role, under one rule or under all rules"
    command = add_command(subparsers, "table", _table, text)
    _add_size(command)
    command.add_argument("--rule", type=str.lower, help=f"{', '.join(PAPER_RULES)} (default: all for Adam)")
    command.add_argument(
        "--kappa", type=float, metavar="K", help="κ for the rule 'interpolated', from 0 to 1 (default: 1)"
    )
    _add_rows(command)
    _add_tied(command)
    _add_json(command)


def _add_coordinates(subparsers) -> None:
    text = "train a small decoder at several widths and test whether activations and their changes keep their size"
    command = add_command(subparsers, "coordinates", _coordinates, text)
    command.add_argument("--rule", type=str.lower, default="lvp", help=f"{', '.join(RULES)} (default: lvp)")
    widths = ",".join(map(str, WIDTHS))
    command.add_argument("--widths", type=_widths, default=WIDTHS, metavar="W,W,W", help=f"widths (default: {widths})")
    vocab = f"a number, or a multiple of the width such as 8d (default: {VOCAB})"
    command.add_argument("--vocab", type=_vocab, default=VOCAB, metavar="M", help=vocab)
    command.add_argument(
        "--hidden-lr",
        type=float,
        default=0.002,
        metavar="RATE",
        help="rate of hidden matrices at the smallest width (default: 0.002)",
    )
    counts = {"layers": (2, "blocks"), "steps": (4, "training steps"), "seeds": (4, "inits per width")}
    for name, (default, what) in counts.items():
        command.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} (default: {default})")
    _add_rows(command)
    command.add_argument("--out", type=Path, metavar="FILE", help="file of the figure, .png or .svg")
    _add_json(command)


def _add_size(command) -> None:
    command.add_argument("--width", type=count, required=True, metavar="W", help="width of the residual stream")
    command.add_argument(
        "--vocab", type=count, required=True, metavar="M", help="size of the vocabulary; 32k is 32,000"
    )


def _add_rows(command) -> None:
    text = f"how embedding rows enter the model: {', '.join(TOKEN_ROWS)} (default: plain; sqrt: times √width)"
    command.add_argument("--rows", default="plain", dest="token_rows", metavar="ROWS", help=text)


def _add_tied(command) -> None:
    command.add_argument("--tied", action="store_true", help="one matrix is both embedding and head")


def _add_json(command) -> None:
    command.add_argument("--json", action="store_true", help="JSON instead of text")


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers separated by commas, got {text!r}") from None


def _vocab(text: str):
    times, linear = text.removesuffix("d"), text.endswith("d")
    if not times.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number or a multiple of the width such as 8d, got {text!r}")
    return (lambda width: int(times) * width) if linear else int(times)


def _print_json(value) -> None:
    print(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False))


def _recommend(arguments) -> None:
    from lvp.parametrization.recommend import recommend

    names = "hidden_lr rule optimizer embedding_lr kappa token_rows tied weight_decay b1 b2 eps".split()
    asked: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    asked["axes"] = dict(key_value(word, "--axis") for word in arguments.axis)
    asked |= _shapes(arguments, asked["axes"])
    counts, origin = None, ""
    if arguments.tokenizer or arguments.corpus:
        if not (arguments.tokenizer and arguments.corpus):
            raise InputError("--tokenizer and --corpus must be given together: token frequencies need both")
        recommend(**asked)  # reports other errors before a long text is read
        need("recommend --tokenizer", "sentencepiece", extra="lab")
        from lvp.data.tokens import counts as token_counts

        counts, size = token_counts.count(arguments.tokenizer, arguments.corpus)
        origin = f"\n\nTokens counted in the first {size:,} bytes of {arguments.corpus}, by {arguments.tokenizer}"
    advice = recommend(**asked, counts=counts)
    if arguments.json:
        _print_json(advice.as_dict())
    else:
        print(f"{advice.with_evidence() if arguments.evidence else advice}{origin}")


def _shapes(arguments, axes: Mapping[str, str]) -> dict[str, Any]:
    """The arguments target, base and steps of `recommend`. Sizes without a --from-… size are not transferred."""
    sizes = {name: getattr(arguments, name) for name in _SIZES}
    smaller = {name: getattr(arguments, f"from_{name}") for name in _SIZES}
    if (steps := arguments.steps) is not None:
        check_whole("--steps", steps, 1)
        if sizes["tokens"] is not None:
            raise InputError("--tokens and --steps both give the horizon: pass only one of them")
        sizes["tokens"] = steps * arguments.batch if arguments.batch else None
    given = Shape(**sizes)  # checks the sizes
    for name, value in smaller.items():
        if value is None:
            continue
        check_whole(f"--from-{name}", value, 2 if name == "vocab" else 1)
        if sizes[name] is None:
            raise InputError(f"--from-{name} {value} needs --{name}, the size of this model")
    if smaller["vocab"] is not None and smaller["width"] is None:
        raise InputError(f"--from-vocab {smaller['vocab']} needs --from-width, the width of the smaller model")
    if sizes["depth"] is not None and smaller["depth"] is None and (name := chosen(axes)["depth"]) != "none":
        raise InputError(
            f"--depth {sizes['depth']} needs --from-depth, because depth rule {name!r} scales from a tuned depth; give "
            "it, or --axis depth=none"
        )
    tuned: dict[str, Any] = {name: value for name, value in smaller.items() if value is not None}
    kept: dict[str, Any] = {name: None for name in _SIZES[2:] if name not in tuned}
    target = dataclasses.replace(given, **kept)
    base = dataclasses.replace(target, **tuned) if tuned else None
    return {"target": target, "base": base, "steps": given.steps if steps is None else steps}


def _table(arguments) -> None:
    from lvp.parametrization.report import side_by_side

    rules = RULES if arguments.rule is None else (arguments.rule,)
    size = {name: getattr(arguments, name) for name in ("width", "vocab", "token_rows", "tied")}
    tables = [table(rule, kappa=arguments.kappa, **size) for rule in rules]
    if arguments.json:
        _print_json({rule_table.rule: dataclasses.asdict(rule_table) for rule_table in tables})
    else:
        print(tables[0] if len(tables) == 1 else side_by_side(tables))


def _coordinates(arguments) -> None:
    need("coordinates", "flax", *(["matplotlib"] if arguments.out else []), extra="lab")
    from lvp.analysis.figure_style import picture, save_as
    from lvp.coordinates import decoder

    if arguments.out:
        picture(arguments.out)  # checks the file's name before the training
    names = ("rule", "widths", "vocab", "hidden_lr", "layers", "steps", "seeds", "token_rows")
    coordinates = decoder.check(**{name: getattr(arguments, name) for name in names})
    _print_json(coordinates.as_dict()) if arguments.json else print(coordinates)
    if arguments.out:
        save_as(coordinates.figure(), arguments.out)
