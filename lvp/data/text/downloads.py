"""Downloads of archives with verified digests."""

import hashlib
import http.client
import urllib.request

from lvp.errors import InputError


def fetch(url: str, sha256: str, *, what: str, way_out: str) -> bytes:
    """Downloads a file and returns its content.

    Args:
      sha256: the digest of the content, in hex.
      what: names the release in errors.
      way_out: the remedy in errors.

    Raises:
      InputError: the download fails, or the digest differs.
    """
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            content = response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(f"cannot download {what} from {url} ({reason}); {way_out}") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise InputError(f"{url} has sha256 {digest[:16]}…, not {sha256[:16]}…: not the release; {way_out}")
    return content
