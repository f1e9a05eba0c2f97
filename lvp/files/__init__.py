"""Files: atomic writes and logs, machine errors, the cache, digests, buckets, private files, and the schema of JSON."""

from lvp.files.atomic import no_space, sync_directory, write_whole
from lvp.files.machine import ABSENT, FULL, check_readable, explained, listed, machine_error, walked
from lvp.files.storage import cache_dir

__all__ = [
    "ABSENT",
    "FULL",
    "cache_dir",
    "check_readable",
    "explained",
    "listed",
    "machine_error",
    "no_space",
    "sync_directory",
    "walked",
    "write_whole",
]
