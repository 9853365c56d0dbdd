"""Reading a partition in an object store: plan the ranges, read them, check and place the batches.

Staged batches lie in the objects as a task wrote them: their offsets count from 0, and their leader
epoch is not set. Both fields lie outside a batch's checksum, so they are written after the checksum
is compared. The batches of a segment are read as they are.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.bucket.scanning import ScannedBatches, scan_segment
from streamlog.bucket.spans import epochs_of, size_between
from streamlog.bucket.state import BucketPartition, Stretch
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
from streamlog.errors import CorruptRecordError, OffsetOutOfRangeError
from streamlog.fs.local import LocalFileSystem
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.read import FetchInfo
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.builder import patch_batches
from streamlog.records.decode import Wanted, decode_pieces
from streamlog.records.layout import HEADER_SIZE_UP_TO_MAGIC, LENGTH_OFFSET, MAX_INT64
from streamlog.records.record import IsolationLevel
from streamlog.records.table import BatchTable, ScanStop
from streamlog.segment.filenames import FileSuffix
from streamlog.segment.txn_index import TXN_ENTRY_SIZE, AbortedTxn, TxnIndex
from streamlog.store.api import ObjectRange, ReadableObjects
from streamlog.topic import TopicPartition

__all__ = ["FETCH_BYTES", "BucketReader"]

FETCH_BYTES: Final = 16 << 20
_SCAN_BYTES: Final = 4 << 20


class _Found(NamedTuple):
    """Batches, where the first of them was read, and the offset after them."""

    buffer: memoryview
    table: BatchTable
    path: str
    position: int
    next_offset: int


class BucketReader:
    """A partition in an object store, as of one state of its root.

    Args:
        store: The root's objects.
        topic_partition: The partition.
        state: The partition; replace it with `advance` when the root has a newer one.
        max_decompressed_bytes: Limit of one decompressed batch.
    """

    def __init__(
        self,
        store: ReadableObjects,
        topic_partition: TopicPartition,
        state: BucketPartition,
        *,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.path = f"{store.url}/{topic_partition}"
        self.topic_partition = topic_partition
        self._store, self._state = store, state
        self._max_decompressed = max_decompressed_bytes
        self._txn_indexes: dict[str, TxnIndex] = {}

    def advance(self, state: BucketPartition) -> None:
        """Continue with a newer state of the partition."""
        self._state = state

    # ---- offsets -----------------------------------------------------------------------------
    @property
    def offsets(self) -> LogOffsets:
        """The offsets of the log."""
        start, end = self._state.log_start_offset, self._state.end_offset
        return LogOffsets.of_one_replica(start, end, end)

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._state.end_offset

    @property
    def high_watermark(self) -> int:
        """Records below it are committed: all of them."""
        return self._state.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where `read_committed` ends: nothing in an object store is an open transaction."""
        return self._state.end_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch of a record, -1 if unknown."""
        found = epochs_of(self._state).epoch_for_offset(offset)
        return -1 if found is None else found

    # ---- reading -----------------------------------------------------------------------------
    def read(
        self,
        offset: int,
        max_bytes: int = FETCH_BYTES,
        *,
        end_offset: int = MAX_INT64,
        isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        into: NDArray[np.uint8] | None = None,
    ) -> FetchInfo:
        """Read whole batches, beginning with the one that holds `offset`.

        Args:
            offset: The first offset wanted.
            max_bytes: The approximate size; at least one batch is read, or one staged extent.
            end_offset: No batch from this offset on is returned.
            isolation: Every record is committed, unless its transaction was aborted before it was
                copied here; `read_committed` leaves those out.
            into: Memory for the batches, used if it is large enough.

        Raises:
            OffsetOutOfRangeError: `offset` is below the log start or above the log end.
            CorruptRecordError: The bytes are not the batches that the root names.
            StorageError: A request failed.
        """
        is_committed = IsolationLevel.of(isolation) is IsolationLevel.READ_COMMITTED
        self._check_offset(offset)
        offsets = self.offsets
        found = self._find(offset, min(end_offset, offsets.end), max_bytes, into)
        aborted: list[AbortedTxn] = []
        if is_committed and found.table.is_transactional.any():
            aborted = self.aborted_between(offset, found.next_offset)
        return FetchInfo(
            offset=offset,
            buffer=found.buffer,
            table=found.table,
            next_offset=found.next_offset,
            aborted=tuple(aborted),
            end_offset=end_offset,
            offsets=offsets,
            last_stable_offset=offsets.end,
            path=found.path,
            position=found.position,
            max_decompressed=self._max_decompressed,
        )

    def _check_offset(self, offset: int) -> None:
        offsets = self.offsets
        if not offsets.start <= offset <= offsets.end:
            raise OffsetOutOfRangeError(
                "offset is outside the log",
                path=self.path,
                got=offset,
                expected=f"{offsets.start} to {offsets.end}",
            )

    def stretches(self, start_offset: int, end_offset: int) -> tuple[Stretch, ...]:
        """Return the stretches that may hold records between two offsets.

        Raises:
            OffsetOutOfRangeError: `start_offset` is below the log start or above the log end.
        """
        if start_offset >= end_offset:
            return ()
        self._check_offset(start_offset)
        found = self._state.stretches[self._state.at(start_offset) :]
        return tuple(each for each in found if each.base_offset < end_offset)

    def scan(
        self, segment: Stretch, start_offset: int, end_offset: int, pool: Executor
    ) -> Iterator[ScannedBatches]:
        """Yield batches of a segment; see `scan_segment`."""
        return scan_segment(self._store, segment, start_offset, end_offset, pool)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that may overlap with offsets from `start` up to `end`.

        Raises:
            CorruptIndexError: A transaction index is damaged.
            StorageError: A request failed.
        """
        found: list[AbortedTxn] = []
        for stretch in self._state.stretches[self._state.at(start_offset) :]:
            if stretch.transactions > 0:
                search = self._txn_index(stretch).collect(start_offset, end_offset)
                found += search.aborted
                if search.is_complete:
                    break
        return found

    def _txn_index(self, stretch: Stretch) -> TxnIndex:
        """Return the transaction index of a segment, requested once."""
        known = self._txn_indexes.get(stretch.key)
        if known is None:
            key = stretch.key.removesuffix(FileSuffix.LOG.value) + FileSuffix.TXN_INDEX.value
            content = np.empty(stretch.transactions * TXN_ENTRY_SIZE, np.uint8)
            self._store.read_into([ObjectRange(key, 0, len(content))], content)
            path = f"{self._store.url}/{key}"
            known = TxnIndex(LocalFileSystem(), path, stretch.base_offset)
            known.parse(content.tobytes())
            self._txn_indexes[stretch.key] = known
        return known

    def _find(
        self, offset: int, upper: int, max_bytes: int, into: NDArray[np.uint8] | None
    ) -> _Found:
        """Read the first batches from an offset on that begin below a bound."""
        at = self._state.at(offset)
        while offset < upper and at < len(self._state.stretches):
            chosen = self._choose(at, upper, max_bytes)
            if not chosen:
                break
            if chosen[0].is_staged:
                buffer, table = self._read_staged(chosen, into)
                position = chosen[0].position
            else:
                buffer, table, position = self._read_segment(chosen[0], offset, max_bytes, into)
            first = int(np.searchsorted(table.last_offset, offset))
            stop = int(np.searchsorted(table.base_offset, upper))
            if first < stop:
                table = table.slice(first, stop)
                path, next_offset = self._path(chosen[0]), int(table.last_offset[-1]) + 1
                view = memoryview(buffer)[: table.end]
                return _Found(view, table, path, position, next_offset)
            at += len(chosen)  # compaction left nothing from the offset on
        return _Found(memoryview(b""), BatchTable.empty(), "", 0, max(offset, upper))

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return the approximate size in bytes of the records between two offsets."""
        return size_between(self._state, start_offset, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp is at least `timestamp` (ms), or None.

        Source: UnifiedLog.fetchOffsetByTimestamp.
        """
        state = self._state
        for stretch in state.stretches:
            if stretch.max_timestamp < timestamp or stretch.end_offset <= state.log_start_offset:
                continue
            offset = max(stretch.base_offset, state.log_start_offset)
            while offset < stretch.end_offset:
                info = self.read(offset, _SCAN_BYTES, end_offset=stretch.end_offset)
                late = info.table.select(info.table.max_timestamp >= timestamp)
                wanted = Wanted(columns=frozenset(), start_offset=offset)
                for _, columns in decode_pieces(info.buffer, late, wanted, path=info.path):
                    for row in np.flatnonzero(columns.timestamp >= timestamp)[:1].tolist():
                        return OffsetAndTimestamp(
                            int(columns.offset[row]), int(columns.timestamp[row])
                        )
                offset = info.next_offset
        return None

    # ---- ranges ------------------------------------------------------------------------------
    def _choose(self, at: int, upper: int, max_bytes: int) -> list[Stretch]:
        """Return the stretch at an index, with the staged ones after it that fit."""
        chosen: list[Stretch] = []
        size = 0
        for stretch in self._state.stretches[at:]:
            if stretch.base_offset >= upper:
                break
            size += stretch.size
            if chosen and (not stretch.is_staged or size > max_bytes):
                break
            chosen.append(stretch)
            if not stretch.is_staged:
                break
        return chosen

    def _read_staged(
        self, stretches: Sequence[Stretch], into: NDArray[np.uint8] | None
    ) -> tuple[NDArray[np.uint8], BatchTable]:
        """Read staged extents, check their batches, and write offsets and epochs into them."""
        buffer = _room(sum(stretch.size for stretch in stretches), into)
        ranges = [ObjectRange(each.key, each.position, each.size) for each in stretches]
        self._store.read_into(ranges, buffer)
        tables, start = [], 0
        for stretch in stretches:
            part = buffer[start : start + stretch.size]
            table = self._check_staged(stretch, part)
            placed = patch_batches(
                part, table, base_offset=stretch.base_offset, leader_epoch=stretch.leader_epoch
            )
            tables.append(placed.moved(start))
            start += stretch.size
        return buffer, BatchTable.concatenate(tables)

    def _check_staged(self, stretch: Stretch, part: NDArray[np.uint8]) -> BatchTable:
        table, stop, consumed = scan_batches(part)
        if stop is not ScanStop.END:
            raise self._damaged(stretch, consumed, stop.name.lower().replace("_", " "), "batches")
        self._check_crc(stretch, stretch.position, part, table)
        records = int((table.last_offset - table.base_offset + 1).sum())
        if records != stretch.end_offset - stretch.base_offset:
            expected = stretch.end_offset - stretch.base_offset
            raise self._damaged(stretch, 0, f"{records} records", f"{expected}")
        return table

    def _read_segment(
        self, stretch: Stretch, offset: int, max_bytes: int, into: NDArray[np.uint8] | None
    ) -> tuple[NDArray[np.uint8], BatchTable, int]:
        """Read a part of a segment: from the last known position up to `offset` on."""
        position = max((at for point, at in stretch.points if point <= offset), default=0)
        ends = [at for point, at in stretch.points if point > offset]
        size = min(max(max_bytes, (ends[0] - position) if ends else 0), stretch.size - position)
        while True:
            buffer = _room(size, into)
            self._store.read_into([ObjectRange(stretch.key, position, size)], buffer)
            table, stop, consumed = scan_batches(buffer)
            if stop not in (ScanStop.END, ScanStop.PARTIAL) and not len(table):
                raise self._damaged(stretch, position, stop.name.lower(), "a batch")
            self._check_crc(stretch, position, buffer, table)
            if len(table) and int(table.last_offset[-1]) >= offset:
                return buffer, table, position
            at_end = position + consumed >= stretch.size
            if at_end or (stop is ScanStop.END and consumed == 0):
                return buffer, table, position
            position += consumed
            size = min(max(max_bytes, _batch_size(buffer[consumed:])), stretch.size - position)

    def _check_crc(
        self, stretch: Stretch, position: int, buffer: NDArray[np.uint8], table: BatchTable
    ) -> None:
        good = check_crc(buffer, table)
        if good < len(table):
            raise self._damaged(
                stretch,
                position - stretch.position + int(table.position[good]),
                "a batch that fails its checksum",
                f"{int(table.crc[good]):#010x}",
            )

    def _path(self, stretch: Stretch) -> str:
        return f"{self._store.url}/{stretch.key}"

    def _damaged(
        self, stretch: Stretch, position: int, got: str, expected: str
    ) -> CorruptRecordError:
        return CorruptRecordError(
            "object does not hold the batches that the root names",
            path=self._path(stretch),
            position=stretch.position + position,
            offset=stretch.base_offset,
            got=got,
            expected=expected,
        )


def _room(size: int, into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    """Return memory for a read: the caller's, if it is large enough."""
    return np.empty(size, np.uint8) if into is None or len(into) < size else into[:size]


def _batch_size(head: NDArray[np.uint8]) -> int:
    """Return the size of the batch that begins here, as far as its header can be read."""
    if len(head) < HEADER_SIZE_UP_TO_MAGIC:
        return HEADER_SIZE_UP_TO_MAGIC
    length = int.from_bytes(head[LENGTH_OFFSET : LENGTH_OFFSET + 4].tobytes(), "big")
    return LENGTH_OFFSET + 4 + length
