"""Where exported files lie: in a directory, or below a URL of an object store.

A file is written under a temporary name and appears under its final one when it is complete. In a
directory that is a rename, in a store a copy, which no data leaves the store for.
"""

import contextlib
import random as random_module
import re
from typing import Final, Protocol

from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    FileMissingError,
    InvalidRequestError,
    StorageError,
    StreamLogError,
)
from streamlog.exchange.streams import FileWriter, UploadWriter
from streamlog.fs.api import FileKind, FileLock, FileSystem
from streamlog.fs.files import (
    acquire_lock,
    make_directories,
    open_temporary,
    read_file,
    stat_directory,
    write_file_atomically,
)
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.names import STALE_AFTER_MS, is_temporary, temporary_base
from streamlog.store.api import ObjectStore, Upload
from streamlog.store.files import ObjectFiles
from streamlog.store.remote import open_store
from streamlog.store.urls import StoreUrl, absolute, is_store_url

__all__ = ["NewFile", "ExportPlace", "as_files", "open_place"]

_LOCK: Final = ".streamlog-export.lock"
_TEMPORARY: Final = "_temporary/"  # of a store; Spark and Hadoop leave out what begins with `_`
_LARGEST_COPY: Final = 5 << 30  # bytes that one CopyObject of S3 takes


class NewFile(Protocol):
    """A file that is being written; it has no name yet."""

    @property
    def stream(self) -> "FileWriter | UploadWriter":
        """Where its bytes go."""
        ...

    def finish(self, name: str) -> None:
        """Make the bytes durable under a name that no file has."""
        ...

    def abandon(self) -> None:
        """Remove what was written; harmless after `finish`."""
        ...


class ExportPlace(Protocol):
    """A flat set of files with names.

    Attributes:
        name: Its path or URL, for errors.
        is_shared: Whether other programs may write files meanwhile, as a lock cannot prevent it.
        largest: Most bytes of a file.
    """

    name: str
    is_shared: bool
    largest: int

    def begin(self, mine: re.Pattern[str]) -> None:
        """Get ready for writing, and remove what dead writers left.

        Args:
            mine: What names of unfinished files begin with.

        Raises:
            LockTimeoutError: Another export into this place runs.
            StorageError: It cannot be written.
        """
        ...

    def names(self) -> list[str]:
        """Return the names of all files."""
        ...

    def read(self, name: str, *, max_size: int) -> bytes | None:
        """Return the content of a small file, None if there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Replace or create a small file as a whole; durable on return."""
        ...

    def create(self, front: str) -> NewFile:
        """Begin a file whose name will begin with `front`."""
        ...

    def close(self) -> None:
        """Let others write; harmless if repeated."""
        ...


def open_place(
    target: str, *, fs: FileSystem | None = None, clock: Clock | None = None
) -> ExportPlace:
    """Return a place by its path or URL; nothing is created yet.

    Args:
        target: A directory, or `s3://BUCKET/PATH` and the like; `file://` is a directory.
        fs: The file system of directories; the machine's own by default.
        clock: Tells the age of what dead writers left; the machine's own by default.

    Raises:
        InvalidRequestError: The URL is invalid, or obstore is not installed.
    """
    clock = clock or SystemClock()
    if not is_store_url(target):
        return _Directory(absolute(target), fs or LocalFileSystem(), clock)
    url = StoreUrl.parse(target)
    if url.scheme == "file":
        return _Directory(f"/{url.prefix}", fs or LocalFileSystem(), clock)
    return StorePlace(open_store(target), clock)


def as_files(source: str, *, fs: FileSystem | None = None) -> tuple[FileSystem, str]:
    """Return the file system and the path in it that a path or URL names, for reading.

    Raises:
        InvalidRequestError: The URL is invalid, or obstore is not installed.
    """
    fs = fs or LocalFileSystem()
    if not is_store_url(source):
        return fs, absolute(source)
    url = StoreUrl.parse(source)
    if url.scheme == "file":
        return fs, f"/{url.prefix}"
    # The store of the parent: a store knows only what lies below its URL.
    above, _, _ = url.prefix.rpartition("/")
    return ObjectFiles(open_store(str(url._replace(prefix=above)))), str(url)


class _Directory:
    """A directory; created by `begin`."""

    is_shared = False
    largest = 1 << 62

    def __init__(self, path: str, fs: FileSystem, clock: Clock) -> None:
        self.name, self._fs, self._clock = path, fs, clock
        self._lock: FileLock | None = None

    def begin(self, mine: re.Pattern[str]) -> None:
        """See `ExportPlace.begin`."""
        found = stat_directory(self._fs, self.name)
        if found is not None and found.kind is not FileKind.DIRECTORY:
            raise InvalidRequestError(
                "the target of an export is a directory",
                path=self.name,
                got=f"a {found.kind.value}",
                hint="name a directory: an export writes several files into it",
            )
        make_directories(self._fs, self.name)
        self._lock = acquire_lock(
            self._fs,
            self._clock,
            f"{self.name}/{_LOCK}",
            shared=False,
            timeout_ms=0,
            what=f"export into {self.name}",
        )
        for each in self._fs.list(self.name):
            # Under the lock no other process writes, so the one that began the file is dead.
            if is_temporary(each) and mine.match(temporary_base(each) or ""):
                with contextlib.suppress(FileMissingError):
                    self._fs.remove(f"{self.name}/{each}")
        # A name may be there by a rename whose writer died before the sync. What follows relies
        # on it, so it must not be lost later than what follows.
        self._fs.sync_directory(self.name)

    def names(self) -> list[str]:
        """See `ExportPlace.names`."""
        try:
            return [each for each in self._fs.list(self.name) if not each.startswith(".")]
        except FileMissingError:
            return []

    def read(self, name: str, *, max_size: int) -> bytes | None:
        """See `ExportPlace.read`."""
        try:
            return read_file(self._fs, f"{self.name}/{name}", max_size=max_size)
        except FileMissingError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """See `ExportPlace.write`."""
        write_file_atomically(self._fs, f"{self.name}/{name}", content)

    def create(self, front: str) -> NewFile:
        """See `ExportPlace.create`."""
        return _NewLocalFile(self._fs, self.name, front)

    def close(self) -> None:
        """See `ExportPlace.close`."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class _NewLocalFile:
    """A file under a temporary name."""

    def __init__(self, fs: FileSystem, directory: str, front: str) -> None:
        self._fs, self._directory = fs, directory
        self._file = open_temporary(fs, f"{directory}/{front}")
        self._is_open = True
        self.stream = FileWriter(self._file)

    def finish(self, name: str) -> None:
        """See `NewFile.finish`."""
        self._file.sync()
        self._file.close()
        self._fs.rename(self._file.path, f"{self._directory}/{name}")
        self._is_open = False
        self._fs.sync_directory(self._directory)

    def abandon(self) -> None:
        """See `NewFile.abandon`."""
        self.stream.is_dead = True
        if self._is_open:
            self._is_open = False
            self._file.close()
            with contextlib.suppress(StorageError):  # the next export removes it
                self._fs.remove(self._file.path)


class StorePlace:
    """The objects directly below a URL.

    A store has no locks. Another export into the same place is noticed before an object gets its
    name, as far as that can be seen: see `FileTarget`.

    Args:
        store: The store.
        clock: Tells the age of temporary objects.
    """

    is_shared = True
    largest = _LARGEST_COPY

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.name, self._store, self._clock = store.url, store, clock

    def begin(self, mine: re.Pattern[str]) -> None:
        """See `ExportPlace.begin`."""
        oldest = self._clock.now_ms() - STALE_AFTER_MS
        self._store.delete(
            each.key
            for each in self._store.list(_TEMPORARY)
            if each.modified_ms < oldest and mine.match(each.key[len(_TEMPORARY) :])
        )

    def names(self) -> list[str]:
        """See `ExportPlace.names`."""
        return [each.key for each in self._store.list("") if "/" not in each.key]

    def read(self, name: str, *, max_size: int) -> bytes | None:
        """See `ExportPlace.read`."""
        try:
            return self._store.get(name, max_size=max_size)
        except FileMissingError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """See `ExportPlace.write`."""
        self._store.put(name, content)

    def create(self, front: str) -> NewFile:
        """See `ExportPlace.create`."""
        token = random_module.SystemRandom().getrandbits(64)
        key = f"{_TEMPORARY}{front}~{token:016x}"
        return _NewObject(self._store, self._store.upload(key))

    def close(self) -> None:
        """See `ExportPlace.close`."""


class _NewObject:
    """An object under a temporary key."""

    def __init__(self, store: ObjectStore, upload: Upload) -> None:
        self._store, self._upload = store, upload
        self._is_open = True
        self.stream = UploadWriter(upload)

    def finish(self, name: str) -> None:
        """See `NewFile.finish`."""
        self._upload.close()
        self._store.copy({self._upload.key: name})
        self._is_open = False
        with contextlib.suppress(StorageError):  # the copy stands; a later export removes it
            self._store.delete([self._upload.key])

    def abandon(self) -> None:
        """See `NewFile.abandon`."""
        self.stream.is_dead = True
        if self._is_open:
            self._is_open = False
            error = StreamLogError("abandoned")
            self._upload.__exit__(StreamLogError, error, None)
            with contextlib.suppress(StorageError):
                self._store.delete([self._upload.key])
