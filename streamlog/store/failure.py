"""The one table from failures of object stores to typed errors."""

import errno
from typing import Final

from streamlog.errors import (
    DiskFullError,
    FileExistsAlreadyError,
    FileMissingError,
    StorageError,
)

__all__ = ["store_failure"]

_KINDS: Final[dict[int, type[StorageError]]] = {
    errno.ENOENT: FileMissingError,
    errno.EEXIST: FileExistsAlreadyError,
    errno.ENOSPC: DiskFullError,
}

_REASONS: Final = {
    errno.ENOENT: "there is no such object",
    errno.EEXIST: "the object exists already",
    errno.ENOSPC: "the store is full",
    errno.EACCES: "the store denies access",
    errno.EPERM: "the store does not accept the credentials",
    errno.EIO: "the request failed",
    errno.EOPNOTSUPP: "the store does not support the request",
}

_HINTS: Final = {
    errno.EACCES: "check the policy of the bucket: get, put, list and delete are needed",
    errno.EPERM: "check the credentials in the environment, as for the cloud's own tools",
    errno.EIO: "the request was repeated in vain: check the network and the endpoint, then retry",
}


def store_failure(number: int, operation: str, path: str, *, detail: str = "") -> StorageError:
    """Return the typed error for one failed request; the caller raises it.

    Args:
        number: The `errno` that says the same.
        operation: The attempted request: `create`, `get`, `list` …
        path: The URL of the object.
        detail: What the store said, on one line.
    """
    return _KINDS.get(number, StorageError)(
        f"cannot {operation}: {_REASONS[number]}",
        errno=number,
        operation=operation,
        path=path,
        got=detail or None,
        hint=_HINTS.get(number),
    )
