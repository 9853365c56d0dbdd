"""The one table from the kernel's error numbers to typed errors.

All file systems of this package fail through `storage_failure`, so an error is the same whether the
disk, the in-memory model or an injected fault raised it.
"""

import errno
import os
from typing import Final

from streamlog.errors import (
    DiskFullError,
    FileExistsAlreadyError,
    FileMissingError,
    PoisonedError,
    StorageError,
)

__all__ = ["poisoned_failure", "storage_failure"]

_KINDS: Final[dict[int, type[StorageError]]] = {
    errno.ENOENT: FileMissingError,
    errno.EEXIST: FileExistsAlreadyError,
    errno.ENOSPC: DiskFullError,
    errno.EDQUOT: DiskFullError,
    errno.EFBIG: DiskFullError,
}

# Only where the system's own text would be unclear.
_REASONS: Final = {
    errno.EBADF: "the file is closed, or was opened for reading only",
    errno.ELOOP: "it is a symbolic link, and links are never followed",
    errno.EIO: "the device reported an error",
    errno.ENXIO: "it is not a regular file",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EFBIG: "the file would exceed the largest size allowed here",
    errno.EXDEV: "the two names are on different file systems",
}

_HINTS: Final = {
    errno.EACCES: "check owner and mode: ls -ld {path}",
    errno.EPERM: "check owner, mode and attributes: ls -ld {path}; lsattr -d {path}",
    errno.EROFS: "the file system is mounted read-only: findmnt -T {path}",
    errno.ENOSPC: "free some space: df -h {path}",
    errno.EDQUOT: "free some space or raise the quota: quota -s",
    errno.EFBIG: "raise the limit: ulimit -f unlimited",
    errno.EMFILE: "raise the limit of open files: ulimit -n 65536",
    errno.ENFILE: "the whole machine has too many open files: sysctl fs.file-max",
    errno.EIO: "check the kernel messages: dmesg | tail",
    errno.ENOLCK: "this file system does not support flock: use a local or NFSv4 one",
    errno.EOPNOTSUPP: "this file system does not support the operation: findmnt -T {path}",
}


def storage_failure(
    number: int, operation: str, path: str, *, target: str | None = None, reason: str | None = None
) -> StorageError:
    """Return the typed error for one failed operation; the caller raises it.

    Args:
        number: The `errno`.
        operation: The attempted operation: `open`, `write`, `rename` …
        path: The file or directory.
        target: The second path of `rename` and `link`.
        reason: Replaces the usual text for this number.
    """
    if reason is None:
        reason = _REASONS.get(number) or os.strerror(number).lower()
    tried = operation if target is None else f"{operation} to {target}"
    hint = _HINTS.get(number)
    return _KINDS.get(number, StorageError)(
        f"cannot {tried}: {reason}",
        errno=number,
        operation=operation,
        path=path,
        hint=None if hint is None else hint.format(path=path),
    )


def poisoned_failure(operation: str, path: str) -> PoisonedError:
    """Return the error of every write through a handle whose `sync` failed before."""
    return PoisonedError(
        f"cannot {operation}: an earlier sync failed, so the content of the disk is unknown",
        errno=errno.EIO,
        operation=operation,
        path=path,
        hint="check the kernel messages (dmesg | tail), then open the log again",
    )
