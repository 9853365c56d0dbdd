"""URLs of object stores: which ones there are, and how they are spelled."""

import os
import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from streamlog.errors import InvalidOptionError

__all__ = ["StoreUrl", "absolute", "check_no_secret", "is_store_url"]

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII | re.IGNORECASE)
_CANONICAL: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "abfs",
    "abfss": "abfss",
    "file": "file",
    "memory": "memory",
}
_WITHOUT_BUCKET: Final = ("file", "memory")


class StoreUrl(NamedTuple):
    """The URL of a log root in an object store.

    Attributes:
        scheme: `s3`, `gs`, `az`, `abfs`, `abfss`, `file` or `memory`.
        bucket: The bucket or container; for `abfs`, `container@account…`; empty for `file`.
        prefix: The path of the root within the bucket, without slashes around it.
    """

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> "StoreUrl":
        """Return the parts of a URL.

        Raises:
            InvalidOptionError: The scheme is unknown, the bucket is missing, a part of the path
                is empty, `.` or `..`, or the URL has a password, a query or a fragment.
        """
        found = _SCHEME.match(url)
        scheme = _CANONICAL.get(found[1].lower()) if found else None
        if found is None or scheme is None:
            known = ", ".join(f"{each}://" for each in _CANONICAL)
            raise InvalidOptionError(
                "unknown kind of object store", got=_shown(url), expected=known
            )
        check_no_secret(url)
        parts = urlsplit(url)
        if (not parts.netloc) != (scheme in _WITHOUT_BUCKET):
            example = "/PATH" if scheme in _WITHOUT_BUCKET else "BUCKET/PATH"
            raise InvalidOptionError(
                "invalid URL of an object store", got=_shown(url), expected=f"{scheme}://{example}"
            )
        prefix = parts.path.strip("/")
        if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
            raise InvalidOptionError(
                "invalid path of an object store",
                got=_shown(url),
                expected="a path without empty parts, . and ..",
            )
        return cls(scheme, parts.netloc, prefix)

    def __str__(self) -> str:
        """The URL, spelled in one way; it contains no credentials."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")


def check_no_secret(url: str) -> None:
    """Raise `InvalidOptionError` if a URL has a user, a password, a query or a fragment."""
    parts = urlsplit(url)
    is_azure = parts.scheme.startswith("abfs")  # CONTAINER@ACCOUNT is no user
    if parts.query or parts.fragment or parts.password or (parts.username and not is_azure):
        raise InvalidOptionError(
            "the URL of an object store names a bucket and a path only",
            got=_shown(url),
            expected=f"{parts.scheme}://BUCKET/PATH",
            hint="credentials come from the environment, as for the cloud's own tools",
        )


def is_store_url(path: str) -> bool:
    """Return whether a path is a URL rather than a directory."""
    return _SCHEME.match(path) is not None


def absolute(path: str) -> str:
    """Return the absolute path of a file; a URL is one."""
    return path if is_store_url(path) else os.path.abspath(path)


def _shown(url: str) -> str:
    """Return a URL for a message, without what may be a secret."""
    visible = re.split(r"[?#]", url, maxsplit=1)[0]
    return repr(re.sub(r"://[^/@]*:[^/@]*@", "://…@", visible))
