"""Texts: the corpora, their documents and splits, and where they come from."""
