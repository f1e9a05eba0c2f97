"""Corpora, tokenizers, token files and image files, on the host and without jax.

`lvp.data.tokens.batches` and `lvp.data.images.batches` run inside compiled steps."""

from lvp.data.images.datasets import Images, load_images
from lvp.data.text.corpora import Corpus, load
from lvp.data.tokens.datasets import Dataset, prepare

__all__ = ["Corpus", "Dataset", "Images", "load", "load_images", "prepare"]
