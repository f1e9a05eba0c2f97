"""Tokens: tokenizers, token files, datasets of tokens and their batches."""
