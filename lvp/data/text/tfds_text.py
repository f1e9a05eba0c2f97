"""Texts of TensorFlow Datasets, read without TensorFlow. TFDS is slow to import and imported only when used."""

import contextlib
import difflib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from lvp.data.text.documents import Block, Source, Text
from lvp.data.text.splits import ended
from lvp.errors import InputError, unknown
from lvp.files import storage

_GROUP = 256  # records read at a time


def _blocks(records: Any, feature: str, first: int, last: int) -> Iterator[Block]:
    """The texts of the records from `first` to before `last`; each is a document."""
    for begin in range(first, last, _GROUP):
        for record in records.__getitems__(list(range(begin, min(begin + _GROUP, last)))):
            if text := record[feature]:
                yield Block(text, True, True, is_line=True)


def of_dataset(name: str, valid_bytes: int | None) -> Source:
    """The text of a dataset of TensorFlow Datasets.

    The data directory is TFDS's own ($TFDS_DATA_DIR, else ~/tensorflow_datasets). A dataset that is not prepared is
    prepared as array_record, for which many datasets need TensorFlow. Training text is the split "train". Validation is
    the split "validation", else the split "test", else the last documents of "train".

    Args:
      name: NAME[/CONFIG][:VERSION][#FEATURE]. FEATURE is required if there are several texts.
      valid_bytes: size in bytes at which the last documents of "train" suffice. At most a tenth of the documents is
        used; None is a tenth.

    Raises:
      InputError: the dataset does not exist, has no text or no split "train", has several texts and no FEATURE, is too
        small, or cannot be prepared or read without TensorFlow.
    """
    import tensorflow_datasets as tfds

    name, _, feature = name.partition("#")
    builder = _prepared(tfds, name)
    feature, several = _feature(tfds, builder, feature)
    splits = builder.info.splits
    if "train" not in splits:
        raise InputError(f"tfds:{name} needs a split train; its splits are {', '.join(splits) or 'none'}")
    other = next((split for split in ("validation", "test") if split in splits), None)
    try:
        train = builder.as_data_source("train")
        valid = train if other is None else builder.as_data_source(other)
    except Exception as error:  # another file format, or a missing file
        raise InputError(
            f"cannot read tfds:{name} in {builder.data_path} ({_line(error)}); prepare it as array_record in another "
            "$TFDS_DATA_DIR"
        ) from error
    border, words = len(train), f"the split {other}"
    if other is None:
        border -= _tail(train, feature, valid_bytes)
        if border == len(train):
            raise InputError(
                f"tfds:{name} has only the split train, and its {len(train)} documents are too few to hold a tenth out"
            )
        words = f"the last {len(train) - border} of {len(train)} documents of train (it has no other split)"
    spec = f"tfds:{'/'.join(builder.info.full_name.split('/')[:-1])}:{builder.version}" + f"#{feature}" * several
    sizes = {split: [int(info.num_bytes), list(info.shard_lengths)] for split, info in splits.items()}
    return Source(
        spec,
        storage.digest(storage.as_json([spec, sizes])),
        Text(None, partial(_blocks, train, feature, 0, border)),
        Text(None, partial(_blocks, valid, feature, 0 if other else border, len(valid))),
        words,
    )


def _prepared(tfds, name: str):
    directory = os.environ.get("TFDS_DATA_DIR")
    try:
        builder = tfds.builder(name, data_dir=directory)
        if builder.is_prepared():
            return builder
        builder = tfds.builder(name, data_dir=directory, file_format="array_record")
    except tfds.core.DatasetNotFoundError:
        near = difflib.get_close_matches(name, tfds.list_builders(with_community_datasets=False), n=1)
        hint = f"did you mean {near[0]}?" if near else "set $TFDS_DATA_DIR to its directory"
        raise InputError(f"TFDS has no dataset {name!r} in {directory or '~/tensorflow_datasets'}; {hint}") from None
    except Exception as error:  # builders are third-party code
        raise InputError(f"cannot open tfds:{name} ({_line(error)})") from error
    print(f"preparing tfds:{name} in {builder.data_path}", file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    try:
        with storage.locked(Path(builder.data_path)), contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except Exception as error:  # builders can raise any exception: no network, TensorFlow missing, disk full
        way_out = "prepare it as array_record elsewhere and set $TFDS_DATA_DIR"
        raise InputError(f"cannot prepare tfds:{name} here ({_line(error)}); {way_out}") from error
    return builder


def _feature(tfds, builder, wanted: str) -> tuple[str, bool]:
    """(name of the text feature, True if there are several)."""
    features = builder.info.features
    texts = sorted(name for name, kind in dict(features).items() if isinstance(kind, tfds.features.Text))
    if not texts:
        raise InputError(f"tfds:{builder.name} needs a text feature; its features are {', '.join(dict(features))}")
    if wanted and wanted not in texts:
        raise unknown("text feature", wanted, texts)
    if not wanted and len(texts) > 1:
        raise InputError(f"tfds:{builder.name} has several texts ({', '.join(texts)}): add #{texts[0]}, for example")
    return wanted or texts[0], len(texts) > 1


def _tail(records, feature: str, valid_bytes: int | None) -> int:
    """The number of last records that are validation."""
    most = len(records) // 10
    if valid_bytes is None:
        return most
    count = size = 0
    while count < most and size < valid_bytes:
        count += 1
        size += len(ended(records[len(records) - count][feature]))
    return count


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
