"""Corpora, tokenizers and token files, on the host, without jax; `lvp.data.batches` is what runs in jit."""

from lvp.data.corpora import Corpus, load
from lvp.data.datasets import Dataset, prepare

__all__ = ["Corpus", "Dataset", "load", "prepare"]
