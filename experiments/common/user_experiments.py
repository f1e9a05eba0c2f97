"""Experiments in files of somebody's own: found by path, held to a digest, executed when their code is needed.

Such a file is a program, and to load it is to run it, with all that its user may do. `python -m sweeps run FILE` is
asked to; a sweep keeps a copy, and its manifest path and digest, so that `resume`, `figure` and workers run what `run`
was given or nothing.
"""

import contextlib
import hashlib
import json
import re
import sys
import traceback
import types
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.configuration import configured, to_dict
from experiments.common.names import NAMES
from lvp.errors import InputError
from lvp.files import write_whole
from lvp.training import records

if TYPE_CHECKING:  # takes seconds, and whoever asks how far a sweep is executes nothing
    from experiments.common.experiment import CellLanes, Experiment

KEPT = "experiment.py"  # in a sweep's directory
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")  # part of directories' names


@dataclass(frozen=True)
class Source:
    """A file that holds an experiment. path: absolute. sha256: of its bytes."""

    path: str
    sha256: str


def is_file(experiment: str) -> bool:
    """Whether what was given for an experiment is a file and no name."""
    return experiment.endswith(".py")


def source(path: str | Path) -> Source:
    """The file as it is now. Raises: InputError where it cannot be read."""
    path = Path(path).absolute()
    return Source(str(path), _digest(_read(path)))


def keep(source: Source, kept: Path) -> None:
    """Copies the file to where a sweep began with it, to be loaded from there whatever becomes of the file itself."""
    content = _read(Path(source.path))
    if _digest(content) == source.sha256:  # else `load` has something to say
        write_whole(kept, content)


def load(source: Source, kept: Path | None = None) -> "Experiment":
    """Executes the file, or the copy of it that a sweep has kept, once in a process, and returns its experiment.

    Raises: InputError in one line that names the file: it is missing, or no longer what it was; it does not run (with
    line and error); it holds no experiment, several, one of a name that lvp has or that no directory could have, or one
    whose configurations no sweep could use.
    """
    if kept is not None:
        with contextlib.suppress(OSError):
            if _digest(content := kept.read_bytes()) == source.sha256:
                return _executed(source, content)
    path = Path(source.path)
    try:
        content = _read(path)
    except InputError as error:
        raise InputError(f"{error}; the sweep began with it: put it back, or `run` it from where it is") from None
    if _digest(content) != source.sha256:
        raise InputError(
            f"experiment {path}: changed since the sweep began; `figure DIR --experiment {path}` draws with it as it "
            f"is, `run {path}` begins another sweep"
        )
    return _executed(source, content)


@cache
def _executed(source: Source, content: bytes) -> "Experiment":
    from experiments.common.experiment import Experiment  # see above

    path = source.path
    module = types.ModuleType(f"experiment_{source.sha256[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses look up what their annotations mean
    try:
        exec(compile(content, path, "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise InputError(f"experiment {path}:{_line(error, path)}: {_described(error)}") from error
    found = {id(value): value for value in vars(module).values() if isinstance(value, Experiment)}
    if len(found) != 1:
        names = ", ".join(str(e.name) for e in found.values()) or "none"
        raise InputError(f"experiment {path}: holds {names}; a file holds one, EXPERIMENT = Experiment(…)")
    (experiment,) = found.values()
    _check(experiment, path)
    return experiment


def _check(experiment: "Experiment", path: str) -> None:
    if not isinstance(experiment.name, str) or not _NAME.fullmatch(experiment.name):
        raise InputError(f"experiment {path}: its name must be letters, digits, - and _, got {experiment.name!r}")
    if experiment.name in NAMES:
        raise InputError(f"experiment {path}: lvp has an experiment called {experiment.name}; call it something else")
    for tier, config in experiment.tiers.items():
        if not is_dataclass(config) or "corpus" not in {f.name for f in fields(config)}:
            raise InputError(f"experiment {path}: tier {tier} must be a dataclass with a corpus, got {config!r}")
        try:  # as a manifest will have it, and give it back
            written = json.loads(records.dumps(to_dict(config)))
            configured(experiment, tier, written)
        except (TypeError, ValueError) as error:
            raise InputError(f"experiment {path}: tier {tier} cannot be written down and read again: {error}") from None


def check_cells(cells: "Iterable[CellLanes]") -> None:
    """InputError where two optimizers go by one name, by which records tell them apart, or a label is no line."""
    found: dict[str, Any] = {}
    for label, cell, *_ in cells:
        if not label.isprintable():
            raise InputError(f"cell {label!r}: its label must be of characters that can be printed")
        own = getattr(cell, "optimizer", None)
        if own is not None and found.setdefault(own.kind, own.factory) is not own.factory:
            raise InputError(f"cell {label}: optimizer {own.kind} has another factory than in the cells before it")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"experiment {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _line(error: BaseException, path: str) -> int:
    """The last line of the file that was at work."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return (lines[-1] if lines else None) or 1


def _described(error: BaseException) -> str:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {said}".splitlines()[0].removesuffix(": ")
