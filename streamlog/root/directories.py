"""What a directory in a log root is: a partition, an empty directory, or somebody else's.

Two rules are kept here and nowhere else.

*Which links are followed.* A log root and a partition's directory may be symbolic links to
directories, as with Kafka, where a partition is moved to another disk in this way. A link that
leads nowhere is an error wherever the partition is needed, never a partition less. Files are never
reached through a link of their own: `FileSystem.open` refuses those.

*What a partition is.* A directory called TOPIC-PARTITION that holds a file of a log: a segment, one
of its indexes, a snapshot, a checkpoint of epochs or a topic id. A directory that holds anything
else, and none of these, is a stranger's: it is never read, taken over or removed. Removing a
partition removes files of logs by their names and leaves the rest.
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
# What is added to a name when a file is kept or waits for its removal; `.tmp` by older releases.
_ADDED: Final = re.compile(r"(\.(tmp|deleted|corrupt|(torn|corrupt)-[0-9]{1,9}))+$", re.ASCII)


class Holding(Enum):
    """What lies at a path that is called like a partition's directory."""

    NOTHING = "nothing"
    LOG = "a log"
    EMPTY = "an empty directory"
    STRANGE = "a directory without a log"
    NO_DIRECTORY = "no directory"


def holding_of(fs: FileSystem, path: str) -> Holding:
    """Return what lies at a path that is called like a partition's directory.

    Args:
        fs: Where it is.
        path: The path; a link to a directory is followed.

    Raises:
        StorageError: It cannot be looked at, or it is a link that leads nowhere.
    """
    found = stat_directory(fs, path)
    if found is None:
        return Holding.NOTHING
    if found.kind is not FileKind.DIRECTORY:
        return Holding.NO_DIRECTORY
    if fs.stat(f"{path}/{PARTITION_METADATA}") is not None:  # nearly always: nothing is listed
        return Holding.LOG
    try:
        names = fs.list(path)
    except FileMissingError:
        return Holding.NOTHING  # deleted in between
    if not names:
        return Holding.EMPTY
    return Holding.LOG if any(map(is_file_of_a_log, names)) else Holding.STRANGE


def is_file_of_a_log(name: str) -> bool:
    """Tell whether a name is one that files of a partition have, finished or set aside."""
    whole = _ADDED.sub("", temporary_base(name) or name)
    return whole in _WHOLE_FILES or parse_segment_file_name(whole) is not None


def refuse_strangers(fs: FileSystem, path: str) -> None:
    """Raise for what lies where a partition is to be made and is neither a log nor empty.

    Raises:
        InvalidRequestError: It is there.
    """
    found = holding_of(fs, path)
    if found in (Holding.STRANGE, Holding.NO_DIRECTORY):
        names = fs.list(path)[:5] if found is Holding.STRANGE else []
        raise InvalidRequestError(
            "what lies here is no partition, and is left alone",
            path=path,
            got=f"{found.value}: {', '.join(names)}" if names else "no directory",
            expected="a log, an empty directory, or nothing",
            hint=f"move it away first: mv {path} {path}.kept",
        )


def remove_log_files(fs: FileSystem, directory: str) -> list[str]:
    """Remove a partition's files, and its directory where nothing else is in it.

    Of a link to a directory the link goes and the directory, which was made by somebody else,
    stays. A directory that stays is synced, one that goes is not.

    Args:
        fs: Where it is.
        directory: The partition's directory, or a link to it; harmless where it is missing.

    Returns:
        The paths of what is left because it is no file of a log, sorted.

    Raises:
        StorageError: Something could not be removed; the rest may be gone.
    """
    itself = fs.stat(directory)
    if itself is None:
        return []
    is_link = itself.kind is FileKind.SYMLINK
    left = []
    try:
        names = fs.list(directory)
    except FileMissingError:  # a link that leads nowhere
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
    if is_link or left:  # these directories stay: what is gone from them must not come back
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
            error.hint = f"see what was put into it meanwhile: ls -la {directory}"
            raise
