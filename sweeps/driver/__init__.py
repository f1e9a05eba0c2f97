"""The driver of a sweep: its manifest, its trials, its status and the calls that start and resume it."""
