"""Corpora, tokenizers and token files, on the host and without jax.

`lvp.data.tokens.batches` runs inside compiled steps.
"""

from lvp.data.text.corpora import Corpus, load
from lvp.data.tokens.datasets import Dataset, prepare

__all__ = ["Corpus", "Dataset", "load", "prepare"]
