"""Files: atomic writes and logs, digests of arrays, and the schema of JSON."""

from lvp.files.atomic import (
    FULL,
    append_line,
    cache_dir,
    log_entries,
    no_space,
    sync_directory,
    whole_lines,
    write_whole,
)

__all__ = [
    "FULL",
    "append_line",
    "cache_dir",
    "log_entries",
    "no_space",
    "sync_directory",
    "whole_lines",
    "write_whole",
]
