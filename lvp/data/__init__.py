"""Corpora, tokenizers, token files and image files, on the host, without jax; `lvp.data.batches` and
`lvp.data.image_batches` are what runs in jit."""

from lvp.data.corpora import Corpus, load
from lvp.data.datasets import Dataset, prepare
from lvp.data.images import Images, load_images

__all__ = ["Corpus", "Dataset", "Images", "load", "load_images", "prepare"]
