"""Files: atomic writes and logs, machine errors, the cache, digests, buckets, private files, and the schema of JSON."""

from lvp.files.atomic import append_line, log_entries, no_space, sync_directory, whole_lines, write_whole
from lvp.files.machine import ABSENT, FULL, check_readable, explained, listed, machine_error, walked
from lvp.files.storage import cache_dir

__all__ = [
    "ABSENT",
    "FULL",
    "append_line",
    "cache_dir",
    "check_readable",
    "explained",
    "listed",
    "log_entries",
    "machine_error",
    "no_space",
    "sync_directory",
    "walked",
    "whole_lines",
    "write_whole",
]
