"""Shared by all command lines: errors in one line, with suggestions for misspelt names."""

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args, get_origin

from lvp.cli.output import outputs
from lvp.errors import InputError, shown, unknown
from lvp.files import explained

# The corpora of `lvp.data.text.corpora`.
CORPORA = "python-docs, wikitext2[:DIR], text:FILE-OR-DIR, tfds:NAME, tokens:DIR, zipf[:EXPONENT]"
_LARGEST = 2**53  # largest number up to which floats represent all whole numbers


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line that begins with the program's short name, the last word of `prog`."""

    def error(self, message: str) -> NoReturn:
        match = re.match(r"unrecognized arguments: (\S+)", message)
        if match:
            options = [o for a in self._every_action() for o in a.option_strings]
            message = str(unknown("argument", match.group(1).split("=")[0], options))
        match = re.search(r"argument command: invalid choice: '([^']*)'", message)
        if match:
            message = str(unknown("command", match.group(1), self._commands()))
        print(f"{short_name(self)}: {message}", file=sys.stderr)
        sys.exit(2)

    def _subparsers_actions(self):
        return [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]

    def _commands(self):
        return [name for action in self._subparsers_actions() for name in action.choices]

    def _every_action(self):
        yield from self._actions
        for action in self._subparsers_actions():
            for parser in action.choices.values():
                yield from parser._actions


def add_command(subparsers: Any, name: str, function: Callable, text: str) -> argparse.ArgumentParser:
    """A command among argparse's subparsers, which calls the function with its arguments."""
    made = subparsers.add_parser(name, help=text, description=text, allow_abbrev=False)
    made.set_defaults(function=function)
    return made


def short_name(parser: argparse.ArgumentParser) -> str:
    """The name of the program: "sweeps" for `python -m sweeps run`."""
    words = [word for word in parser.prog.split() if word not in ("python", "-m")]
    return words[0]


def setting(text: str) -> tuple[str, str]:
    """key=value as a pair."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes key=value, got {text!r}")
    return key.strip(), value.strip()


def need(command: str, *packages: str, extra: str) -> None:
    """Raises InputError if packages are missing; the error names them and the extra that installs them."""
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise InputError(f"{command} needs {' and '.join(missing)}: pip install -e '.[{extra}]'")


def parsed(key: str, value: Any, kind: Any) -> Any:
    """`value` as `kind`, from JSON-like values or from text; InputError naming key and offending part, and for numbers
    that are NaN, infinite, or too large to be counted by."""
    import pydantic  # of the lab, not of the library

    if isinstance(value, str) and value.lower() == "none" and type(None) in get_args(kind):
        value = None
    if get_origin(kind) is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, list | tuple):
            return tuple(parsed(key, part, get_args(kind)[0]) for part in value)
    adapter = pydantic.TypeAdapter(kind)
    try:
        parsed_value = adapter.validate_strings(value) if isinstance(value, str) else adapter.validate_python(value)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise InputError(f"{key}: {problem[0].lower()}{problem[1:]}, got {shown(value)}") from None
    if isinstance(parsed_value, int | float) and not abs(parsed_value) <= _LARGEST:
        raise InputError(f"{key}: must be a number of at most 2^53 and not NaN, got {shown(value)}")
    return parsed_value


def run_command(parser: Parser, argv: Sequence[str] | None, on_interrupt: Callable[[], None] = lambda: None) -> int:
    """Parses the arguments, runs their command and returns its exit code.

    0: success. 1: the command failed on the way, or it succeeded and standard output was closed or full. 2: unusable
    input. 130: interrupted; `on_interrupt` is called before the message. Errors are one line on standard error, after
    the program's name.
    """
    name = short_name(parser)
    with outputs() as (out, err):
        try:
            arguments = parser.parse_args(argv)
            code = _exit_code(name, lambda: arguments.function(arguments), on_interrupt)
        except SystemExit as end:  # of argparse
            code = int(end.code or 0)
        out.flush()
        if out.lost is None:
            return code
        if not isinstance(out.lost, BrokenPipeError):  # its reader has chosen to stop
            print(f"{name}: standard output was lost: {out.lost.strerror}", file=sys.stderr)
        return code or 1


def _exit_code(name: str, function: Callable[[], None], on_interrupt: Callable[[], None]) -> int:
    try:
        function()
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{name}: {explained(error)}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        on_interrupt()
        print(f"{name}: {error}" if error.args else f"{name}: interrupted", file=sys.stderr)
        return 130
    return 0
