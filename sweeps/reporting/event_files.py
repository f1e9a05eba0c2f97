"""TensorBoard's event files, without TensorFlow: one file per lane, CELL/HASH/events.out.tfevents.lane.

tensorboardX's `RecordWriter` writes the files. Its `SummaryWriter` is not used: `add_hparams` writes a second run,
always with status "success" and without the session's times; file names contain the host's name; a thread writes the
files.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tensorboardX.proto.api_pb2 import Status
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import RecordWriter

from lvp.files import FULL, no_space

HPARAMS = "hparams"  # name of TensorBoard's plugin, whose tags and version 0 are in plugins/hparams/metadata.py
NAME = "events.out.tfevents.lane"


class EventFiles:
    """The event files of a sweep, in the directory `folder`. `make` makes a directory in it."""

    def __init__(self, folder: Path, title: str, make: Callable[[Path], None]):
        self.folder, self.make = folder, make

    def exists(self, cell: str, lane: str) -> bool:
        return (self.folder / cell / lane / NAME).exists()

    def begin(self, cell: str, lane: str, hparams: Mapping[str, float | bool | str], began: float) -> "EventFile":
        """Begins a lane's file again, also if it exists.

        A lane's points have the same bytes each time, so a TensorBoard that reads the file meanwhile continues where it
        was.
        """
        self.make(self.folder / cell / lane)
        return EventFile(self.folder / cell / lane / NAME, hparams, began)


class EventFile:
    """The event file of a lane. Values are stored as float32."""

    def __init__(self, path: Path, hparams: Mapping[str, float | bool | str], began: float):
        self.path, self.unwritten, self.writer = path, 0, RecordWriter(str(path))
        self._write(Event(file_version="brain.Event:2", wall_time=began))
        start = SessionStartInfo(start_time_secs=began)
        for name, value in hparams.items():
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, str):
                start.hparams[name].string_value = value
            else:
                start.hparams[name].number_value = value
        self._write(_of_plugin("session_start_info", start, began))

    def log(self, points: Iterable[tuple[int, float, Mapping[str, float]]]) -> None:
        """Writes points (step, Unix time, tag → value)."""
        for step, time, scalars in points:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            self._write(Event(step=step, wall_time=time, summary=Summary(value=values)))
        self._flush()

    def end(self, succeeded: bool, ended: float) -> None:
        """Writes the run's status and closes the file. The last values are the run's metrics in TensorBoard."""
        status = Status.Value("STATUS_SUCCESS" if succeeded else "STATUS_FAILURE")
        self._write(_of_plugin("session_end_info", SessionEndInfo(status=status, end_time_secs=ended), ended))
        self._flush()
        self.writer.close()

    def leave(self) -> None:
        """Closes the file of an unfinished lane."""
        self.writer.close()

    def _write(self, event: Event) -> None:
        message = event.SerializeToString(deterministic=True)
        self.unwritten += len(message)
        with self._path_in_errors():
            self.writer.write(message)  # may write the buffer to the disk

    def _flush(self) -> None:
        with self._path_in_errors():
            self.writer.flush()
        self.unwritten = 0

    @contextlib.contextmanager
    def _path_in_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in FULL:
                raise no_space(error.errno, self.unwritten, self.path) from None
            raise OSError(error.errno, error.strerror, str(self.path)) from None


def _of_plugin(field: str, message: SessionStartInfo | SessionEndInfo, time: float) -> Event:
    """A message of the HParams page, as an event."""
    plugin_data = HParamsPluginData(**{field: message}).SerializeToString(deterministic=True)
    plugin = SummaryMetadata.PluginData(plugin_name=HPARAMS, content=plugin_data)
    value = Summary.Value(tag=f"_hparams_/{field}", metadata=SummaryMetadata(plugin_data=plugin))
    return Event(wall_time=time, summary=Summary(value=[value]))
