r"""A checkpoint's note of the last version that an app committed.

A log root restored from an older copy contains no trace of later commits. A query that continues
would leave out the batches in between, silently if its versions may have gaps (`foreachBatch`).
Each commit is therefore also noted next to the checkpoint, in a small file that Spark ignores:

    <checkpoint>/streamlog/<app>@<root>-<place>     two lines, "<version> <crc32c>\n" each

`<app>` is the app's key; `<root>` and `<place>` are hashes of the root's `directory.id` and path. A
note applies if either matches, so it is found for a root restored elsewhere and for a new root in
the same place.

A note is written after its commit is durable, so it never claims more than the log contains. It is
not synced: only a root restored from an older copy is behind its note, and a copy is older than the
seconds that a write stays in memory. The two lines are overwritten in turn: a power cut may tear
one of them and leaves the other.
"""

import hashlib
import logging
import os
import re
from typing import Final

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptCheckpointError, FileMissingError, StorageError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import make_directories, read_file, write_file_atomically

__all__ = ["NOTES_DIRECTORY", "CheckpointNote"]

NOTES_DIRECTORY: Final = "streamlog"

_NOTE: Final = re.compile(r"(.+)@([0-9a-f]{16})-([0-9a-f]{16})", re.ASCII)
_LINE: Final = re.compile(rb"([0-9]{20}) ([0-9a-f]{8})\n")
_LINE_SIZE: Final = 20 + 1 + 8 + 1
_SIZE_MAX: Final = 4096  # far more than two lines

_logger = logging.getLogger(__name__)


class CheckpointNote:
    """A checkpoint's note of an app's commits to a root.

    Args:
        fs: The checkpoint's file system.
        path: The note's file.
        version: The noted version, None if there is no note yet.
        line: The line (0 or 1) that contains it.

    Attributes:
        path: The note's file.
        version: The last version committed, None if there is none.
    """

    __slots__ = ("_fs", "_line", "path", "version")

    def __init__(self, fs: FileSystem, path: str, version: int | None, line: int) -> None:
        self._fs = fs
        self.path = path
        self.version = version
        self._line = line

    @classmethod
    def find(
        cls, fs: FileSystem, checkpoint: str, *, key: str, directory_id: str | None, place: str
    ) -> "CheckpointNote":
        """Return a checkpoint's note of an app; of several notes, the one with the highest version.

        Args:
            fs: The checkpoint's file system.
            checkpoint: Its directory.
            key: The app's key (`streamlog.commits.identity.app_key`).
            directory_id: The id in the log root's `meta.properties`, None without one.
            place: The log root's path, with links resolved.

        Raises:
            CorruptCheckpointError: A note is damaged.
        """
        own = (_hash(directory_id or place), _hash(place))
        directory = os.path.join(checkpoint, NOTES_DIRECTORY)
        path = os.path.join(directory, f"{key}@{own[0]}-{own[1]}")
        found = [
            _read(fs, os.path.join(directory, name))
            for name in _list(fs, directory)
            if (match := _NOTE.fullmatch(name)) is not None
            and match[1] == key
            and (match[2] == own[0] or match[3] == own[1])
        ]
        newest = max(found, key=lambda note: note.version or 0, default=None)
        return cls(fs, path, None, 0) if newest is None else newest

    def remember(self, version: int) -> None:
        """Note a version whose commit is durable; a failure is logged.

        Nothing is raised, because the commit is valid whether it is noted or not.
        """
        if self.version is not None and version <= self.version:
            return
        line = _format(version)
        try:
            if self.version is None:
                make_directories(self._fs, os.path.dirname(self.path))
                write_file_atomically(self._fs, self.path, line * 2)
            else:
                self._line = 1 - self._line
                with self._fs.open(self.path, OpenMode.WRITE) as file:
                    file.pwrite(line, self._line * _LINE_SIZE)
        except StorageError as error:
            _logger.warning(
                "cannot note version %d in the checkpoint, so a log restored from an older copy "
                "would not be detected: %s",
                version,
                error,
            )
            return
        self.version = version


def _read(fs: FileSystem, path: str) -> CheckpointNote:
    content = read_file(fs, path, max_size=_SIZE_MAX)
    versions = []
    for line in (0, 1):
        match = _LINE.fullmatch(content[line * _LINE_SIZE : (line + 1) * _LINE_SIZE])
        if match is not None and int(match[2], 16) == crc32c(match[1]):
            versions.append((int(match[1]), line))
    if not versions:
        raise CorruptCheckpointError(
            "checkpoint's note of the last committed version is damaged",
            path=path,
            got=repr(content[:80]),
            expected="two lines with a version and its CRC-32C",
            hint="delete the file if the log was not restored from a copy since",
        )
    version, line = max(versions)
    return CheckpointNote(fs, path, version, line)


def _format(version: int) -> bytes:
    text = b"%020d" % version
    return b"%s %08x\n" % (text, crc32c(text))


def _hash(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _list(fs: FileSystem, path: str) -> list[str]:
    try:
        return fs.list(path)
    except FileMissingError:
        return []
