"""Records of runs: lines of strict JSON, plain or with gzip, written atomically and read as a tidy table."""

import dataclasses
import gzip
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from lvp.errors import InputError
from lvp.files import ABSENT, listed, write_whole
from lvp.files.schema import Shape, fits
from lvp.training.setting import Setting

if TYPE_CHECKING:
    from pandas import DataFrame

FORMAT = 1
_SHAPE: Mapping[str, Shape] = {"format": int, "hash": str, "config": dict, "outcome": dict, "provenance": dict}
_KEYS = {*_SHAPE, "experiment", "tier", "sweep", "digest"}
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "sentencepiece", "ray", "numpy", "scipy")


def dumps(value: Any) -> str:
    """Strict JSON on one line, with keys sorted as text. `dumps(json.loads(dumps(value)))` equals `dumps(value)`.

    Raises:
      ValueError: the value contains NaN or an infinity.
      TypeError: the value contains a type without JSON.
    """
    return _canonical(json.loads(json.dumps(value, allow_nan=False)))  # 2 sorts before 10, but "10" before "2"


def _canonical(read: Any) -> str:
    """`dumps` of a value that was read from JSON, in half the time: all keys are text."""
    return json.dumps(read, allow_nan=False, sort_keys=True, separators=(",", ":"))


_COLUMNS = {"cell": "setting", "lane": "run"}  # key of a configuration in JSON → its name in tables
KEYS = {"groups": "arms", "flops_per_run": "flops_per_lane"}  # field → its key in JSON, which never changes
_FIELDS = {key: name for name, key in KEYS.items()}


def field_of(key: str) -> str:
    """The field of a dataclass that `configuration` writes under a key."""
    return _FIELDS.get(key, key)


def configuration(value: Any) -> Any:
    """A dataclass as JSON: `dataclasses.asdict` without the fields marked `omit_default` that hold their default.

    A field that is added with this mark leaves the hashes of older configurations valid. `KEYS` names the fields whose
    key differs.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            KEYS.get(f.name, f.name): configuration(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not (f.metadata.get("omit_default") and getattr(value, f.name) == f.default)
        }
    if isinstance(value, Mapping):
        return {key: configuration(item) for key, item in value.items()}
    return [configuration(item) for item in value] if isinstance(value, tuple | list) else value


def config_hash(config: Mapping) -> str:
    """16 hexadecimal digits of the SHA-256 of a configuration's strict JSON."""
    return _hash(dumps(config))


def _hash(canonical: str) -> str:
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def text(records: Iterable[Mapping]) -> str:
    """Records as JSON lines, each with a digest of its content."""
    return "".join(dumps({**r, "digest": config_hash(r)}) + "\n" for r in records)


def write(path: Path, records: Iterable[Mapping]) -> None:
    """Writes the `text` of records atomically, compressed if the path ends in .gz."""
    content = text(records).encode()
    write_whole(path, gzip.compress(content, mtime=0) if Path(path).suffix == ".gz" else content)


def content(path: Path) -> bytes:
    """The text of a file of records, decompressed if the path ends in .gz.

    Raises:
      InputError: the file is missing, or its compression is damaged.
      OSError: the machine cannot read the file (`lvp.files.machine`).
    """
    try:
        stored = Path(path).read_bytes()
    except ABSENT as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if Path(path).suffix != ".gz":
        return stored
    try:
        return gzip.decompress(stored)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a valid gzip file: {error}") from error


def read(path: Path) -> list[dict]:
    """The records of a file, or of all files `*.jsonl` and `*.jsonl.gz` of a directory, sorted by hash.

    Raises:
      InputError: a file is missing or damaged, or a line is not a record of this format or does not match its digest.
        The error names the file and the line.
      OSError: the machine cannot read the file (`lvp.files.machine`).
    """
    path = Path(path)
    files = [*listed(path, ".jsonl"), *listed(path, ".jsonl.gz")] if path.is_dir() else [path]
    return sorted((row for file in files for row in parse(content(file), str(file))), key=lambda r: r["hash"])


def parse(text: bytes, name: str) -> list[dict]:
    """The records in a text, in its order.

    Args:
      name: names the text in errors.

    Raises:
      InputError: a line is damaged or is not a record of this format. The error has the name and the line's number.
    """
    found = []
    for number, line in enumerate(text.decode(errors="replace").splitlines(), 1):
        try:
            found.append(_record(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}:{number} is not a record: {error}") from error
    return found


def _record(record: Any) -> dict:
    """The record without its digest.

    Raises:
      ValueError: the record is not valid. The error has the reason.
    """
    if isinstance(record, dict) and record.get("format", FORMAT) != FORMAT:
        raise ValueError(f"format {record['format']}, this version reads {FORMAT}")
    if not fits(record, _SHAPE) or not record.keys() <= _KEYS:
        raise ValueError("keys are missing or have values of the wrong type")
    digest = record.pop("digest", None)  # old records have no digest
    if digest not in (None, _hash(_canonical(record))):  # ValueError for infinite numbers, which JSON lacks
        raise ValueError("its content does not match its digest")
    return record


def flatten(nested: Mapping, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} → {"a.b": 1}; lists stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def table(records: Iterable[Mapping]) -> "DataFrame":
    """A pandas DataFrame with one row per run.

    Columns: hash; every configured value by its dotted name (`setting.model.width`, `run.learning_rates.embedding`, …);
    the outcome, with lists over measured steps for measures and over `curve_steps` for the training loss; provenance.
    """
    import pandas as pd

    rows = []
    for r in records:
        rows.append(
            {"hash": r["hash"]}
            | flatten({_COLUMNS.get(key, key): value for key, value in in_current_form(r)["config"].items()})
            | flatten(r["outcome"])
            | flatten(r["provenance"])
        )
    frame = pd.DataFrame(rows)
    # Selecting rows is slow for Arrow strings and for columns in separate memory blocks. `copy` joins the blocks.
    frame.columns = frame.columns.astype(object)
    return frame.astype({column: object for column, dtype in frame.dtypes.items() if dtype == "str"}).copy()


def in_current_form(record: Mapping) -> Mapping:
    """A record with its configuration, and its hash, in the current form.

    Old records give `weight_decay` by role, equal for all matrices. They lack the fields of a decoder's setting that
    are newer than the record. The default of a newer field must reproduce older runs.
    """
    setting = record["config"].get("cell", {})
    if "head_dim" not in setting.get("model", {}):  # not a setting of lvp's decoder
        return record
    current = _with_defaults(Setting, setting)
    optimizer = current["optimizer"]
    by_role = optimizer.get("options", {}).get("weight_decay")
    if isinstance(by_role, Mapping) and len(values := set(by_role.values())) == 1 and "vector" not in by_role:
        optimizer["options"] = {**optimizer["options"], "weight_decay": values.pop()}
    if current == setting:
        return record
    config = {**record["config"], "cell": current}
    return {**record, "config": config, "hash": config_hash(config)}


_field_types = cache(get_type_hints)  # slow


def _with_defaults(kind: type, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded fields of a dataclass, with the defaults of the fields that the record lacks."""
    types, current = _field_types(kind), dict(recorded)
    for field in dataclasses.fields(kind):
        if field.name not in recorded:
            if field.default is not dataclasses.MISSING and not field.metadata.get("omit_default"):
                current[field.name] = configuration(field.default)
        elif isinstance(nested := types[field.name], type) and dataclasses.is_dataclass(nested):
            current[field.name] = _with_defaults(nested, recorded[field.name])
    return current


@cache
def software() -> dict[str, Any]:
    """Git commit and package versions.

    The commit is $LVP_COMMIT, or that of the checkout, or None. "+" after the checkout's commit marks changed tracked
    files of lvp, experiments and sweeps.
    """

    def git(*args):
        here = Path(__file__).parent
        try:
            done = subprocess.run(["git", "-C", here, *args], capture_output=True, text=True, check=False)
        except OSError:  # git is not installed
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    packages = (f":/{name}" for name in ("lvp", "experiments", "sweeps"))  # from the root of the checkout
    if commit and git("status", "--porcelain", "--untracked-files=no", "--", *packages):
        commit += "+"
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"commit": os.environ.get("LVP_COMMIT") or commit, "versions": versions}
