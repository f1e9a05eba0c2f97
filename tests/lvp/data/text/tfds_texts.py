"""Small TFDS text datasets, prepared as array_record in a test's own directory."""

import contextlib
import io

import numpy as np
import tensorflow_datasets as tfds


class LvpTexts(tfds.core.GeneratorBasedBuilder):
    """A dataset of texts and a number. TFDS constructs builders by name alone, so the contents are class attributes:
    splits, {split: [text, …]} or None if nothing can be prepared, and names, the text features."""

    name = "lvp_texts"
    VERSION = tfds.core.Version("1.0.0")
    splits = None
    names = ("text",)

    def _info(self):
        features = dict.fromkeys(self.names, tfds.features.Text()) | {"n": tfds.features.Scalar(np.int32)}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
        )

    def _split_generators(self, download_manager):
        if self.splits is None:
            raise RuntimeError("no way to the archive\nand a second line")
        return {split: self._generate_examples(texts) for split, texts in self.splits.items()}

    def _generate_examples(self, texts):
        for index, text in enumerate(texts):
            yield index, {name: text if i == 0 else "other" for i, name in enumerate(self.names)} | {"n": index}


def prepare(data_dir, splits, names=("text",)) -> None:
    tfds.disable_progress_bar()
    LvpTexts.splits, LvpTexts.names = splits, names
    with contextlib.redirect_stdout(io.StringIO()):
        LvpTexts(data_dir=str(data_dir), file_format="array_record").download_and_prepare()
    LvpTexts.splits = None
