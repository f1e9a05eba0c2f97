"""CIFAR-10 as a TensorFlow Datasets builder that does not need TensorFlow. It is slow to import."""

import contextlib
import io
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from PIL import Image

# (train images, train labels, test images, test labels)
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Cifar10(tfds.core.GeneratorBasedBuilder):
    """CIFAR-10 in the order of its files. Features: `image`, uint8 [32, 32, 3] stored as PNG; `label`, from 0 to 9.

    splits: "train" and "test" → (images, labels), required to prepare. The files are array_record; read them with
    `as_data_source`.
    """

    name = "lvp_cifar10"
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "One image per record."}

    def __init__(self, *, splits, data_dir: Path):
        self._splits = splits
        super().__init__(data_dir=str(data_dir), file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        features = {
            "image": tfds.features.Image(shape=(32, 32, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description="CIFAR-10: 60,000 colour images of 32 × 32 in 10 classes.",
            homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,  # the records are in the order of the files
        )

    def _split_generators(self, download_manager):
        return {split: self._generate_examples(*arrays) for split, arrays in self._splits.items()}

    def _generate_examples(self, images, labels):
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield index, {"image": Image.fromarray(image), "label": int(label)}


def prepared(arrays: Arrays, data_dir: Path) -> Arrays:
    """Prepares the dataset under data_dir and reads it back, as (train images, train labels, test images, test labels).

    Input and output are as in `lvp.data.images.cifar10.read`. Two processes that prepare the same data_dir race: hold a
    lock. Prints nothing.
    """
    builder = Cifar10(splits={"train": arrays[:2], "test": arrays[2:]}, data_dir=data_dir)
    tfds.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # TFDS warns that another library would decode faster
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare()
        return tuple(array for split in ("train", "test") for array in _read(builder.as_data_source(split)))
    finally:
        logging.set_verbosity(verbosity)


def _read(records):
    images, labels = zip(*((record["image"], record["label"]) for record in records), strict=True)
    return np.stack(images), np.asarray(labels, np.int32)
