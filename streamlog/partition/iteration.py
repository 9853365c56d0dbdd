"""Iterating over the records of one partition: all, a range, or new ones as they are appended.

One read returns about a megabyte; an iteration continues with the next read until its end, so no
record is silently left out. `Log` and `LogReader` share this module.
"""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final, Protocol

from streamlog.clock import Clock, SystemClock, epoch_ms
from streamlog.errors import (
    CorruptDataError,
    InvalidOptionError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.partition import partition_metadata
from streamlog.partition.read import FetchInfo
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.columns import COLUMNS, RecordColumns
from streamlog.records.layout import MAX_INT64
from streamlog.records.record import IsolationLevel, Record
from streamlog.records.table import BatchTable

__all__ = ["FETCH_BYTES", "POLL_MS", "IterableLog", "Readable", "DirectoryWatch", "read_columns"]

FETCH_BYTES: Final = 1 << 20
POLL_MS: Final = 100


class Readable(Protocol):
    """A partition that can be read: `PartitionLog`, `LogReader`, `ReplicaReader`."""

    @property
    def path(self) -> str:
        """The directory."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record; above the high watermark they cannot be read yet."""
        ...

    @property
    def high_watermark(self) -> int:
        """Where `read_uncommitted` ends."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """Where `read_committed` ends."""
        ...

    def read(
        self, offset: int, max_bytes: int = ..., *, isolation: str | IsolationLevel = ...
    ) -> FetchInfo:
        """Read whole batches from the one that holds `offset` on."""
        ...

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp is at least `timestamp` (ms), or None."""
        ...


def readable_end(log: Readable, isolation: IsolationLevel) -> int:
    """Return the offset after the last record that is visible at the isolation level."""
    committed = isolation is IsolationLevel.READ_COMMITTED
    return log.last_stable_offset if committed else log.high_watermark


def read_columns(
    log: Readable,
    start_offset: int,
    end_offset: int,
    *,
    isolation: IsolationLevel,
    columns: Collection[str] = COLUMNS,
) -> Iterator[tuple[FetchInfo, RecordColumns]]:
    """Yield all records between two offsets, read by read.

    Args:
        log: The partition.
        start_offset: The first offset.
        end_offset: The offset after the last, at most the log end.
        isolation: The isolation level.
        columns: Which of `key`, `value`, `headers` to decode.

    Yields:
        Each read, or a part of it whose decompressed size is bounded, with its records; these
        may be none. They end early if the log is read from another replica now, whose high
        watermark is lower.

    Raises:
        OffsetOutOfRangeError: The log was truncated, or records that were not read yet were
            deleted.
        CorruptDataError: A batch is damaged; all records before it were yielded.
    """
    offset, size = start_offset, FETCH_BYTES
    while offset < end_offset:
        try:
            info = log.read(offset, size, isolation=isolation)
            info = replace(info, end_offset=min(info.end_offset, end_offset))
            for step, found in _steps(info, columns):
                yield step, found
                offset = step.next_offset
        except CorruptDataError:
            if size == 1:
                raise
            size = 1  # batch by batch up to the damaged one, which may lie after the end
            continue
        if info.next_offset <= info.offset:
            if log.high_watermark <= offset < log.log_end_offset:
                return  # the high watermark of this replica is lower than that of the one before
            raise OffsetOutOfRangeError(
                "the log was truncated while it was read",
                path=log.path,
                offset=offset,
                got=f"the log ends at {info.log_end_offset}",
                expected=f"records up to offset {end_offset}",
            )
        offset = info.next_offset


def _steps(info: FetchInfo, columns: Collection[str]) -> Iterator[tuple[FetchInfo, RecordColumns]]:
    """Yield a read in parts, which together end where it ends."""
    reached = info.offset
    for table, found in info.pieces(columns=columns):
        reached = int(table.last_offset[-1]) + 1
        yield replace(info, table=table, next_offset=reached), found
    if reached < info.next_offset:  # control records, or aborted ones
        rest = replace(info, table=BatchTable.empty())
        yield rest, rest.columns(columns=columns)


class DirectoryWatch:
    """Detects that a partition's directory was deleted or recreated.

    Args:
        fs: Where it is.
        path: The directory.
    """

    __slots__ = ("_fs", "_known", "_path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs, self._path = fs, path
        self._known = self._look()

    def check(self) -> None:
        """Raise `UnknownTopicError` if the topic was deleted, or deleted and created again."""
        now = self._look()
        if now != self._known:
            what = "deleted" if now is None else "deleted and created again"
            raise UnknownTopicError(f"the partition was {what} while it was read", path=self._path)

    def _look(self) -> tuple[int, str | None] | None:
        found = self._fs.stat(self._path)
        if found is None:
            return None
        try:
            return found.inode, partition_metadata.read_topic_id(self._fs, self._path)
        except (UnknownTopicError, CorruptDataError):
            return found.inode, None


class IterableLog:
    """Iteration over records, for `Log` and `LogReader`."""

    path: str
    _fs: FileSystem

    def records(
        self: "_Log",
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        follow: bool = False,
        timeout_ms: float | None = None,
        clock: Clock | None = None,
    ) -> Iterator[Record]:
        """Iterate over all records, or over a range of them; see also `for record in log`.

        Without `follow` the iteration ends where the log ended when this was called.

        Args:
            start_offset: The first offset; the log start by default.
            end_offset: The offset after the last; at most the log end, which is the default.
            start_timestamp: Start at the first record of this time or later instead: ms since
                1970, or a datetime with a time zone. Without such a record nothing is read.
            end_timestamp: End before the first record of this time or later instead.
            isolation: `read_committed` leaves out aborted and open transactions,
                `read_uncommitted` does not; a level or its name.
            follow: Continue with records that are appended, until `end_offset` if given.
            timeout_ms: With `follow`: end when no record has arrived for this long.
            clock: With `follow`: measures the timeout and waits; the machine's own by default.

        Returns:
            The records, in order of their offsets. An iterator that is abandoned holds nothing.

        Raises:
            InvalidOptionError: Two starts, two ends, or settings that exclude each other.
            OffsetOutOfRangeError: `start_offset` is outside the log, or records that were not
                read yet were deleted.
            CorruptDataError: A batch is damaged; all records before it were yielded.
            UnknownTopicError: The topic was deleted, or deleted and created again.

        Source: KafkaConsumer with `assign` and `seek`.
        """
        level = IsolationLevel.of(isolation)
        _check_range(start_offset, end_offset, start_timestamp, end_timestamp)
        if (follow and end_timestamp is not None) or (not follow and timeout_ms is not None):
            raise InvalidOptionError(
                "records() cannot do both",
                got="follow and end_timestamp" if follow else "timeout_ms without follow",
                expected="follow=True with timeout_ms or end_offset",
            )
        standing = DirectoryWatch(self._fs, self.path)
        self._learn()
        end = readable_end(self, level)
        start = _start(self, start_offset, start_timestamp, end)
        if follow:
            last = MAX_INT64 if end_offset is None else end_offset
            steps = _followed(
                self, start, last, level, timeout_ms, clock or SystemClock(), standing
            )
        else:
            last = _end(self, end_offset, end_timestamp, end)
            steps = (each for _, each in read_columns(self, start, last, isolation=level))
        return itertools.chain.from_iterable(map(RecordColumns.records, steps))

    def __iter__(self: "_Log") -> Iterator[Record]:
        """Iterate over all current records; see `records`."""
        return self.records()


class _Log(Readable, Protocol):
    """The class that an `IterableLog` is part of."""

    _fs: FileSystem

    def records(self) -> Iterator[Record]: ...

    def _learn(self) -> None: ...  # of records written since


def _check_range(
    start_offset: int | None,
    end_offset: int | None,
    start_timestamp: int | datetime | None,
    end_timestamp: int | datetime | None,
) -> None:
    for word, offset, time in (
        ("start", start_offset, start_timestamp),
        ("end", end_offset, end_timestamp),
    ):
        if offset is not None and time is not None:
            raise InvalidOptionError(
                f"both {word}_offset and {word}_timestamp are given",
                got=f"{offset} and {time}",
                expected="one of them",
            )


def _start(log: Readable, offset: int | None, time: int | datetime | None, end: int) -> int:
    if time is not None:
        found = log.offset_for_timestamp(epoch_ms(time))
        return end if found is None else found.offset
    if offset is None:
        return log.log_start_offset
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRangeError(
            "offset is outside the log",
            path=log.path,
            got=offset,
            expected=f"{log.log_start_offset} to {log.log_end_offset}",
        )
    return offset


def _end(log: Readable, offset: int | None, time: int | datetime | None, end: int) -> int:
    if time is not None:
        found = log.offset_for_timestamp(epoch_ms(time))
        return end if found is None else min(found.offset, end)
    return end if offset is None else min(offset, end)


def _followed(
    log: _Log,
    offset: int,
    last: int,
    isolation: IsolationLevel,
    timeout_ms: float | None,
    clock: Clock,
    standing: DirectoryWatch,
) -> Iterator[RecordColumns]:
    """Yield records up to `last` as they are appended; see `IterableLog.records`."""
    idle_since = clock.monotonic_ms()
    while offset < last:
        end, begin = min(last, readable_end(log, isolation)), offset
        for info, columns in read_columns(log, offset, end, isolation=isolation):
            yield columns
            offset = info.next_offset
        if offset > begin:
            idle_since = clock.monotonic_ms()
        else:
            idle_ms = clock.monotonic_ms() - idle_since
            if timeout_ms is not None and idle_ms >= timeout_ms:
                return
            left_ms = POLL_MS if timeout_ms is None else timeout_ms - idle_ms
            clock.sleep_ms(min(POLL_MS, left_ms))
        standing.check()
        log._learn()
