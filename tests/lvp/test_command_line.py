"""Command lines: values from text, and one-line errors."""

import argparse
import re

import pytest

from lvp.cli.parser import Parser, Refused, add_command, count, parsed, whole, with_negative_values
from lvp.errors import InputError


@pytest.mark.parametrize(
    ("text", "number"), [("600", 600), ("1e3", 1000), ("32k", 32_000), ("1.5M", 1_500_000), ("-2", -2)]
)
def test_whole_numbers(text, number):
    assert whole(text) == number and isinstance(whole(text), int)


@pytest.mark.parametrize("text", ["", "x", "1.5", "nan", "inf", "1e-3", "1e400", "3 4"])
def test_other_texts_are_not_whole_numbers(text):
    with pytest.raises(ValueError):
        whole(text)
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number"):
        count(text)


def test_configured_values():
    assert parsed("widths", "[32, 64]", tuple[int, ...]) == parsed("widths", "32,64", tuple[int, ...]) == (32, 64)
    assert (
        parsed("groups", '["a, b",c]', tuple[str, ...]) == ("a, b", "c") and parsed("groups", "", tuple[str, ...]) == ()
    )
    assert parsed("rates", "(0.1,2e-3)", tuple[float, ...]) == (0.1, 2e-3)
    assert parsed("steps", "1e3", int) == parsed("steps", "1k", int | None) == 1000
    assert parsed("name", "1e3", str) == "1e3"
    assert parsed("gpt2", "True", bool) is parsed("gpt2", True, bool) is True
    assert parsed("size", "None", int | None) is parsed("size", None, int | None) is None
    assert parsed("steps", 2.0, int) == 2 and isinstance(parsed("rate", 1, float), float)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        *((value, int, "a whole number") for value in ("1.5", 1.5, True, None, "none", {}, float("inf"))),
        *((value, float, "a number") for value in ("x", False, None, [1.0], 10**400)),
        *((value, bool, "true or false") for value in ("1", 1, "no", None)),
        (3, str, "text"),
        (5, tuple[int, ...], "a list"),
        (float("nan"), float, "a number from −2^53 to 2^53"),
        (10**16, int, "a number from −2^53 to 2^53"),
    ],
)
def test_values_of_another_type_are_refused(value, kind, expected):
    with pytest.raises(InputError, match=re.escape(f"key: must be {expected}, got ")):
        parsed("key", value, kind)


def test_negative_numbers_are_values():
    words = ["recommend", "--hidden-lr", "-3e-4", "--kappa", "-1", "--json", "-x"]
    assert with_negative_values(words) == ["recommend", "--hidden-lr=-3e-4", "--kappa=-1", "--json", "-x"]


def test_refused_and_misspelt_options(capsys):
    parser = Parser(prog="python -m lvp.sweeps")
    commands = parser.add_subparsers(dest="command", parser_class=Parser)
    add_command(commands, "run", print, "").add_argument("--preset")
    resume = add_command(commands, "resume", print, "")
    resume.add_argument("--threads")
    resume.add_argument("--preset", action=Refused, reason="resume keeps the sweep's preset")
    for words, message in {
        "resume --preset smoke": "--preset: resume keeps the sweep's preset",
        "resume --theads 2": "unknown argument '--theads'; did you mean --threads?",
        "run --tire smoke": "unknown argument '--tire'; did you mean --preset?",
        "rnu": "unknown command 'rnu'; did you mean run?",
    }.items():
        with pytest.raises(SystemExit):
            parser.parse_args(words.split())
        assert capsys.readouterr().err == f"sweeps: {message}\n"
    assert "--preset" not in resume.format_help()
