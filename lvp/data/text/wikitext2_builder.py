"""WikiText-2 as a TensorFlow Datasets builder that does not need TensorFlow. It is slow to import."""

import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import tensorflow_datasets as tfds

# A title line is ` = Title = `; sections have ` = = Section = = `.
_TITLE = re.compile(rb"(?m)^ = (?!= ).*(?<! =) = \r?$")


def articles(text: bytes) -> Iterator[bytes]:
    """The text cut before every article's title line; the concatenated pieces are the text, byte for byte."""
    starts = [match.start() for match in _TITLE.finditer(text)]
    borders = [0, *starts[1:], len(text)]  # text before the first title belongs to the first article
    for start, end in zip(borders, borders[1:], strict=False):
        if start < end:
            yield text[start:end]


class WikiText2(tfds.core.GeneratorBasedBuilder):
    """WikiText-2, an article per record, in the order of the files. Feature: `text`, bytes.

    files: split names (train, valid, test) → local files. The records are array_record; read them with
    `as_data_source`.
    """

    name = "lvp_wikitext2"
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "One article per record."}

    def __init__(self, *, files: Mapping[str, Path], data_dir: Path):
        self._files = dict(files)
        super().__init__(data_dir=str(data_dir), file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="WikiText-2: articles from Wikipedia.",
            homepage="https://arxiv.org/abs/1609.07843",
            license="CC BY-SA",
            features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
            disable_shuffling=True,  # the concatenated records are the file
        )

    def _split_generators(self, download_manager):
        return {split: self._generate_examples(path) for split, path in self._files.items()}

    def _generate_examples(self, path: Path):
        for index, article in enumerate(articles(path.read_bytes())):
            yield index, {"text": article}


def prepared_texts(files: Mapping[str, Path], data_dir: Path) -> dict[str, bytes]:
    """Prepares the dataset under data_dir unless it exists, and reads every split back as one text.

    Two processes that prepare the same data_dir race: hold a lock. Prints nothing on standard output.
    """
    builder = WikiText2(files=files, data_dir=data_dir)
    tfds.disable_progress_bar()
    with contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare()
    return {split: b"".join(record["text"] for record in builder.as_data_source(split)) for split in files}
