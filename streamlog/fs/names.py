"""File names: their maximum length, and temporary names of files not yet in place.

A file that will replace another one is written as

    .<name>~<process id>-<number>.tmp

in the same directory. No two writers share such a name: the file is created exclusively, and if the
name is taken the next number is tried. No final file has such a name: no topic's name contains a
`~`, and no app's key starts with a dot (`streamlog.commits.identity.app_key`). A broker ignores it,
since it ends in neither `.log`, `.index` nor `.snapshot`.

A process that dies leaves its temporary file behind. Files written in a partition's directory under
the partition's lock are removed by its recovery; all others once they are an hour old
(`remove_stale_temporaries`). A writer that was suspended for so long writes its file again.
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
        name: The owner of the file, such as a partition.
        suffix: The purpose of the file; always kept whole.
        separator: Precedes the hash; a character that no `name` contains.

    Returns:
        Both unchanged if they fit in 255 bytes; otherwise the start of `name`, a hash of all of it,
        and `suffix`.
    """
    whole = f"{name}{suffix}"
    if len(os.fsencode(whole)) <= NAME_SIZE_MAX:
        return whole
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:_HASH_SIZE]
    tail = f"{separator}{digest}{suffix}"
    room = NAME_SIZE_MAX - len(os.fsencode(tail))
    return os.fsdecode(os.fsencode(name)[:room]) + tail


def temporary_path(path: str) -> str:
    """Return a new path next to `path` for a file that will replace it."""
    directory, _, name = path.rpartition("/")
    base = os.fsdecode(os.fsencode(name)[:_BASE_SIZE_MAX])
    temporary = f".{base}~{os.getpid()}-{next(_numbers)}{TEMPORARY_SUFFIX}"
    return f"{directory}/{temporary}" if "/" in path else temporary


def temporary_base(name: str) -> str | None:
    """Return the final name of a temporary file (the start of a long one), None for other files."""
    match = _TEMPORARY.fullmatch(name)
    return None if match is None else match["base"]


def stable_path(path: str) -> str:
    """Return a path that is the same in each run: `NAME.tmp` for the temporary file of `NAME`."""
    directory, slash, name = path.rpartition("/")
    base = temporary_base(name)
    return path if base is None else f"{directory}{slash}{base}{TEMPORARY_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary file."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_stale_temporaries(fs: FileSystem, directory: str, *, now_ms: int) -> int:
    """Remove temporary files whose writers died: those that are an hour old.

    Args:
        fs: Their file system.
        directory: Their directory; harmless if it does not exist.
        now_ms: The current time, in milliseconds since 1970.

    Returns:
        How many were removed.
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
