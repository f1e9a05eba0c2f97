"""Command lines: one-line errors that suggest the nearest name, and conversion of text to values."""

import argparse
import contextlib
import importlib.util
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, get_args, get_origin

from lvp.cli.output import outputs
from lvp.errors import InputError, shown, unknown
from lvp.files import explained

# The help of --corpus.
CORPORA = "python-docs, wikitext2[:DIR], text:FILE-OR-DIR, tfds:NAME, tokens:DIR, zipf[:EXPONENT]"
_LARGEST = 2**53  # largest number up to which floats represent all whole numbers


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors that begin with the program's short name (see `short_name`).

    A negative number in scientific notation is a value, not an option.
    """

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        words = with_negative_values(sys.argv[1:] if args is None else args)
        parsed_arguments, unused = self.parse_known_args(words, namespace)
        if unused:
            known = self._options(getattr(parsed_arguments, "command", None))
            self.error(str(unknown("argument", unused[0].partition("=")[0], known)))
        return parsed_arguments

    def error(self, message: str) -> NoReturn:
        match = re.search(r"argument command: invalid choice: '([^']*)'", message)
        if match:
            message = str(unknown("command", match.group(1), self._commands()))
        print(f"{short_name(self)}: {message}", file=sys.stderr)
        sys.exit(2)

    def _subparsers_actions(self):
        return [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]

    def _commands(self):
        return [name for action in self._subparsers_actions() for name in action.choices]

    def _options(self, command: str | None) -> list[str]:
        """The options of this parser and of one command that are shown in its help."""
        parsers = [self, *(p for a in self._subparsers_actions() for name, p in a.choices.items() if name == command)]
        actions = (action for p in parsers for action in p._actions if action.help != argparse.SUPPRESS)
        return [option for action in actions for option in action.option_strings]


class Refused(argparse.Action):
    """An option that a command refuses with a reason. Help does not show it."""

    def __init__(self, option_strings, dest, *, reason: str):
        super().__init__(option_strings, argparse.SUPPRESS, nargs="*", help=argparse.SUPPRESS)
        self.reason = reason

    def __call__(self, parser, namespace, values, option_string=None):
        parser.error(f"{option_string}: {self.reason}")


def with_negative_values(words: Sequence[str]) -> list[str]:
    """The words of a command line with `--option=-3e-4` for `--option -3e-4`, which argparse takes for two options."""
    joined: list[str] = []
    for word in words:
        if (
            joined
            and re.fullmatch(r"--[\w-]+", joined[-1])
            and re.fullmatch(r"-[\d.]+(e[-+]?\d+)?", word, re.IGNORECASE)
        ):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def count(text: str) -> int:
    """A whole number, also as 32k (32,000), 1.5M (1,500,000) or 1e3.

    Raises:
      argparse.ArgumentTypeError: the text is not a whole number.
    """
    try:
        return whole(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number such as 32064 or 32k, got {text!r}") from None


def whole(text: str) -> int:
    """A whole number from text such as 600, 1e3 or 32k.

    Raises:
      ValueError: the text is not a whole number, or the number is outside −2^53 to 2^53.
    """
    match = re.fullmatch(r"([-+\d.e]+?)([kM]?)", text.strip().replace("K", "k"))
    if match is None:
        raise ValueError(text)
    try:
        number = Decimal(match[1])
    except InvalidOperation:
        raise ValueError(text) from None
    number *= {"": 1, "k": 1000, "M": 1_000_000}[match[2]]
    if not number.is_finite() or abs(number) > _LARGEST or number != int(number):
        raise ValueError(text)
    return int(number)


def add_command(subparsers: Any, name: str, function: Callable, text: str) -> argparse.ArgumentParser:
    """Adds a command that calls the function with its arguments, and returns the command's parser."""
    command = subparsers.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.set_defaults(function=function)
    return command


def short_name(parser: argparse.ArgumentParser) -> str:
    """The name of the program: "sweeps" for `python -m lvp.sweeps run`."""
    words = [word for word in parser.prog.split() if word not in ("python", "-m")]
    return words[0].rpartition(".")[2]


def key_value(text: str, option: str = "--set") -> tuple[str, str]:
    """The pair (key, value) from the text key=value.

    Args:
      option: names the text in the error.

    Raises:
      InputError: the text has no equals sign.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"{option} takes key=value, got {text!r}")
    return key.strip(), value.strip()


def need(command: str, *packages: str, extra: str) -> None:
    """Checks that the packages of a command are installed.

    Args:
      extra: the extra of lvp that installs them.

    Raises:
      InputError: packages are missing. The error names them and the extra.
    """
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise InputError(f"{command} needs {' and '.join(missing)}: pip install 'lvp[{extra}]'")


_EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def parsed(key: str, value: Any, kind: Any) -> Any:
    """Converts a value to the type `kind`: bool, int, float, str, a tuple of one of these, or one of these or None.

    Args:
      key: names the value in errors.
      value: a JSON-like value or its text. A list may have brackets, and quotes around parts with commas. A whole
        number may be written as 1e3 or 2k.

    Raises:
      InputError: the value has another type, or the number is NaN or outside −2^53 to 2^53.
    """
    if get_origin(kind) is tuple:
        if isinstance(value, str):
            parts = re.findall(r'"([^"]*)"|([^,]+)', value.strip("[]() "))
            value = [part for quoted, plain in parts if (part := quoted or plain.strip())]
        if not isinstance(value, list | tuple):
            raise InputError(f"{key}: must be a list, got {shown(value)}")
        return tuple(parsed(key, part, get_args(kind)[0]) for part in value)
    if type(None) in get_args(kind):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    try:
        converted = _converted(value, kind)
    except (ValueError, OverflowError):
        raise InputError(f"{key}: must be {_EXPECTED[kind]}, got {shown(value)}") from None
    if isinstance(converted, int | float) and not abs(converted) <= _LARGEST:
        raise InputError(f"{key}: must be a number from −2^53 to 2^53, got {shown(value)}")
    return converted


def _converted(value: Any, kind: type) -> Any:
    """The value as bool, int, float or str.

    Raises:
      ValueError: the value has another type.
    """
    if isinstance(value, str):
        readers: Mapping[type, Callable] = {bool: _truth, int: whole, float: float, str: str}
        return readers[kind](value)
    allowed = {bool: bool, int: int | float, float: int | float, str: str}[kind]
    if not isinstance(value, allowed) or isinstance(value, bool) != (kind is bool) or (kind is int and value % 1):
        raise ValueError(value)
    return kind(value)


def _truth(text: str) -> bool:
    """The value of "true" or "false".

    Raises:
      ValueError: the text is neither.
    """
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def run_command(parser: Parser, argv: Sequence[str] | None, on_interrupt: Callable[[], None] = lambda: None) -> int:
    """Parses the arguments, runs their command and returns its exit code.

    0: success. 1: the command failed, or standard output was closed or full. 2: unusable input. 130: interrupted;
    `on_interrupt` is called before the message. An error is one line on standard error, after the program's name.
    """
    name = short_name(parser)
    with outputs() as (out, err):
        try:
            arguments = parser.parse_args(argv)
            with _interrupts_heard():
                code = _exit_code(name, lambda: arguments.function(arguments), on_interrupt)
        except SystemExit as end:  # argparse exits after help and after errors
            code = int(end.code or 0)
        out.flush()
        if out.lost is None:
            return code
        if not isinstance(out.lost, BrokenPipeError):  # a closed pipe, as of `head`, is no problem to report
            print(f"{name}: standard output was lost: {out.lost.strerror}", file=sys.stderr)
        return code or 1


@contextlib.contextmanager
def _interrupts_heard() -> Iterator[None]:
    """Repeats an interrupt that arrived in a finalizer, where Python ignores it. Imports run finalizers."""
    before, timers = sys.unraisablehook, []

    def again(ignored) -> None:
        if ignored.exc_type is KeyboardInterrupt:
            main = threading.main_thread().ident
            # At once, Python would ignore it again.
            later = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
            later.start()
            timers.append(later)
        else:
            before(ignored)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for later in timers:  # the command has ended
            later.cancel()


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
        exec("")  # clears CPython's mark of an interrupt in `exec(TEXT)`, which would end Python by the signal
        print(f"{name}: {error}" if error.args else f"{name}: interrupted", file=sys.stderr)
        return 130
    return 0
