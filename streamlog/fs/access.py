"""Owner, group and mode of files and directories on the machine's disk.

- *Mode.* Files are created with 0660, directories with 0770, less the umask: others get nothing,
  and with the umask 002 a group writes together.
- *Group.* Set by the kernel: that of the directory if it has setgid, otherwise the process's.
- *Owner.* A file that root creates in another user's directory gets the owner and group of that
  directory, if root may give it away: a command run once with sudo locks out no user.
- *Replacement.* A file that replaces another one gets its owner, group and mode (`adopt`), as far
  as the process may set them. If it may not set the group, the group bits are limited to those
  that others have, so that no user gains access.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from streamlog.fs.api import FileStat

__all__ = ["adopt", "create", "make_directory", "open_or_create"]

FILE_MODE: Final = 0o660
DIRECTORY_MODE: Final = 0o770

_ATTEMPTS: Final = 100  # at a name that appears and disappears
_SUPERUSER: Final = 0
# No right to give a file away; an id unknown in this user namespace; a file system without
# owners.
_NOT_ALLOWED: Final = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def create(path: str, flags: int) -> int:
    """Create a file that must not exist, and return its descriptor.

    Args:
        path: The file.
        flags: For `os.open`, with `O_CREAT` and `O_EXCL`.
    """
    descriptor = os.open(path, flags, FILE_MODE)
    if os.geteuid() == _SUPERUSER:
        _give_to_owner_of(os.path.dirname(path) or ".", descriptor)
    return descriptor


def open_or_create(path: str, flags: int) -> int:
    """Open a file, or create it if it does not exist; return its descriptor.

    Args:
        path: The file.
        flags: For `os.open`, without `O_CREAT`.
    """
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            return create(path, flags | os.O_CREAT | os.O_EXCL)
    return os.open(path, flags | os.O_CREAT, FILE_MODE)


def make_directory(path: str) -> None:
    """Create one directory, which must not exist."""
    os.mkdir(path, DIRECTORY_MODE)
    if os.geteuid() != _SUPERUSER:
        return
    try:
        # Through a descriptor: the name may denote something else by the time of a second call.
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # removed, or replaced by its new owner
    try:
        _give_to_owner_of(os.path.dirname(path.rstrip("/")) or ".", descriptor)
    finally:
        os.close(descriptor)


def adopt(descriptor: int, replaced: FileStat) -> None:
    """Give an open file the owner, group and mode of the file that it will replace.

    A missing right is no error.
    """
    found = os.fstat(descriptor)
    mode = replaced.mode & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    if (found.st_uid, found.st_gid) != (replaced.owner, replaced.group):
        with _allowed():
            os.fchown(descriptor, -1, replaced.group)
        with _allowed():
            os.fchown(descriptor, replaced.owner, -1)
        found = os.fstat(descriptor)
        if found.st_gid != replaced.group:
            mode &= ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    if stat.S_IMODE(found.st_mode) != mode:
        with _allowed():
            os.fchmod(descriptor, mode)


def _give_to_owner_of(directory: str, descriptor: int) -> None:
    above = os.stat(directory)
    if above.st_uid != _SUPERUSER and os.fstat(descriptor).st_uid == _SUPERUSER:
        with _allowed():
            os.fchown(descriptor, above.st_uid, above.st_gid)


@contextlib.contextmanager
def _allowed() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
