"""Names on the disk: how long one may be, and which ones belong to files not yet in place.

A file that is about to take another one's place is written as

    .<name>~<process id>-<number>.tmp

beside it. No two writers share such a name: the file is created exclusively, and a name that is
taken leads to the next number. No file is ever *called* that: no topic's name holds a `~`, and no
app's key begins with a dot (`streamlog.commits.identity.app_key`). A broker ignores it, for it
ends in neither `.log`, `.index` nor `.snapshot`.

A process that dies leaves its temporary file behind. What lies in a partition's directory and is
written under the partition's lock goes when the partition is recovered; everything else goes once
it is an hour old (`remove_stale_temporaries`). A writer that was suspended for so long writes its
file again.
"""

import contextlib
import hashlib
import itertools
import os
import re
from typing import Final

from streamlog.errors import FileMissingError
from streamlog.fs.api import FileKind, FileSystem

__all__ = [
    "NAME_SIZE_MAX",
    "TEMPORARY_SUFFIX",
    "fitting_name",
    "is_temporary",
    "remove_stale_temporaries",
    "stable_path",
    "temporary_base",
    "temporary_path",
]

NAME_SIZE_MAX: Final = 255  # bytes, on every Linux file system (NAME_MAX)
TEMPORARY_SUFFIX: Final = ".tmp"
STALE_AFTER_MS: Final = 3_600_000

_BASE_SIZE_MAX: Final = 200  # leaves room for the rest of a temporary name
_HASH_SIZE: Final = 32  # hexadecimal digits: 128 bits of SHA-256
_TEMPORARY: Final = re.compile(r"\.(?P<base>.+)~[0-9]+-[0-9]+\.tmp", re.ASCII | re.DOTALL)
_numbers: Final = itertools.count()


def fitting_name(name: str, suffix: str = "", *, separator: str = "=") -> str:
    """Return `name` and `suffix` as one name that a file system accepts.

    Args:
        name: What the file belongs to, such as a partition.
        suffix: What the file is for; always kept whole.
        separator: Stands before the hash, a character that no `name` holds.

    Returns:
        Both as they are where they fit in 255 bytes. Else the front of `name`, a hash of all of
        it, and `suffix`.
    """
    whole = f"{name}{suffix}"
    if len(os.fsencode(whole)) <= NAME_SIZE_MAX:
        return whole
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:_HASH_SIZE]
    tail = f"{separator}{digest}{suffix}"
    room = NAME_SIZE_MAX - len(os.fsencode(tail))
    return os.fsdecode(os.fsencode(name)[:room]) + tail


def temporary_path(path: str) -> str:
    """Return a path beside `path` for what is to take its place; each call returns another one."""
    directory, _, name = path.rpartition("/")
    base = os.fsdecode(os.fsencode(name)[:_BASE_SIZE_MAX])
    temporary = f".{base}~{os.getpid()}-{next(_numbers)}{TEMPORARY_SUFFIX}"
    return f"{directory}/{temporary}" if "/" in path else temporary


def temporary_base(name: str) -> str | None:
    """Return what a temporary file is to be called (of long names the front), None for others."""
    match = _TEMPORARY.fullmatch(name)
    return None if match is None else match["base"]


def stable_path(path: str) -> str:
    """Return a path that is the same in each run: the temporary file of `NAME` as `NAME.tmp`."""
    directory, slash, name = path.rpartition("/")
    base = temporary_base(name)
    return path if base is None else f"{directory}{slash}{base}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary file."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_stale_temporaries(fs: FileSystem, directory: str, *, now_ms: int) -> int:
    """Remove temporary files whose writers died: those that are an hour old.

    Args:
        fs: Where they lie.
        directory: Their directory; harmless where it is missing.
        now_ms: The time, in milliseconds since 1970.

    Returns:
        How many were removed.

    Raises:
        StorageError: The directory cannot be listed, or a file not be removed.
    """
    try:
        names = fs.list(directory)
    except FileMissingError:
        return 0
    removed = 0
    for name in filter(is_temporary, names):
        path = f"{directory}/{name}"
        found = fs.stat(path)
        if found is None or found.kind is not FileKind.FILE:
            continue
        if now_ms - found.mtime_ms >= STALE_AFTER_MS:
            with contextlib.suppress(FileMissingError):
                fs.remove(path)
                removed += 1
    return removed
