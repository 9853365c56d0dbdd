"""Reading planned ranges out of an object store.

A range names the objects that hold its records, so no journal is read. What a task needs of many
small objects is requested at once: a task takes one round trip, however many partitions it reads.
Of a large range the next part is on its way while this one is decoded.

Maintenance replaces objects and deletes the old ones after a delay. A task that comes later than
that asks the journal where the records are now. Only then are they lost, or not.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.arrow.losses import (
    LossReporter,
    made_again,
    partitions_deleted,
    start_reset,
    unreadable,
)
from streamlog.arrow.planned import PlannedRange
from streamlog.bucket.places import shared_store
from streamlog.bucket.reading import FETCH_BYTES, BucketReader
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.spans import narrowed
from streamlog.bucket.state import BucketPartition
from streamlog.errors import CorruptRecordError, FileMissingError
from streamlog.partition.read import FetchInfo
from streamlog.records.record import IsolationLevel
from streamlog.store.api import ObjectRange, ObjectStore, ReadableObjects

__all__ = ["ReadBuffers", "read_objects"]

_SEARCHES: Final = 3  # in the journal, for the objects of one range

_logger = logging.getLogger(__name__)


def read_objects(
    parts: Sequence[PlannedRange],
    *,
    reporter: LossReporter,
    max_decompressed_bytes: int | None,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    store: ObjectStore | None = None,
    buffers: "ReadBuffers | None" = None,
) -> Iterator[tuple[PlannedRange, FetchInfo]]:
    """Yield the records of ranges, one range after another.

    Args:
        parts: The ranges, all of one root.
        reporter: Reports records that no longer exist.
        max_decompressed_bytes: Limit of one decompressed batch; None: that of its topic.
        isolation: Whether aborted transactions are left out.
        store: The root's objects; by default those of its URL.
        buffers: Memory to share with other calls.

    Yields:
        A range and some of its records, in memory that is used again after the next ones.

    Raises:
        DataLossError: Planned records no longer exist, if the reporter fails on that.
        CorruptDataError: A batch is damaged; the batches before it were yielded.
        StorageError: A request failed.
    """
    objects = store or shared_store(parts[0].directories[0])
    ahead = _ReadAhead(objects, [_whole(part) for part in parts])
    with ThreadPoolExecutor(1) as pool, (buffers or ReadBuffers()).lend() as lent:
        for part in parts:
            reading = _ObjectReading(part, reporter, max_decompressed_bytes, isolation, pool, lent)
            for info in reading.reads(objects, ahead):
                yield part, info


class _ObjectReading:
    """Reads one range."""

    def __init__(
        self,
        part: PlannedRange,
        reporter: LossReporter,
        max_decompressed_bytes: int | None,
        isolation: IsolationLevel,
        pool: ThreadPoolExecutor,
        buffers: "_TwoBuffers",
    ) -> None:
        self._part, self._reporter, self._pool = part, reporter, pool
        self._buffers = buffers
        self._isolation = isolation
        self._limit = max_decompressed_bytes or part.max_decompressed_bytes
        self._offset = part.start_offset

    def reads(self, store: ObjectStore, ahead: "_ReadAhead") -> Iterator[FetchInfo]:
        """Yield the records of the range, read by read."""
        part, state = self._part, _state_of(self._part)
        for _ in range(_SEARCHES):
            try:
                yield from self._read(ahead, state)
                break
            except FileMissingError as error:
                _logger.info("looking for the records of %s: %s", part.topic_partition, error)
                found = self._find(store)
                if found is None:
                    return
                state = found
        else:
            yield from self._read(ahead, state)
        if self._offset < part.end_offset:
            self._reporter.report([unreadable(part.topic_partition, self._offset, part.end_offset)])

    def _find(self, store: ObjectStore) -> BucketPartition | None:
        """Return where the rest of the range is now; report what is gone."""
        part, partition = self._part, self._part.topic_partition
        state = BucketRoot(store).refresh()
        topic, at = state.topics.get(part.topic), state.partitions.get(partition)
        if topic is None or at is None:
            self._reporter.report([partitions_deleted([partition])])
            return None
        if part.topic_id not in ("", topic.topic_id):
            self._reporter.report([made_again(part.topic)])
            return None
        if self._offset < at.log_start_offset:
            self._reporter.report([start_reset(partition, self._offset, at.log_start_offset)])
            self._offset = at.log_start_offset
        return narrowed(at, self._offset, min(part.end_offset, at.end_offset))

    def _read(self, store: ReadableObjects, state: BucketPartition) -> Iterator[FetchInfo]:
        """Yield the records that a state has, each read while the one before is decoded."""
        reader = BucketReader(
            store, self._part.topic_partition, state, max_decompressed_bytes=self._limit
        )
        end = state.end_offset
        next_read: Future[FetchInfo] | None = None
        while self._offset < end:
            try:
                info = (next_read or self._begin(reader, self._offset, end)).result()
            except CorruptRecordError:
                yield from self._read_up_to_damage(reader, end)
                raise
            next_read = None
            if info.next_offset < end:
                next_read = self._begin(reader, info.next_offset, end)
            yield info
            self._offset = info.next_offset

    def _begin(self, reader: BucketReader, offset: int, end: int) -> "Future[FetchInfo]":
        into = self._buffers.next_one(reader.size_between(offset, end))
        return self._pool.submit(
            reader.read, offset, end_offset=end, isolation=self._isolation, into=into
        )

    def _read_up_to_damage(self, reader: BucketReader, end: int) -> Iterator[FetchInfo]:
        """Yield the records before a damaged batch, as little at a time as possible."""
        while self._offset < end:
            try:
                info = reader.read(self._offset, 1, end_offset=end, isolation=self._isolation)
            except CorruptRecordError:
                return
            yield info
            self._offset = info.next_offset


class ReadBuffers:
    """Memory for reads, used again by one range after another; safe for several threads.

    Fresh memory costs as much as the copy into it: the kernel clears each page on its first use.
    """

    def __init__(self) -> None:
        self._idle: list[_TwoBuffers] = []

    @contextmanager
    def lend(self) -> Iterator["_TwoBuffers"]:
        """Lend memory that no other caller has meanwhile."""
        try:
            lent = self._idle.pop()
        except IndexError:
            lent = _TwoBuffers()
        yield lent
        self._idle.append(lent)


class _TwoBuffers:
    """Two buffers in turn: one is filled while the records in the other one are decoded."""

    def __init__(self) -> None:
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def next_one(self, wanted: int) -> NDArray[np.uint8]:
        """Return the buffer that was not given out last, for so many bytes or one read."""
        self._buffers.reverse()
        size = min(wanted, FETCH_BYTES)
        if len(self._buffers[0]) < size:
            self._buffers[0] = np.empty(size, np.uint8)
        return self._buffers[0]


class _ReadAhead:
    """A store that requests small ranges which will be needed all at once.

    Args:
        store: The store.
        wanted: The ranges of each part; parts that are too large together are left out.
    """

    def __init__(self, store: ReadableObjects, wanted: Iterable[Sequence[ObjectRange]]) -> None:
        self._store, self.url = store, store.url
        self._wanted: list[ObjectRange] = []
        self._held: dict[ObjectRange, NDArray[np.uint8]] = {}
        size = 0
        for ranges in wanted:
            size += sum(each.size for each in ranges)
            if size > FETCH_BYTES:
                break
            self._wanted += ranges

    def read_into(self, ranges: Sequence[ObjectRange], target: NDArray[np.uint8]) -> None:
        """See `ObjectStore.read_into`; each range that was read ahead is given out once."""
        if self._wanted and ranges[0] == self._wanted[0]:
            self._fetch(len(ranges))
        if not all(each in self._held for each in ranges):
            self._store.read_into(ranges, target)
            return
        at = 0
        for each in ranges:
            target[at : at + each.size] = self._held.pop(each)
            at += each.size

    def _fetch(self, least: int) -> None:
        wanted, self._wanted = self._wanted, []
        if len(wanted) <= least:
            return  # nothing is gained
        buffer = np.empty(sum(each.size for each in wanted), np.uint8)
        try:
            self._store.read_into(wanted, buffer)
        except FileMissingError:
            return  # the part that misses it will know what to do
        at = 0
        for each in wanted:
            self._held[each] = buffer[at : at + each.size]
            at += each.size


def _whole(part: PlannedRange) -> list[ObjectRange]:
    """Return the ranges of staged batches; a reader of a segment may start inside of it."""
    return [
        ObjectRange(each.key, each.position, each.size) for each in part.stretches if each.is_staged
    ]


def _state_of(part: PlannedRange) -> BucketPartition:
    return BucketPartition(
        log_start_offset=part.start_offset, end_offset=part.end_offset, stretches=part.stretches
    )
