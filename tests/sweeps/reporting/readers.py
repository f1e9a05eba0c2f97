"""Runs of tracking tools as the tools' own readers give them."""

import json
import os
import struct
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lvp.errors import InputError
from sweeps.reporting.tracking import tracker_named


class Seen(NamedTuple):
    """A lane's run."""

    points: dict[str, list[tuple[int, float, float]]]  # tag → (step, value, Unix time), in the order of the file
    hparams: dict[str, str]  # as text
    status: str | None  # finished, diverged or None while the run is open


def skip_without(tool: str) -> None:
    """Skips the test if the tool's package is missing. The reason is the command that installs it."""
    try:
        tracker_named(tool)
    except InputError as missing:
        pytest.skip(str(missing))


def tensorboard(folder: Path) -> dict[str, Seen]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    seen = {}
    for path in folder.glob("*/*/*tfevents*"):
        events = EventAccumulator(str(path), size_guidance={"scalars": 0})
        events.Reload()
        points = {t: [(e.step, e.value, e.wall_time) for e in events.Scalars(t)] for t in events.Tags()["scalars"]}
        try:
            plugin = {k: HParamsPluginData.FromString(v) for k, v in events.PluginTagToContent("hparams").items()}
        except KeyError:  # an empty file
            plugin = {}
        start = plugin.get("_hparams_/session_start_info", HParamsPluginData()).session_start_info
        hparams = {k: getattr(v, v.WhichOneof("kind")) for k, v in start.hparams.items()}
        end = plugin.get("_hparams_/session_end_info")
        status = None if end is None else {1: "finished", 2: "diverged"}[end.session_end_info.status]
        assert path.parent.name not in seen
        seen[path.parent.name] = Seen(points, {k: _text(v) for k, v in hparams.items()}, status)
    return seen


def wandb(folder: Path) -> dict[str, Seen]:
    """The runs. Waits about 10 seconds at most, because W&B writes the end of a run shortly after it closes the run."""
    seen = _wandb(folder)
    for _ in range(100):
        if all(run.status for run in seen.values()):
            break
        time.sleep(0.1)
        seen = _wandb(folder)
    return seen


def _wandb(folder: Path) -> dict[str, Seen]:
    from wandb.proto.wandb_internal_pb2 import Record

    seen = {}
    for path in folder.glob("offline-run-*/run-*.wandb"):
        points, hparams, status = defaultdict(list), {}, None
        for record in map(Record.FromString, log_records(path.read_bytes())):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                assert path.stem == f"run-{record.run.run_id}"
                hparams |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "exit":
                status = "diverged" if record.exit.exit_code else "finished"
            elif kind == "history":
                row = {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
                for tag in row:
                    if not tag.startswith("_"):
                        points[tag].append((row["_step"], row[tag], row["_timestamp"]))
        lane = path.stem.removeprefix("run-")
        assert lane not in seen
        seen[lane] = Seen(dict(points), {k: _text(v) for k, v in hparams.items() if k != "_wandb"}, status)
    return seen


def log_records(log: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, in which W&B keeps a run. W&B's Python reader was removed in version 0.31."""
    at, parts = 7, []  # after W&B's header
    while at + 7 <= len(log):
        if (room := 32768 - at % 32768) < 7:  # the end of a block
            at += room
            continue
        checksum, size, kind = struct.unpack("<IHB", log[at : at + 7])
        if at + 7 + size > len(log):  # still being written
            return
        parts.append(log[at + 7 : at + 7 + size])
        assert zlib.crc32(parts[-1], zlib.crc32(bytes([kind]))) == checksum
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield b"".join(parts)
            parts = []


def mlflow(folder: Path) -> dict[str, Seen]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow import MlflowClient

    client, seen = MlflowClient(tracking_uri=folder.as_uri()), {}
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    for run in client.search_runs([experiment.experiment_id]):
        tags, id = run.data.metrics, run.info.run_id
        points = {
            tag: [(m.step, m.value, m.timestamp / 1000) for m in client.get_metric_history(id, tag)] for tag in tags
        }
        assert run.info.run_name not in seen
        status = {"FINISHED": "finished", "FAILED": "diverged"}.get(run.info.status)
        seen[run.info.run_name] = Seen(points, dict(run.data.params), status)
    return seen


def _text(value: Any) -> str:
    """A value as text; numbers of the same size are the same text, because TensorBoard stores floats."""
    return str(value) if isinstance(value, bool | str) else f"{value:.12g}"


READERS = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}


def same_hparams(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether two runs have the same hyperparameters, up to the text of their numbers."""

    def number(text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    return {k: number(v) for k, v in one.items()} == {k: number(v) for k, v in other.items()}
