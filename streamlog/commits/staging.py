"""Staged files: the output of task attempts before a commit is decided.

A staged file consists of whole v2 batches, so any tool that reads segments can read it:

    ┌ extent 0 ────────┬ extent 1 ────────┬ extent 2 ────────┐
    │ batches for a-0  │ batches for a-1  │ batches for a-0  │ …
    └──────────────────┴──────────────────┴──────────────────┘

An extent contains batches of one partition; if batches of many partitions arrive mixed, each
partition gets several extents. Across all extents of a partition, offsets count from 0; epoch and
producer are not set. The table of extents is not in the file: it reaches the decision with the
task's message (`StagedFile`). A file that no decision names has no effect.

Its path is `<root>/.streamlog/staging/<app>/<version>-<task>-<random>`, unique for each attempt.
"""

import contextlib
import logging
import random as random_module
import re
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.commits.identity import CommitIdentity, app_key, check_identity
from streamlog.errors import (
    FileMissingError,
    InvalidRequestError,
    StorageError,
    UnknownTopicError,
)
from streamlog.fs.api import File, FileKind, OpenMode
from streamlog.fs.files import make_name_durable, remove_unused_directory
from streamlog.fs.log_root import LogRoot
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.records.builder import EncodedBatches
from streamlog.records.layout import BASE_OFFSET_OFFSET, LENGTH_OFFSET
from streamlog.records.record import NO_TIMESTAMP
from streamlog.topic import TopicPartition

__all__ = [
    "StagedExtent",
    "StagedExtents",
    "StagedFile",
    "Stager",
    "StagingArea",
    "is_staged_name",
    "staged_name",
    "staged_version",
]

PIECE_SIZE: Final = 4 << 20  # bytes waiting for one partition before it gets an extent
BUFFER_SIZE: Final = 16 << 20  # bytes waiting in total before all partitions get one
MAX_TASK: Final = 2**31 - 1

# A name in an object store ends with the time of the attempt.
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})-[0-9a-f]{16}(?:-[0-9]{20})?", re.ASCII)
_CREATION_ATTEMPTS: Final = 3

_logger = logging.getLogger(__name__)


class StagedExtent(NamedTuple):
    """Whole batches of one partition in a staged file.

    Attributes:
        topic: The topic.
        partition: The partition.
        topic_id: The topic's id when the task ran.
        position: Position of the first byte in the file.
        size: Size in bytes.
        batches: Number of batches.
        records: Number of records.
        max_timestamp: The largest timestamp in ms, -1 if there is none.
    """

    topic: str
    partition: int
    topic_id: str
    position: int
    size: int
    batches: int
    records: int
    max_timestamp: int = NO_TIMESTAMP

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class StagedFile(NamedTuple):
    """A task's report to the committer: strings, numbers and tuples only.

    Attributes:
        app: The app of the commit.
        version: The version of the commit.
        task: Index of the task; it orders the batches of a partition.
        name: Name of the file, empty if the task had no rows and created none.
        size: Size in bytes.
        extents: The table of its extents.
        rows: Number of rows.
        checksum: Sum of the rows' hashes modulo 2**64; None if not computed.
    """

    app: str
    version: int
    task: int
    name: str
    size: int
    extents: tuple[StagedExtent, ...]
    rows: int
    checksum: int | None


def is_staged_name(name: str) -> bool:
    """Return whether this is a valid name of a staged file."""
    return _NAME.fullmatch(name) is not None


def staged_version(name: str) -> int | None:
    """Return the version in a staged file's name, None for other names."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])


class _Waiting:
    """Batches of one partition that are not written yet, and the partition's next offset."""

    __slots__ = (
        "batches", "buffers", "max_timestamp", "next_offset", "records", "size", "topic_id",
    )  # fmt: skip

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.next_offset = 0
        self.clear()

    def clear(self) -> None:
        self.buffers: list[NDArray[np.uint8]] = []
        self.size = self.batches = self.records = 0
        self.max_timestamp = NO_TIMESTAMP


class StagedExtents:
    """Collects a task's batches by partition, and writes them as extents, one after another.

    Args:
        write: Appends bytes to the task's file.
        find_topic_id: Returns the topic id of a partition, or raises `UnknownTopicError`.

    Attributes:
        table: The extents that were written.
        size: Bytes written.
    """

    def __init__(
        self,
        write: Callable[[NDArray[np.uint8]], None],
        find_topic_id: Callable[[TopicPartition], str],
    ) -> None:
        self._write, self._find_topic_id = write, find_topic_id
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._waiting_size = 0
        self.table: list[StagedExtent] = []
        self.size = 0

    def append(self, topic_partition: TopicPartition, batches: EncodedBatches) -> None:
        """Add the next batches of a partition; see `Stager.append`."""
        if len(batches.table) == 0:
            return
        waiting = self._waiting.get(topic_partition)
        if waiting is None:
            waiting = _Waiting(self._find_topic_id(topic_partition))
            self._waiting[topic_partition] = waiting
        waiting.next_offset = _number_batches(batches, waiting.next_offset)
        waiting.buffers.append(batches.buffer)
        waiting.size += batches.buffer.size
        waiting.batches += len(batches.table)
        waiting.records += int(batches.table.count.sum())
        waiting.max_timestamp = max(waiting.max_timestamp, int(batches.table.max_timestamp.max()))
        self._waiting_size += batches.buffer.size
        if waiting.size >= PIECE_SIZE:
            self._write_extent(topic_partition, waiting)
        elif self._waiting_size >= BUFFER_SIZE:
            self._write_all()

    def finish(self, rows: int) -> None:
        """Write all remaining batches.

        Raises:
            InvalidRequestError: The number of records differs from `rows`.
        """
        self._write_all()
        records = sum(extent.records for extent in self.table)
        if records != rows:
            raise InvalidRequestError(
                "number of staged records differs from the task's rows",
                got=f"{records} records",
                expected=f"{rows} rows",
            )

    def _write_all(self) -> None:
        for partition in sorted(self._waiting):
            self._write_extent(partition, self._waiting[partition])

    def _write_extent(self, partition: TopicPartition, waiting: _Waiting) -> None:
        if waiting.size == 0:
            return
        position = self.size
        for buffer in waiting.buffers:  # joining them would copy megabytes
            self._write(buffer)
            self.size += buffer.size
        self.table.append(
            StagedExtent(
                topic=partition.topic,
                partition=partition.partition,
                topic_id=waiting.topic_id,
                position=position,
                size=waiting.size,
                batches=waiting.batches,
                records=waiting.records,
                max_timestamp=waiting.max_timestamp,
            )
        )
        self._waiting_size -= waiting.size
        waiting.clear()


def staged_name(version: int, task: int, random: random_module.Random) -> str:
    """Return a name that no other attempt uses."""
    return f"{version:020d}-{task:010d}-{random.getrandbits(64):016x}"


class Stager:
    """Writes the staged file of one task attempt. Use it as a context manager.

    Args:
        root: The log root.
        app: The app of the commit.
        version: The version of the commit.
        task: Index of the task, at least 0.
        random: Makes the file name unique. `SystemRandom` by default, because forked workers would
            share the state of any other generator.
        find_topic_id: Returns the topic id of a partition, None if it does not exist; looks in the
            root by default.

    Raises:
        InvalidRequestError: The app, version or task is invalid.
    """

    def __init__(
        self,
        root: LogRoot,
        app: str,
        version: int,
        task: int,
        *,
        random: random_module.Random | None = None,
        find_topic_id: Callable[[TopicPartition], str | None] | None = None,
    ) -> None:
        check_identity(CommitIdentity(app, version))
        if not 0 <= task <= MAX_TASK:
            raise InvalidRequestError(
                "invalid task index", got=str(task), expected=f"0 to {MAX_TASK}"
            )
        self._root, self._look_up = root, find_topic_id or self._topic_id_here
        self._app, self._version, self._task = app, version, task
        self._random = random or random_module.SystemRandom()
        self._area = StagingArea(root)
        self._extents = StagedExtents(self._write, self._find_topic_id)
        self._file: File | None = None
        self._is_finished = False

    def append(self, topic_partition: TopicPartition, batches: EncodedBatches) -> None:
        """Add the next batches of a partition.

        Args:
            topic_partition: The partition.
            batches: Whole v2 batches; the stager takes ownership and writes offsets into them.

        Raises:
            UnknownTopicError: There is no such partition.
            StorageError: The write failed; the attempt is lost.
        """
        self._check_open()
        self._extents.append(topic_partition, batches)

    def finish(self, *, rows: int, checksum: int | None) -> StagedFile:
        """Write all remaining batches, make the file durable, and return its report.

        Args:
            rows: Number of rows of the task.
            checksum: Sum of their hashes modulo 2**64, over the user's columns; None if not
                computed.

        Raises:
            InvalidRequestError: The number of records differs from `rows`.
            StorageError: The write failed; the attempt is lost.
        """
        self._check_open()
        self._extents.finish(rows)
        name = ""
        if self._file is not None:
            self._file.sync()
            name = self._file.path.rpartition("/")[2]
            self._file.close()
        self._is_finished = True
        return StagedFile(
            app=self._app,
            version=self._version,
            task=self._task,
            name=name,
            size=self._extents.size,
            extents=tuple(self._extents.table),
            rows=rows,
            checksum=checksum,
        )

    def discard(self) -> None:
        """Remove the file unless it is finished."""
        if self._is_finished:
            return
        self._is_finished = True
        file, self._file = self._file, None
        if file is not None:
            file.close()
            with contextlib.suppress(FileMissingError):
                self._root.fs.remove(file.path)

    def __enter__(self) -> "Stager":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.discard()
        except StorageError as failure:
            if error is None:
                raise
            _logger.warning("cannot remove a staged file, `clean` will do it later: %s", failure)

    def _check_open(self) -> None:
        if self._is_finished:
            raise InvalidRequestError("staged file is already finished")

    def _topic_id_here(self, partition: TopicPartition) -> str | None:
        return read_topic_id(self._root.fs, self._root.partition(partition))

    def _find_topic_id(self, partition: TopicPartition) -> str:
        topic_id = self._look_up(partition)
        if topic_id is None:
            raise UnknownTopicError(
                "no such partition",
                path=self._root.path,
                got=str(partition),
                hint=f"streamlog topics describe {partition.topic} --path {self._root.path}",
            )
        return topic_id

    def _write(self, buffer: NDArray[np.uint8]) -> None:
        if self._file is None:
            self._file = self._area.create(self._app, self._new_name)
        self._file.pwrite(buffer, self._extents.size)

    def _new_name(self) -> str:
        return staged_name(self._version, self._task, self._random)


def _number_batches(batches: EncodedBatches, offset: int) -> int:
    """Write consecutive base offsets into batches; return the offset after them.

    The checksum does not cover base offsets, so it stays valid.
    """
    view = batches.buffer.data
    table = batches.table
    counts = (table.last_offset - table.base_offset + 1).tolist()
    for position, count in zip(table.position.tolist(), counts, strict=True):
        field = slice(position + BASE_OFFSET_OFFSET, position + LENGTH_OFFSET)
        view[field] = offset.to_bytes(LENGTH_OFFSET - BASE_OFFSET_OFFSET, "big")
        offset += count
    return offset


class StagingArea:
    """The staged files of a root.

    Args:
        root: The log root.
    """

    __slots__ = ("_fs", "_root", "path")

    def __init__(self, root: LogRoot) -> None:
        self._root, self._fs = root, root.fs
        self.path = root.staging

    def directory(self, app: str) -> str:
        """Return the directory of an app's staged files."""
        return self._root.staged_by(app_key(app))

    def file_path(self, app: str, name: str) -> str:
        """Return the path of a staged file."""
        return f"{self.directory(app)}/{name}"

    def open(self, app: str, name: str) -> File:
        """Open a staged file for reading.

        Raises:
            FileMissingError: There is no such file.
        """
        return self._fs.open(self.file_path(app, name), OpenMode.READ)

    def create(self, app: str, new_name: Callable[[], str]) -> File:
        """Create a staged file, and its directory if that is missing; nothing is synced."""
        directory = self.directory(app)
        for _ in range(_CREATION_ATTEMPTS - 1):
            with contextlib.suppress(FileMissingError):
                return self._fs.open(f"{directory}/{new_name()}", OpenMode.CREATE)
            # Retry: `clean` may remove the directory while it is still empty.
            for path in (self._root.state, self.path, directory):
                self._fs.make_directory(path)
        return self._fs.open(f"{directory}/{new_name()}", OpenMode.CREATE)

    def sync(self, app: str) -> None:
        """Make the names of an app's staged files and of the directories above durable."""
        directory = self.directory(app)
        self._fs.sync_directory(directory)
        make_name_durable(self._fs, directory, above=(self.path, self._root.state))

    def names(self, app: str) -> list[str]:
        """Return the names of an app's staged files; empty if there is no directory."""
        return self._names(self.directory(app))

    def remove(self, app: str, names: Iterable[str]) -> None:
        """Remove those of an app's staged files that still exist."""
        for name in names:
            with contextlib.suppress(FileMissingError):
                self._fs.remove(self.file_path(app, name))

    def remove_file(self, key: str, name: str) -> None:
        """Remove a staged file, if it still exists, by its app's key."""
        with contextlib.suppress(FileMissingError):
            self._fs.remove(f"{self._root.staged_by(key)}/{name}")

    def remove_directory(self, path: str, *, unused_since_ms: int | None = None) -> None:
        """Remove an app's directory if it exists and contains no staged file.

        Args:
            path: The directory.
            unused_since_ms: Keep the directory if a name in it changed at or after this time.
        """
        found = self._fs.stat(path)
        if found is None or found.kind is not FileKind.DIRECTORY:
            return
        if unused_since_ms is not None and found.mtime_ms >= unused_since_ms:
            return
        with contextlib.suppress(FileMissingError):
            remove_unused_directory(self._fs, path)

    def app_keys(self) -> list[str]:
        """Return the names of the apps' directories."""
        try:
            return self._fs.list(self.path)
        except FileMissingError:
            return []

    def older_than(self, time_ms: int) -> list[tuple[str, str]]:
        """Return app key and name of every staged file last written before `time_ms`."""
        found = []
        for key in self.app_keys():
            directory = self._root.staged_by(key)
            for name in self._names(directory):
                at = self._fs.stat(f"{directory}/{name}")
                if at is not None and at.kind is FileKind.FILE and at.mtime_ms < time_ms:
                    found.append((key, name))
        return found

    def _names(self, directory: str) -> list[str]:
        try:
            return [name for name in self._fs.list(directory) if is_staged_name(name)]
        except FileMissingError:
            return []
