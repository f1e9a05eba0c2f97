"""TensorBoard's event files, without TensorFlow. tensorboardX is imported only here, for its messages and checksum.

tensorboardX's SummaryWriter is not used: `add_hparams` writes a second run, always with status "success" and without
the session's times; file names contain the host's name; a thread writes the files. Here a file is made in memory, so
that it can be written atomically.
"""

import struct
from collections.abc import Iterator, Mapping

from tensorboardX.proto.api_pb2 import Status
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import masked_crc32c

HPARAMS = "hparams"  # name of TensorBoard's plugin, whose tags and version 0 are in plugins/hparams/metadata.py


def content(
    scalars: Mapping[int, Mapping[str, float]],
    hparams: Mapping[str, float | bool | str],
    *,
    succeeded: bool,
    began: float,
    ended: float,
) -> bytes:
    """The content of one run's event file.

    Args:
      scalars: step → tag → value; stored as float32. TensorBoard takes the last values as the run's metrics.
      hparams: hyperparameters by name.
      succeeded: whether the run's status is success or failure.
      began, ended: Unix times in seconds. All events have the time `ended`.
    """
    events = [Event(file_version="brain.Event:2"), *_hparams_events(hparams, succeeded, began, ended)]
    for step in sorted(scalars):
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars[step].items()]
        events.append(Event(step=step, summary=Summary(value=values)))
    for event in events:
        event.wall_time = ended
    return b"".join(map(_framed, events))


def _hparams_events(hparams, succeeded: bool, began: float, ended: float) -> Iterator[Event]:
    start = SessionStartInfo(start_time_secs=began)
    for name, value in hparams.items():
        if isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif isinstance(value, str):
            start.hparams[name].string_value = value
        else:
            start.hparams[name].number_value = value
    status = Status.Value("STATUS_SUCCESS" if succeeded else "STATUS_FAILURE")
    end = SessionEndInfo(status=status, end_time_secs=ended)
    for field, message in (("session_start_info", start), ("session_end_info", end)):
        plugin_data = HParamsPluginData(**{field: message}).SerializeToString(deterministic=True)
        plugin = SummaryMetadata.PluginData(plugin_name=HPARAMS, content=plugin_data)
        value = Summary.Value(tag=f"_hparams_/{field}", metadata=SummaryMetadata(plugin_data=plugin))
        yield Event(summary=Summary(value=[value]))


def _framed(event: Event) -> bytes:
    """The event as a TFRecord: length, checksum of the length, message, checksum of the message."""
    data = event.SerializeToString(deterministic=True)
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
