"""Whether a directory in a log root is a partition, empty, or something foreign.

*Symbolic links.* A log root and the directory of a partition may be links to directories, as in
Kafka, where this moves a partition to another disk. A dangling link is an error wherever the
partition is needed; it never counts as a missing partition. `FileSystem.open` refuses links to
files.

*Partitions.* A partition is a directory named TOPIC-PARTITION with at least one file of a log: a
segment, an index, a snapshot, an epoch checkpoint or a topic id. A directory with only other files
is foreign: it is never read, taken over or removed. Removing a partition removes files of logs by
name and leaves all others.
"""

import contextlib
import re
from enum import Enum
from typing import Final

from streamlog.errors import FileMissingError, InvalidRequestError, StorageError
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.files import stat_directory
from streamlog.fs.names import temporary_base
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT
from streamlog.partition.partition_metadata import PARTITION_METADATA
from streamlog.segment.filenames import parse_segment_file_name

__all__ = [
    "Holding",
    "holding_of",
    "is_file_of_a_log",
    "refuse_strangers",
    "remove_log_files",
]

_WHOLE_FILES: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
# Suffixes of files that were kept or wait for their removal; `.tmp` is from older releases.
_ADDED: Final = re.compile(r"(\.(tmp|deleted|corrupt|(torn|corrupt)-[0-9]{1,9}))+$", re.ASCII)


class Holding(Enum):
    """What a path holds that is named like a partition."""

    NOTHING = "nothing"
    LOG = "a log"
    EMPTY = "an empty directory"
    STRANGE = "a directory without a log"
    NO_DIRECTORY = "no directory"


def holding_of(fs: FileSystem, path: str) -> Holding:
    """Return what a path holds that is named like a partition; follows a link to a directory.

    Raises:
        StorageError: It is not readable, or a dangling link.
    """
    found = stat_directory(fs, path)
    if found is None:
        return Holding.NOTHING
    if found.kind is not FileKind.DIRECTORY:
        return Holding.NO_DIRECTORY
    if fs.stat(f"{path}/{PARTITION_METADATA}") is not None:  # the common case, without a listing
        return Holding.LOG
    try:
        names = fs.list(path)
    except FileMissingError:
        return Holding.NOTHING  # deleted after the stat
    if not names:
        return Holding.EMPTY
    return Holding.LOG if any(map(is_file_of_a_log, names)) else Holding.STRANGE


def is_file_of_a_log(name: str) -> bool:
    """Return whether a name is that of a file of a log, whole, temporary or kept aside."""
    whole = _ADDED.sub("", temporary_base(name) or name)
    return whole in _WHOLE_FILES or parse_segment_file_name(whole) is not None


def refuse_strangers(fs: FileSystem, path: str) -> None:
    """Raise if the path of a new partition holds something other than a log.

    Raises:
        InvalidRequestError: It is neither missing, nor empty, nor a log.
    """
    found = holding_of(fs, path)
    if found in (Holding.STRANGE, Holding.NO_DIRECTORY):
        names = fs.list(path)[:5] if found is Holding.STRANGE else []
        raise InvalidRequestError(
            "a partition cannot be created here: the path is in use",
            path=path,
            got=f"{found.value}: {', '.join(names)}" if names else "no directory",
            expected="a log, an empty directory, or nothing",
            hint=f"move it away first: mv {path} {path}.kept",
        )


def remove_log_files(fs: FileSystem, directory: str) -> list[str]:
    """Remove the files of a partition, and its directory unless other files are left in it.

    Of a link to a directory the link is removed and the directory, which streamlog did not create,
    stays. A directory that stays is synced.

    Args:
        fs: The file system.
        directory: The partition's directory, or a link to it; it may be missing.

    Returns:
        The paths of remaining files that are not files of a log, sorted.

    Raises:
        StorageError: A file could not be removed; others may be gone.
    """
    itself = fs.stat(directory)
    if itself is None:
        return []
    is_link = itself.kind is FileKind.SYMLINK
    left = []
    try:
        names = fs.list(directory)
    except FileMissingError:  # a dangling link
        names = []
    for name in names:
        path = f"{directory}/{name}"
        found = fs.stat(path)
        is_ours = found is not None and found.kind is FileKind.FILE and is_file_of_a_log(name)
        if is_ours:
            with contextlib.suppress(FileMissingError):
                fs.remove(path)
        elif found is not None:
            left.append(path)
    if is_link or left:  # the directory stays: removed files must not return after a power cut
        with contextlib.suppress(FileMissingError):
            fs.sync_directory(directory)
    if is_link:
        target = fs.resolve(directory)
        left = [f"{target}{path.removeprefix(directory)}" for path in left]
        fs.remove(directory)
    elif not left:
        _remove_empty(fs, directory)
    return left


def _remove_empty(fs: FileSystem, directory: str) -> None:
    with contextlib.suppress(FileMissingError):
        try:
            fs.remove_directory(directory)
        except StorageError as error:
            error.hint = f"another process added files: ls -la {directory}"
            raise
