"""The cache directory."""

import hashlib
import os
import re
from pathlib import Path

from lvp.files.buckets import is_address, split


def cache_dir() -> Path:
    """The directory of corpora, tokenizers and compiled programs: $LVP_CACHE, or ~/.cache/lvp if it is unset or empty.

    If LVP_CACHE is an address in a bucket, the directory is a local copy of it (`lvp.data.tokens.storage`).
    """
    place, local = os.environ.get("LVP_CACHE"), Path.home() / ".cache" / "lvp"
    if place and is_address(place):
        split(place)  # refuses credentials, which the name would repeat
        place = place.rstrip("/")
        name = re.sub(r"\W+", "-", place)  # the digest separates addresses that give the same name
        return local / "buckets" / f"{name}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    return Path(place).absolute() if place else local
