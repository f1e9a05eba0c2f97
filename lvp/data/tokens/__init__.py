"""Tokenizers, token files, token datasets and their batches."""
