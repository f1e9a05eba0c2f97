"""Text corpora, their documents, splits and origins."""
