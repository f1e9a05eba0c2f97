"""Objects in a bucket of S3 or Google Cloud Storage, with conditional writes. The only import of obstore.

A server shows an object whole or not at all. obstore repeats requests after 5xx answers, throttling and lost
connections. It reads credentials from its own environment variables or from the machine's role. No function takes,
prints or stores credentials, and messages do not repeat the text of a server.
"""

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from lvp.errors import InputError, unknown
from lvp.files.atomic import replacing

SCHEMES = ("s3", "gs")
PATIENCE = 60.0  # timeout of a request and of its repetitions, in seconds
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a machine with a role",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or use a machine with a role",
}
Version = Mapping[str, str]  # of an object: its ETag (S3) or generation (Google Cloud Storage)


class BucketError(OSError):
    """An object cannot be read or written. The message is one line with the object's address.

    `refused` is True if the same request would fail again: the server refused it, or there are no credentials.
    """

    def __init__(self, message: str, *, refused: bool):
        super().__init__(message)
        self.strerror, self.refused = message, refused


class Object(NamedTuple):
    """An entry of a listing."""

    name: str  # below the address; it ends in "/" for a folder
    version: Version  # empty for a folder
    modified: float  # time of the last write, by the server's clock; 0 for a folder
    size: int = 0  # in bytes


def is_address(out: object) -> bool:
    """True if `out` is an address (SCHEME://…), not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", str(out)) is not None


def split(address: str) -> tuple[str, str, str]:
    """(scheme, bucket, prefix) of SCHEME://BUCKET/PREFIX.

    Raises:
      InputError: the scheme is unknown, the bucket is missing, the address contains credentials, or a name of the
        prefix is empty or has special characters.
    """
    scheme, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in SCHEMES:
        raise unknown("scheme", scheme, SCHEMES)
    if "@" in bucket:  # the message must not show the credentials
        raise InputError(f"the bucket's address contains credentials: remove them, and {_CREDENTIALS[scheme]}")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]+", bucket):
        raise InputError(f"{address} names no bucket; give {scheme}://BUCKET/PREFIX")
    prefix = prefix.rstrip("/")
    if prefix and not all(re.fullmatch(r"[A-Za-z0-9_.=+ -]+", name) and name.strip(".") for name in prefix.split("/")):
        raise InputError(
            f"{address}: a name of the prefix is empty or has special characters; use letters, digits, - _ ."
        )
    return scheme, bucket, prefix


class Bucket:
    """The objects below one address. Names are relative to the address.

    Args:
      address: SCHEME://BUCKET/PREFIX.
      patience: timeout of a request and of its repetitions, in seconds.

    Attributes:
      address: SCHEME://BUCKET/PREFIX without a final slash.

    Raises:
      InputError: the address is invalid (`split`), the credentials are incomplete, or obstore is not installed.
      BucketError: the request of a method fails.
    """

    def __init__(self, address: str, patience: float = PATIENCE):
        self.scheme, bucket, prefix = split(address)
        self.address = f"{self.scheme}://{bucket}" + (f"/{prefix}" if prefix else "")
        try:
            from obstore import store  # an extra
        except ImportError:
            raise InputError(f"{address} needs obstore: pip install 'lvp[buckets]'") from None
        make = {"s3": store.S3Store, "gs": store.GCSStore}[self.scheme]
        try:
            self.store: Any = make(
                bucket,
                prefix=prefix or None,
                # `config` keeps the client options of the environment; `client_options` would discard them.
                config={"timeout": f"{round(1000 * patience)}ms"},
                retry_config={"retry_timeout": timedelta(seconds=patience)},
            )
        except Exception:  # its text may repeat a secret
            raise InputError(f"{address} has incomplete credentials; {_CREDENTIALS[self.scheme]}") from None

    def read(self, name: str) -> tuple[bytes, Object] | None:
        """The content of an object and its entry; None if it does not exist."""
        try:
            answer = self.store.get(name)
            return bytes(answer.bytes()), _object(answer.meta, name)
        except Exception as error:
            self._absent(name, error)
            return None

    def download(self, name: str, file: IO[bytes]) -> bool:
        """Writes the content of an object to a file, and returns whether the object exists."""
        try:
            for part in self.store.get(name).stream():
                file.write(part)
            return True
        except Exception as error:
            if isinstance(error, OSError) and error.errno:  # the file cannot be written
                raise
            self._absent(name, error)
            return False

    def create(self, name: str, content: bytes) -> bool:
        """Writes a new object and returns True; returns False if the object exists with another content."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self.store.put(name, content, mode="create")
            return True
        except (AlreadyExistsError, PreconditionError):
            # The first try may have succeeded although its answer was lost.
            return (present := self.read(name)) is not None and present[0] == content
        except Exception as error:
            raise self._error(name, error) from None

    def write(self, name: str, content: bytes | IO[bytes]) -> None:
        """Writes an object, whether or not it exists. A large file is sent in parts."""
        try:
            self.store.put(name, content)
        except Exception as error:
            raise self._error(name, error) from None

    def fetch(self, names: Iterable[str], folder: Path) -> None:
        """Downloads objects to files of the same names in a local directory, in the order of the names.

        Raises:
          InputError: an object is gone, or its name leaves the directory.
        """
        for name in names:
            path = folder / name
            if ".." in path.parts or Path(name).is_absolute():
                raise InputError(f"{self.address}/{name}: the name leaves its directory; rename the object")
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                if not self.download(name, file):
                    raise InputError(f"{self.address}/{name} was removed during the download; start again")

    def upload(self, folder: Path, last: str) -> None:
        """Writes the files of a local directory, except hidden files, to objects of the same names.

        Args:
          last: the file that is written after all others, because it completes them.
        """
        names = [path.name for path in folder.iterdir() if path.name[0] != "." and path.name != last]
        for name in [*names, last]:
            with open(folder / name, "rb") as file:
                self.write(name, file)

    def delete(self, names: Iterable[str]) -> None:
        """Deletes objects. Objects that do not exist are skipped."""
        for name in names:
            try:
                self.store.delete(name)
            except Exception as error:
                self._absent(name, error)

    def reader(self, name: str) -> io.RawIOBase:
        """An object as a file that is open for reading. It reads ranges of the object."""
        try:
            return _Reader(self, name)
        except Exception as error:
            raise self._error(name, error) from None

    def objects(self) -> list[Object]:
        """All objects below the address, in the order of their names."""
        try:
            entries = [_object(meta, meta["path"]) for page in self.store.list() for meta in page]
        except Exception as error:
            raise self._error("", error) from None
        return sorted(entry for entry in entries if not entry.name.endswith("/"))

    def listed(self, folder: str = "") -> list[Object]:
        """The objects and folders directly in a folder ("" or a name with a final slash).

        A server may omit objects that were written shortly before.
        """
        try:
            answer = self.store.list_with_delimiter(folder or None)
        except Exception as error:
            raise self._error(folder, error) from None
        folders = [Object(f"{prefix.rstrip('/')}/", {}, 0.0) for prefix in answer["common_prefixes"]]
        # Some tools mark a folder by an object with the folder's name.
        return folders + [_object(m, m["path"]) for m in answer["objects"] if m["path"].startswith(folder)]

    def _absent(self, name: str, error: Exception) -> None:
        """Does nothing for the error of an object that does not exist.

        Raises:
          BucketError: the request failed for another reason.
        """
        if not isinstance(error, FileNotFoundError) or "NoSuchBucket" in str(error):
            raise self._error(name, error) from None

    def _error(self, name: str, error: Exception) -> BucketError:
        """The error of a failed request, with address, status, the server's error code and remedy in one line."""
        text = str(error)
        # obstore's exceptions have no status. Their text has it in these two forms.
        status = re.search(r"status code: (\d{3})|\b(\d{3}) (?:Forbidden|Unauthorized|Not Found)", text)
        number = int(status[1] or status[2]) if status else 0
        code = re.search(r"(?:<Code>|\(code: )(\w{1,40})", text)
        kind = type(error).__name__
        refused, remedy = True, ""
        words = re.sub(r"\S*/\S*", "", text.splitlines()[0])  # names of objects may contain any word
        if "169.254." in text or "metadata.google" in text or "redential" in words:
            reason, remedy = "no credentials", f"; {_CREDENTIALS[self.scheme]}"
        elif (
            number in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError") or "AccessDenied" in text
        ):
            reason, remedy = "the server refuses the request", "; check the credentials and the bucket's permissions"
        elif "builder error" in text and "http://" in text:  # no request was sent
            reason, remedy = "the server does not answer", "; set AWS_ALLOW_HTTP=true for an endpoint with http://"
        elif number == 404 or isinstance(error, FileNotFoundError):
            reason, remedy = "the bucket does not exist", "; check its name and its server"
        elif 400 <= number < 500 and number != 429:
            reason = "the server refuses the request"
        else:
            reason, refused = "the server fails" if number else "the server does not answer", False
        detail = " ".join(filter(None, (str(number or ""), code[1] if code else "")))
        place = f"{self.address}/{name}" if name else self.address
        return BucketError(f"{place}: {reason}{f' ({detail})' if detail else ''}{remedy}", refused=refused)


def _version(answer: Mapping) -> Version:
    return {key: answer[key] for key in ("e_tag", "version") if answer.get(key) is not None}


def _object(meta: Mapping, name: str) -> Object:
    modified: datetime = meta["last_modified"]
    return Object(name, _version(meta), modified.timestamp(), meta["size"])


class _Reader(io.RawIOBase):
    """A file whose content is an object."""

    def __init__(self, bucket: Bucket, name: str):
        import obstore

        self._bucket, self._object = bucket, name
        self._file = obstore.open_reader(bucket.store, name)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read(len(buffer))
        except Exception as error:
            raise self._bucket._error(self._object, error) from None
        buffer[: len(content)] = bytes(content)
        return len(content)


class BucketFile(NamedTuple):
    """An object that is read like a file. It can be sent to another process."""

    address: str  # of a folder
    name: str  # of the object in the folder

    def open(self, mode: str = "rb") -> BinaryIO:
        return io.BufferedReader(Bucket(self.address).reader(self.name))

    def __str__(self) -> str:
        return f"{self.address}/{self.name}"


def files(address: str) -> list[tuple[BucketFile, Object]]:
    """The object at an address, or all objects below it, in the order of their names.

    Raises:
      InputError: the address is invalid, there is no object, or the server refuses the request.
      BucketError: the server fails or does not answer.
    """
    _, _, prefix = split(address)
    with refusals():
        entries, folder = Bucket(address).objects(), address.rstrip("/")
        if not entries and prefix:
            folder, _, name = folder.rpartition("/")
            entries = [entry for entry in Bucket(folder).listed() if entry.name == name]
    if not entries:
        raise InputError(f"{address}: there is no object; check the address")
    return [(BucketFile(folder, entry.name), entry) for entry in entries]


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turns a BucketError of a refused request in the block into an InputError.

    Raises:
      InputError: the server refuses a request in the block.
    """
    try:
        yield
    except BucketError as error:
        if error.refused:
            raise InputError(error) from None
        raise
