"""python -m lvp recommend | table | coordinates: `lvp.parametrization.recommend`, `lvp.parametrization`,
`lvp.coordinates`."""

import argparse
import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

from lvp.cli.parser import add_command, count, need, setting
from lvp.errors import InputError
from lvp.parametrization import AXES, RULES, TOKEN_ROWS, table
from lvp.parametrization.rules import PAPER_RULES

RULE = f"{', '.join(PAPER_RULES)} (default: lvp)"
WIDTHS, VOCAB = (32, 64, 128, 256), 1024


def add(subparsers: Any) -> None:
    """The three commands, into argparse's subparsers."""
    _add_recommend(subparsers)
    _add_table(subparsers)
    _add_coordinates(subparsers)


def _add_recommend(subparsers) -> None:
    text = "which learning rate and init every role should have, by which formula, and how far we measured that"
    made = add_command(subparsers, "recommend", _recommend, text)
    _add_size(made)
    made.add_argument("--hidden-lr", type=float, required=True, metavar="RATE", help="tuned rate of hidden matrices")
    made.add_argument("--rule", type=str.lower, default="lvp", help=RULE)
    made.add_argument(
        "--from-width", type=count, metavar="W", help="width of the smaller model the rates were tuned on"
    )
    made.add_argument("--from-vocab", type=count, metavar="M", help="its vocabulary (default: the same)")
    made.add_argument("--embedding-lr", type=float, metavar="RATE", help="its embedding's rate, if tuned for itself")
    _add_axes(made)
    made.add_argument("--kappa", type=float, metavar="K", help="of interpolated, from 0 to 1 (default: 1)")
    made.add_argument("--tokenizer", type=Path, metavar="FILE", help="SentencePiece model, for κ of token frequencies")
    made.add_argument("--corpus", type=Path, metavar="FILE", help="text whose tokens are counted: a file or directory")
    _add_rows(made)
    _add_json(made)


def _add_axes(made) -> None:
    """Options of depth, batch, horizon, decay and ε."""
    sizes = {
        "depth": "residual blocks",
        "batch": "tokens per step",
        "tokens": "tokens of the whole training",
    }
    for name, text in sizes.items():
        made.add_argument(f"--{name}", type=count, metavar="N", help=text)
        made.add_argument(f"--from-{name}", type=count, metavar="N", help=f"{text}, of the smaller model")
    made.add_argument("--steps", type=count, metavar="T", help="training steps, in place of --tokens")
    rules = "; ".join(f"{axis}={'|'.join(names)}" for axis, names in AXES.items())
    made.add_argument(
        "--axis",
        nargs="+",
        action="extend",
        default=[],
        metavar="AXIS=RULE",
        help=f"rules of axes, by default the first: {rules}",
    )
    made.add_argument("--weight-decay", type=float, metavar="L", help="tuned decay of AdamW (default: not reported)")
    betas = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}
    for name, default in betas.items():
        made.add_argument(f"--{name}", type=float, default=default, metavar="X", help=f"of AdamW ({default:g})")


def _add_table(subparsers) -> None:
    text = "init std, learning-rate multiplier and decay of every role under a rule, or under all side by side"
    made = add_command(subparsers, "table", _table, text)
    _add_size(made)
    made.add_argument("--rule", type=str.lower, help=f"{', '.join(PAPER_RULES)} (default: all for Adam)")
    made.add_argument("--kappa", type=float, metavar="K", help="of interpolated, from 0 to 1 (default: 1)")
    unit = "hidden: multipliers of the hidden matrices' rate, as in recommend; paper: of the paper's constant"
    made.add_argument("--normalize", default="hidden", help=f"{unit} (default: hidden)")
    _add_rows(made)
    _add_json(made)


def _add_coordinates(subparsers) -> None:
    text = "train the built-in decoder a few steps at several widths: do activations and their changes keep their size?"
    made = add_command(subparsers, "coordinates", _coordinates, text)
    made.add_argument("--rule", type=str.lower, default="lvp", help=RULE)
    widths = ",".join(map(str, WIDTHS))
    made.add_argument("--widths", type=_widths, default=WIDTHS, metavar="W,W,W", help=f"(default: {widths})")
    vocab = f"a number, or 8d for eight times the width (default: {VOCAB})"
    made.add_argument("--vocab", type=_vocab, default=VOCAB, metavar="M", help=vocab)
    made.add_argument("--hidden-lr", type=float, default=0.002, metavar="RATE", help="at the smallest width (0.002)")
    counts = {"layers": (2, "blocks"), "steps": (4, "of training"), "seeds": (4, "inits a width")}
    for name, (default, what) in counts.items():
        made.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} (default: {default})")
    _add_rows(made)
    made.add_argument("--out", type=Path, metavar="FILE", help="picture, .png or .svg")
    _add_json(made)


def _add_size(made) -> None:
    made.add_argument("--width", type=count, required=True, metavar="W", help="width of the residual stream")
    made.add_argument("--vocab", type=count, required=True, metavar="M", help="tokens of the vocabulary; 32k is 32,000")


def _add_rows(made) -> None:
    text = f"how embedding rows enter the model: {', '.join(TOKEN_ROWS)} (default: plain; sqrt: times √width)"
    made.add_argument("--rows", default="plain", dest="token_rows", metavar="ROWS", help=text)


def _add_json(made) -> None:
    made.add_argument("--json", action="store_true", help="JSON instead of text")


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers with commas between them, got {text!r}") from None


def _vocab(text: str):
    times, linear = text.removesuffix("d"), text.endswith("d")
    if not times.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, or one with a d for times the width, got {text!r}")
    return (lambda width: int(times) * width) if linear else int(times)


def _print_json(value) -> None:
    print(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False))


def _recommend(arguments) -> None:
    from lvp.parametrization.recommend import recommend

    names = [name for name in inspect.signature(recommend).parameters if name not in ("counts", "axes")]
    asked = {name: getattr(arguments, name) for name in names}
    asked["axes"] = dict(setting(word, "--axis") for word in arguments.axis)
    counts, origin = None, ""
    if arguments.tokenizer or arguments.corpus:
        if not (arguments.tokenizer and arguments.corpus):
            raise InputError("--tokenizer and --corpus go together: frequencies are those of a text's tokens")
        recommend(**asked)  # what is wrong with the rest is said before a long text is read
        need("recommend --tokenizer", "sentencepiece", extra="lab")
        from lvp.data.tokens import counts as token_counts

        counts, size = token_counts.count(arguments.tokenizer, arguments.corpus)
        origin = f"\n\nTokens counted in the first {size:,} bytes of {arguments.corpus}, by {arguments.tokenizer}"
    advice = recommend(**asked, counts=counts)
    _print_json(advice.as_dict()) if arguments.json else print(f"{advice}{origin}")


def _table(arguments) -> None:
    from lvp.parametrization.report import side_by_side

    rules = RULES if arguments.rule is None else (arguments.rule,)
    size = {name: getattr(arguments, name) for name in ("width", "vocab", "normalize", "token_rows")}
    tables = [table(rule, kappa=arguments.kappa, **size) for rule in rules]
    if arguments.json:
        _print_json({made.rule: dataclasses.asdict(made) for made in tables})
    else:
        print(tables[0] if len(tables) == 1 else side_by_side(tables))


def _coordinates(arguments) -> None:
    need("coordinates", "flax", *(["matplotlib"] if arguments.out else []), extra="lab")
    from lvp.analysis.figure_style import picture, save_as
    from lvp.coordinates import decoder

    if arguments.out:
        picture(arguments.out)  # refused before minutes are spent
    names = ("rule", "widths", "vocab", "hidden_lr", "layers", "steps", "seeds", "token_rows")
    coordinates = decoder.check(**{name: getattr(arguments, name) for name in names})
    _print_json(coordinates.as_dict()) if arguments.json else print(coordinates)
    if arguments.out:
        save_as(coordinates.figure(), arguments.out)
