"""The driver of a sweep: manifest, trials, status, and the functions that start and resume a sweep."""
