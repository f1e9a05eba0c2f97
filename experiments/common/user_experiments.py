"""Experiments in users' files, which are identified by path and digest and executed when their code is needed.

Loading such a file executes it with the rights of the user. Only a path that the user has given is executed, never a
copy in a sweep's directory. A file with another digest is an error. Workers get the content from the driver.
"""

import hashlib
import json
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lvp.errors import InputError
from lvp.experiments.common.configuration import configured, to_dict
from lvp.experiments.common.names import NAMES
from lvp.training import records

if TYPE_CHECKING:  # the import takes seconds, and the status of a sweep does not need it
    from lvp.experiments.common.experiment import Experiment, SettingRuns

_MODULE = "experiment_"  # how the name of the module of a user's file begins
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")  # names become parts of directories' names


@dataclass(frozen=True)
class Source:
    """A file that holds an experiment, or a rule for the leaderboard."""

    path: str  # absolute
    sha256: str  # digest of the file's bytes


def is_file(experiment: str) -> bool:
    """True if the argument names a file and not an experiment of lvp."""
    return experiment.endswith(".py")


def source(path: str | Path) -> Source:
    """The path and the present digest of a file.

    Raises:
      InputError: the file cannot be read.
    """
    path = Path(path).absolute()
    return Source(str(path), _digest(_read(path)))


def load(source: Source, content: bytes | None, with_rule: "Callable[[str, Callable], Experiment]") -> "Experiment":
    """The experiment of a file. Executes the file once per process.

    Args:
      content: the content of the file; None reads it.
      with_rule: makes the experiment of a file without an experiment but with a function `rule(width, vocab)`, from the
        file's stem and this function.

    Raises:
      InputError: the file cannot be read or has another digest, its code fails, it defines several experiments or
        neither an experiment nor a rule, the experiment's name is taken or not allowed, or a configuration cannot be
        written as JSON and read again. The message is one line and names the file.
    """
    content = _read(Path(source.path)) if content is None else content
    if _digest(content) != source.sha256:
        raise InputError(f"experiment {source.path} changed since it was first read; repeat the command")
    return _executed(source, content, with_rule)


@cache
def _executed(source: Source, content: bytes, with_rule: Callable) -> "Experiment":
    from lvp.experiments.common.experiment import Experiment  # the import takes seconds

    path = source.path
    module = types.ModuleType(f"{_MODULE}{source.sha256[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look up their annotations there
    try:
        exec(compile(content, path, "exec", dont_inherit=True), module.__dict__)
        by_id = {id(value): value for value in vars(module).values() if isinstance(value, Experiment)}
        if not by_id and callable(rule := vars(module).get("rule")):
            by_id = {0: with_rule(Path(path).stem, rule)}
    except (Exception, SystemExit) as error:
        raise InputError(f"experiment {path}:{_line(error, path)}: {_described(error)}") from error
    if len(by_id) != 1:
        names = ", ".join(str(e.name) for e in by_id.values()) or "none"
        raise InputError(
            f"experiment {path} must define one experiment, EXPERIMENT = Experiment(…), or a function "
            f"rule(width, vocab) for the leaderboard; it defines {names}"
        )
    (experiment,) = by_id.values()
    _check(experiment, path)
    return experiment


def _check(experiment: "Experiment", path: str) -> None:
    if not isinstance(experiment.name, str) or not _NAME.fullmatch(experiment.name):
        raise InputError(
            f"experiment {path}: its name must begin with a letter and have at most 64 letters, digits, - and _; "
            f"rename {experiment.name!r}"
        )
    if experiment.name in NAMES:
        raise InputError(f"experiment {path}: lvp has an experiment called {experiment.name}; choose another name")
    for preset, config in experiment.presets.items():
        if not is_dataclass(config) or "corpus" not in {f.name for f in fields(config)}:
            raise InputError(f"experiment {path}: preset {preset} must be a dataclass with a corpus, got {config!r}")
        try:  # a manifest holds the configuration as JSON
            written = json.loads(records.dumps(to_dict(config)))
            configured(experiment, preset, written)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"experiment {path}: preset {preset} cannot be converted to JSON and back: {error}"
            ) from None


def check_settings(settings: "Iterable[SettingRuns]") -> None:
    """Checks the labels and optimizers of settings. The name of an optimizer identifies it in records.

    Raises:
      InputError: two optimizers have the same name, or a label has characters that cannot be printed.
    """
    factories: dict[str, Any] = {}
    for label, setting, *_ in settings:
        if not label.isprintable():
            raise InputError(f"setting {label!r}: the label must contain printable characters only")
        own = getattr(setting, "optimizer", None)
        if own is not None and factories.setdefault(own.kind, own.factory) is not own.factory:
            raise InputError(
                f"setting {label}: an earlier setting has another optimizer named {own.kind}; use distinct names"
            )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"experiment {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def place(error: BaseException) -> str:
    """The last line of a user's file in a traceback, such as "mine.py:12"; empty if there is none."""
    frames = [*traceback.walk_tb(error.__traceback__)]
    own = [(frame, line) for frame, line in frames if str(frame.f_globals.get("__name__")).startswith(_MODULE)]
    return f"{Path(own[-1][0].f_code.co_filename).name}:{own[-1][1]}" if own else ""


def _line(error: BaseException, path: str) -> int:
    """The number of the file's line at which the error occurred; 1 if it is unknown."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return (lines[-1] if lines else None) or 1


def _described(error: BaseException) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message}".splitlines()[0].removesuffix(": ")
