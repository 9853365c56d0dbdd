"""The files of a checkpoint that a reset changes, on a disk or in an object store.

A copy is complete or not there. On a disk it gets its name when it is complete; in an object store
`metadata` comes last, without which Spark sees no checkpoint.

Spark never changes a file of a checkpoint, so a copy on a disk consists of further names of the
same files. What we keep there (`streamlog.query.checkpoint_note`) is changed in place, and copied.
"""

import os
from collections.abc import Iterator
from typing import Final, Protocol

from streamlog.errors import (
    FileExistsAlreadyError,
    FileMissingError,
    InvalidRequestError,
    StorageError,
)
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.files import create_file_atomically, remove_tree, write_file_atomically
from streamlog.query.checkpoint_note import NOTES_DIRECTORY
from streamlog.store.api import ObjectStore
from streamlog.store.files import ObjectFiles

__all__ = ["CheckpointDirectory", "CheckpointFiles", "CheckpointObjects"]

_CHUNK: Final = 1 << 20
_COPYING: Final = ".copying"
_METADATA: Final = "metadata"


class CheckpointFiles(Protocol):
    """A checkpoint, as far as it can be changed. Every change is durable when a call returns.

    Attributes:
        fs: Reads its files.
        path: Its directory or URL; the files are below it.
    """

    @property
    def fs(self) -> FileSystem: ...  # noqa: D102

    @property
    def path(self) -> str: ...  # noqa: D102

    def keep_copy(self) -> str:
        """Copy the checkpoint beside itself, under the next free number; return the copy.

        Raises:
            InvalidRequestError: It holds something that is neither file nor directory.
            StorageError: The copy failed; there is none.
        """
        ...

    def create(self, name: str, content: bytes) -> None:
        """Create a file.

        Raises:
            FileExistsAlreadyError: It exists, with other content.
            StorageError: It cannot be written.
        """
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file, all of it or nothing.

        Raises:
            StorageError: It cannot be written.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file if it is there.

        Raises:
            StorageError: It cannot be removed.
        """
        ...


class CheckpointDirectory:
    """A checkpoint in a directory; see `CheckpointFiles`.

    Args:
        fs: Its file system.
        path: The directory; a link to one cannot be synced.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs, self.path = fs, path

    def keep_copy(self) -> str:
        """See `CheckpointFiles.keep_copy`."""
        number = 1
        while self.fs.stat(f"{self.path}.{number}") is not None:
            number += 1
        kept = f"{self.path}.{number}"
        remove_tree(self.fs, kept + _COPYING)  # of a process that died
        for source, target in _tree(self.fs, self.path, kept + _COPYING):
            is_own = f"/{NOTES_DIRECTORY}/" in source[len(self.path) :]
            _copy_file(self.fs, source, target, is_own=is_own)
        _sync_tree(self.fs, kept + _COPYING)
        self.fs.rename(kept + _COPYING, kept)
        self.fs.sync_directory(os.path.dirname(self.path))
        return kept

    def create(self, name: str, content: bytes) -> None:
        """See `CheckpointFiles.create`."""
        path = os.path.join(self.path, name)
        self.fs.make_directory(os.path.dirname(path))
        create_file_atomically(self.fs, path, content)

    def replace(self, name: str, content: bytes) -> None:
        """See `CheckpointFiles.replace`."""
        write_file_atomically(self.fs, os.path.join(self.path, name), content)

    def remove(self, name: str) -> None:
        """See `CheckpointFiles.remove`."""
        path = os.path.join(self.path, name)
        if self.fs.stat(path) is not None:
            self.fs.remove(path)
            self.fs.sync_directory(os.path.dirname(path))


class CheckpointObjects:
    """A checkpoint in an object store; see `CheckpointFiles`.

    Args:
        store: The store of the directory that holds the checkpoint.
        name: The checkpoint's name there.
    """

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store, self._name = store, name
        self.fs: FileSystem = ObjectFiles(store)
        self.path = f"{store.url}/{name}"

    def keep_copy(self) -> str:
        """See `CheckpointFiles.keep_copy`."""
        number = 1
        while self._store.stat(f"{self._name}.{number}/{_METADATA}") is not None:
            number += 1
        kept = f"{self._name}.{number}"
        names = [
            each.key[len(self._name) :]
            for each in self._store.list(f"{self._name}/")
            if each.size or self._store.stat(each.key) is not None  # Hadoop marks directories
        ]
        left_over = {each.key for each in self._store.list(f"{kept}/")}  # of a process that died
        self._store.delete(sorted(left_over - {kept + name for name in names}))
        last = f"/{_METADATA}"
        for group in ([name for name in names if name != last], [last]):
            self._store.copy({self._name + name: kept + name for name in group})
        return f"{self._store.url}/{kept}"

    def create(self, name: str, content: bytes) -> None:
        """See `CheckpointFiles.create`."""
        key = f"{self._name}/{name}"
        try:
            self._store.create(key, content)
        except FileExistsAlreadyError:  # maybe by this very call, of which an answer was lost
            if self._store.get(key, max_size=len(content)) != content:
                raise

    def replace(self, name: str, content: bytes) -> None:
        """See `CheckpointFiles.replace`."""
        self._store.put(f"{self._name}/{name}", content)

    def remove(self, name: str) -> None:
        """See `CheckpointFiles.remove`."""
        self._store.delete([f"{self._name}/{name}"])


def _tree(fs: FileSystem, source: str, target: str) -> Iterator[tuple[str, str]]:
    """Create the directories of a copy; yield each file and its name in the copy."""
    fs.make_directory(target)
    for name in fs.list(source):
        inner, copy = os.path.join(source, name), os.path.join(target, name)
        found = fs.stat(inner)
        if found is None:
            continue
        if found.kind is FileKind.DIRECTORY:
            yield from _tree(fs, inner, copy)
        elif found.kind is FileKind.FILE:
            yield inner, copy
        else:
            raise InvalidRequestError(
                "a checkpoint holds files and directories only", path=inner, got=found.kind.value
            )


def _copy_file(fs: FileSystem, source: str, target: str, *, is_own: bool) -> None:
    if not is_own:
        try:
            fs.link(source, target)
        except FileMissingError:
            raise
        except StorageError:  # another owner, or a file system without links
            pass
        else:
            return
    with fs.open(source, OpenMode.READ) as file, fs.open(target, OpenMode.CREATE) as copy:
        position = 0
        while part := file.pread(_CHUNK, position):
            copy.pwrite(part, position)
            position += len(part)


def _sync_tree(fs: FileSystem, path: str) -> None:
    for name in fs.list(path):
        inner = os.path.join(path, name)
        found = fs.stat(inner)
        if found is not None and found.kind is FileKind.DIRECTORY:
            _sync_tree(fs, inner)
        else:
            with fs.open(inner, OpenMode.READ) as file:
                file.sync()
    fs.sync_directory(path)
