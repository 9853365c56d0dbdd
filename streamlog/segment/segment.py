"""The files of one base offset together: log, offset index, time index, transaction index.

A segment opened for reading never touches the disk but to read; where an index is missing or
does not fit, it scans and keeps what it learns in memory. A segment opened for writing owns its
files. Reading is safe from several threads and goes on after the files were deleted.
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from streamlog.config import LogConfig
from streamlog.errors import CorruptIndexError, CorruptRecordError, FileMissingError
from streamlog.fs.api import Buffer, File, FileSystem, OpenMode
from streamlog.records.batch import BatchScan, BatchTable, ScanStop, check_crc, scan_batches
from streamlog.records.columns import decode_columns
from streamlog.records.layout import BATCH_HEADER, LOG_OVERHEAD, MAX_INT32, RECORD_BATCH_OVERHEAD
from streamlog.segment.filenames import (
    FileSuffix,
    SegmentSuffix,
    log_file_name,
    segment_file_name,
    torn_file_name,
)
from streamlog.segment.offset_index import OffsetIndex
from streamlog.segment.recovery import Facts, RecoveryReport, Verdict, decide, find_later_batch
from streamlog.segment.time_index import TimeIndex, TimestampOffset
from streamlog.segment.txn_index import AbortedTxn, TxnIndex

__all__ = ["BatchPosition", "RollReason", "Segment"]

_logger = logging.getLogger(__name__)

_CHUNK: Final = 1 << 20  # measured: larger reads gain nothing
_LOOKUP_CHUNK: Final = 16 << 10  # a few index intervals: one read finds most batches
_TORN_FILES_MAX: Final = 8

BatchSink = Callable[[Buffer, BatchTable], None]


class RollReason(Enum):
    """Why a segment must not take an append any more.

    Source: LogSegment.shouldRoll.
    """

    SIZE = "segment.bytes"
    TIME = "segment.ms"
    OFFSET_INDEX_FULL = "offset index full"
    TIME_INDEX_FULL = "time index full"
    OFFSET_RANGE = "relative offset above 2³¹−1"


class BatchPosition(NamedTuple):
    """Where a batch lies: its base offset, first byte and size."""

    base_offset: int
    position: int
    size: int


class Segment:
    """One segment; see `Segment.create` and `Segment.open`."""

    __slots__ = (
        "_file",
        "_first_batch_timestamp",
        "_fs",
        "_known_end",
        "_loaded",
        "_max",
        "_next_offset",
        "_offset_index",
        "_size",
        "_time_index",
        "_txn_index",
        "base_offset",
        "config",
        "created_ms",
        "directory",
        "path",
        "writable",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        writable: bool,
        created_ms: int,
    ) -> None:
        self._fs = fs
        self.directory, self.base_offset = directory, base_offset
        self.path = f"{directory}/{log_file_name(base_offset)}"
        self.config, self.writable, self.created_ms = config, writable, created_ms
        self._file: File | None = None
        self._size: int | None = None
        self._next_offset: int | None = None
        self._first_batch_timestamp: int | None = None
        self._max = TimestampOffset(-1, base_offset)
        self._known_end = -1
        self._loaded = False
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base_offset: int, *, config: LogConfig, now_ms: int
    ) -> "Segment":
        """Make the files of a new, empty segment; an empty one of the same base is made anew.

        Raises:
            StorageError: A file cannot be made.
        """
        segment = cls(fs, directory, base_offset, config=config, writable=True, created_ms=now_ms)
        segment._file = fs.open(segment.path, OpenMode.CREATE_OR_WRITE)
        segment._file.truncate(0)
        segment._size, segment._next_offset = 0, base_offset
        segment._make_indexes()
        segment._store_indexes()
        return segment

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        writable: bool,
    ) -> "Segment":
        """Return a segment whose files are there; they are opened when first needed.

        Args:
            fs: Where the files are.
            directory: The partition's directory.
            base_offset: The segment's base offset.
            config: The topic's settings.
            writable: Whether it may be appended to, cut, and have its indexes rebuilt.
        """
        return cls(fs, directory, base_offset, config=config, writable=writable, created_ms=0)

    # ---- files -------------------------------------------------------------------------------
    @property
    def file(self) -> File:
        """The open log file."""
        if self._file is None:
            mode = OpenMode.WRITE if self.writable else OpenMode.READ
            self._file = self._fs.open(self.path, mode)
            if self.created_ms == 0:
                self.created_ms = self._file.stat().mtime_ms
        return self._file

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, checked against the log; rebuilt where it does not fit."""
        self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, checked; rebuilt where it does not fit."""
        self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def txn_index(self) -> TxnIndex:
        """The aborted transactions of this segment."""
        if self._txn_index is None:
            path = self._path_of(FileSuffix.TXN_INDEX)
            self._txn_index = TxnIndex(self._fs, path, self.base_offset)
            self._txn_index.load(log_size=self._file_size())
        return self._txn_index

    @property
    def needs_recovery(self) -> bool:
        """Whether the offset index's file is missing, so that the segment must be scanned."""
        return self._fs.stat(self._path_of(FileSuffix.OFFSET_INDEX)) is None

    def _path_of(self, kind: FileSuffix, suffix: SegmentSuffix = SegmentSuffix.NONE) -> str:
        return f"{self.directory}/{segment_file_name(self.base_offset, kind, suffix)}"

    def _make_indexes(self) -> None:
        """Have two empty indexes in memory."""
        max_size, base = self.config.segment_index_bytes, self.base_offset
        self._offset_index = OffsetIndex(
            self._fs, self._path_of(FileSuffix.OFFSET_INDEX), base, max_size=max_size
        )
        self._time_index = TimeIndex(
            self._fs, self._path_of(FileSuffix.TIME_INDEX), base, max_size=max_size
        )
        self._max = TimestampOffset(-1, base)

    def _load_indexes(self) -> None:
        if self._offset_index is not None:
            return
        self._make_indexes()
        try:
            self._offset_index.load(log_size=self._file_size())
            self._time_index.load(log_size=self._file_size())
        except (CorruptIndexError, FileMissingError) as error:
            self._rebuild_indexes(str(error))

    def _file_size(self) -> int:
        return self.file.stat().size if self._size is None else self._size

    def _store_indexes(self) -> None:
        """Bring the indexes' files up to date; never those of a segment that is only read."""
        if self.writable:
            self.offset_index.store()
            self.time_index.store()
            self.offset_index.file.create()
            self.time_index.file.create()

    def _rebuild_indexes(self, why: str) -> None:
        """Make both indexes anew from the log, in memory and (where writable) on disk."""
        _logger.info("rebuilding the indexes of %s: %s", self.path, why)
        self._make_indexes()
        position, size = 0, self._file_size()
        while position < size:
            scan = self.scan_from(position, end=size)
            if len(scan.table) == 0:
                break
            self._index(scan.table.moved(position))
            position += scan.consumed
        self._store_indexes()

    # ---- what it knows -----------------------------------------------------------------------
    @property
    def size(self) -> int:
        """Bytes of whole, sound batches."""
        if self._size is None:
            if self.writable:
                self._size = self.file.stat().size
            else:
                self._load_tail()
        assert self._size is not None
        return self._size

    @property
    def is_empty(self) -> bool:
        """Whether it holds no batch."""
        return self.size == 0

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, in ms; -1 for none."""
        self._load_tail()
        return self._max.timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the batch that holds the largest timestamp."""
        self._load_tail()
        return self._max.offset

    @property
    def first_batch_timestamp(self) -> int | None:
        """The largest timestamp of the first batch; None in an empty segment."""
        if self._first_batch_timestamp is None and not self.is_empty:
            header = BATCH_HEADER.unpack(self.file.pread(RECORD_BATCH_OVERHEAD, 0))
            self._first_batch_timestamp = int(header[8])
        return self._first_batch_timestamp

    def next_offset(self) -> int:
        """Return the offset behind the last batch, the base offset where there is none."""
        self._load_tail()
        assert self._next_offset is not None
        return self._next_offset

    def _load_tail(self) -> None:
        """Read from the last index entry on what the indexes do not tell."""
        if self._loaded or (self._next_offset is not None and self._size is not None):
            return
        position = self._trusted_position(_last_position(self.offset_index))
        self._max = max(self._max, self.time_index.last_entry)
        self._next_offset = self.base_offset
        limit = self._size if self._size is not None else self.file.stat().size
        end = self._take_in(position, limit, index=False)
        self._size = end if not self.writable else limit
        self._known_end = limit
        self._loaded = True

    def _trusted_position(self, position: int) -> int:
        """Return `position` if a batch of this segment starts there, else 0."""
        if position == 0:
            return 0
        header = self.file.pread(RECORD_BATCH_OVERHEAD, position)
        if len(header) == RECORD_BATCH_OVERHEAD:
            fields = BATCH_HEADER.unpack(header)
            if fields[3] == 2 and fields[0] >= self.base_offset and fields[6] >= 0:
                return position
        return 0

    def _take_in(self, position: int, limit: int, *, index: bool) -> int:
        """Scan sound batches from `position`, remember what they tell; return where they end."""
        while position < limit:
            scan = self.scan_from(position, end=limit)
            table = scan.table
            if len(table) == 0:
                break
            if index:
                self._index(table.moved(position))
            else:
                self._note_timestamps(table)
            self._next_offset = int(table.last_offset[-1]) + 1
            position += scan.consumed
        return position

    def extend(self) -> bool:
        """Look for batches written since; for readers. Returns whether there were any."""
        self._load_tail()
        assert self._size is not None
        end = self.file.stat().size
        if end == self._known_end:
            return False
        before = self._size
        self._size = self._take_in(before, end, index=True)
        self._known_end = end
        return self._size > before

    # ---- append ------------------------------------------------------------------------------
    def append(self, buffer: Buffer, table: BatchTable) -> None:
        """Write whole batches behind the last one and index them.

        Args:
            buffer: The batches, from its first byte on.
            table: Their headers.

        Raises:
            StorageError: The disk refused; the file may hold a part of them, see
                `cut_torn_tail`.
        """
        self._load_tail()
        position = self.size
        self.file.pwrite(buffer, position)
        self._index(table.moved(position) if position else table)
        self._size = position + int(table.position[-1] + table.size[-1])
        self._next_offset = int(table.last_offset[-1]) + 1
        if self._first_batch_timestamp is None and position == 0:
            self._first_batch_timestamp = int(table.max_timestamp[0])

    def _index(self, table: BatchTable) -> None:
        """Add index entries for batches whose positions are those in the file.

        An entry falls due at a batch that starts more than `index.interval.bytes` behind the
        batch of the last entry. Source: LogSegment.append since Kafka 4.0 (KAFKA-806).
        """
        offset_index, time_index = self.offset_index, self.time_index
        interval = self.config.index_interval_bytes
        due = _last_position(offset_index) + interval
        last_position = int(table.position[-1])
        if last_position <= due:
            self._note_timestamps(table)
            return
        rows = zip(
            table.position.tolist(),
            table.last_offset.tolist(),
            table.max_timestamp.tolist(),
            strict=True,
        )
        for position, last_offset, timestamp in rows:
            if timestamp > self._max.timestamp:
                self._max = TimestampOffset(timestamp, last_offset)
            if position > due and not offset_index.is_full:
                offset_index.append(last_offset, position)
                if not time_index.is_full:
                    time_index.maybe_append(*self._max)
                due = position + interval
        if self.writable:
            offset_index.store()
            time_index.store()

    def _note_timestamps(self, table: BatchTable) -> None:
        largest = int(table.max_timestamp.argmax())
        timestamp = int(table.max_timestamp[largest])
        if timestamp > self._max.timestamp:
            self._max = TimestampOffset(timestamp, int(table.last_offset[largest]))

    def append_aborted(self, aborted: AbortedTxn) -> None:
        """Note an aborted transaction whose marker lies in this segment."""
        self.txn_index.append(aborted)

    def roll_reason(
        self,
        *,
        append_size: int,
        append_max_timestamp: int,
        append_last_offset: int,
        segment_ms: int,
        jitter_ms: int,
        now_ms: int,
    ) -> RollReason | None:
        """Tell why an append must go to a new segment, None where it may go here.

        Args:
            append_size: Its bytes.
            append_max_timestamp: Its largest timestamp, in ms.
            append_last_offset: Its last offset.
            segment_ms: How long a segment takes appends.
            jitter_ms: How much sooner this one closes.
            now_ms: The time; used only where the first batch has no timestamp.

        Source: LogSegment.shouldRoll.
        """
        if self.size > self.config.effective_segment_bytes - append_size:
            return RollReason.SIZE
        first = self.first_batch_timestamp
        if first is not None:
            waited = append_max_timestamp - first if first >= 0 else now_ms - self.created_ms
            if waited > segment_ms - jitter_ms:
                return RollReason.TIME
        if self.offset_index.is_full:
            return RollReason.OFFSET_INDEX_FULL
        if self.time_index.is_full:
            return RollReason.TIME_INDEX_FULL
        if not 0 <= append_last_offset - self.base_offset <= MAX_INT32:
            return RollReason.OFFSET_RANGE
        return None

    def seal(self) -> None:
        """Give the time index its last entry: the segment will not grow for now."""
        self._load_tail()
        if self._max.timestamp >= 0:
            self.time_index.maybe_append(*self._max, skip_full_check=True)
        self._store_indexes()

    # ---- read --------------------------------------------------------------------------------
    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of sound batches from `position` on."""
        return self.file.pread(max(0, min(size, self.size - position)), position)

    def translate_offset(self, offset: int) -> BatchPosition | None:
        """Return the first batch whose last offset is at least `offset`, None for none.

        Source: LogSegment.translateOffset.
        """
        if offset >= self.next_offset():
            return None
        entry = self.offset_index.lookup(offset)
        position = 0 if entry is None else entry.position
        if entry is not None and self._base_offset_at(position) > entry.offset:
            self._rebuild_indexes(f"{entry} points to another batch")
            entry = self.offset_index.lookup(offset)
            position = 0 if entry is None else entry.position
        while position < self.size:
            chunk = self.read(position, _LOOKUP_CHUNK)
            table = scan_batches(chunk).table
            hits = np.flatnonzero(table.last_offset >= offset)
            if hits.size:
                at = int(hits[0])
                return BatchPosition(
                    int(table.base_offset[at]),
                    position + int(table.position[at]),
                    int(table.size[at]),
                )
            position += _end_of(table)
            found = self._header_at(position)
            if found is None:
                return None
            batch, last_offset = found
            if last_offset >= offset:
                return batch
            position += batch.size
        return None

    def _base_offset_at(self, position: int) -> int:
        found = self._header_at(position)
        return 2**63 - 1 if found is None else found[0].base_offset

    def _header_at(self, position: int) -> tuple[BatchPosition, int] | None:
        """Return the batch that starts at `position` and its last offset, None for no batch."""
        header = self.read(position, RECORD_BATCH_OVERHEAD)
        if len(header) < RECORD_BATCH_OVERHEAD:
            return None
        fields = BATCH_HEADER.unpack(header)
        if fields[3] != 2 or fields[0] < self.base_offset or fields[6] < 0:
            return None
        return BatchPosition(fields[0], position, fields[1] + LOG_OVERHEAD), fields[0] + fields[6]

    def scan_from(self, position: int, *, end: int | None = None) -> BatchScan:
        """Return the sound batches of about a mebibyte from `position` on; checksums checked."""
        end = self.size if end is None else end
        chunk = self.file.pread(max(0, min(_CHUNK, end - position)), position)
        scan = scan_batches(chunk)
        if len(scan.table) == 0 and scan.stop is ScanStop.PARTIAL and len(chunk) >= LOG_OVERHEAD:
            size = LOG_OVERHEAD + int.from_bytes(chunk[8:LOG_OVERHEAD], "big")
            if len(chunk) < size <= end - position:
                chunk = self.file.pread(size, position)
                scan = scan_batches(chunk)
        good = check_crc(chunk, scan.table)
        if good < len(scan.table):
            table = scan.table.slice(0, good)
            return BatchScan(table, ScanStop.BAD_HEADER, int(scan.table.position[good]))
        return scan

    def approximate_position(self, offset: int) -> int:
        """Return about where `offset` lies, as the index tells; the size where it is above all."""
        if offset >= self.next_offset():
            return self.size
        entry = self.offset_index.lookup(offset)
        return 0 if entry is None else entry.position

    def offset_at(self, position: int) -> int | None:
        """Return the offset behind the indexed batch nearest below `position`, None for none."""
        entry = self.offset_index.lookup_position(position)
        return None if entry is None else entry.offset + 1

    def offset_for_timestamp(self, timestamp: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record from `start_offset` on whose timestamp is at least `timestamp`.

        Source: LogSegment.findOffsetByTimestamp.
        """
        indexed = self.time_index.lookup(timestamp).offset
        begin = self.translate_offset(max(indexed, start_offset, self.base_offset))
        position = self.size if begin is None else begin.position
        while position < self.size:
            scan = self.scan_from(position)
            if len(scan.table) == 0:
                return None
            chunk = self.read(position, scan.consumed)
            for at in np.flatnonzero(scan.table.max_timestamp >= timestamp).tolist():
                records = decode_columns(
                    chunk,
                    scan.table.slice(at, at + 1),
                    columns=(),
                    start_offset=start_offset,
                    drop_control=False,
                    path=self.path,
                    position=position,
                )
                hits = np.flatnonzero(records.timestamp >= timestamp)
                if hits.size:
                    hit = int(hits[0])
                    return TimestampOffset(int(records.timestamp[hit]), int(records.offset[hit]))
            position += scan.consumed
        return None

    # ---- recovery ----------------------------------------------------------------------------
    def recover(
        self,
        *,
        durable_offset: int | None,
        is_last: bool,
        on_batch: BatchSink | None = None,
        known_size: int = 0,
    ) -> RecoveryReport:
        """Scan all batches, rebuild the indexes, cut a torn tail, refuse damage.

        Args:
            durable_offset: The durable mark: everything below it was synced; None unknown.
            is_last: Whether no other segment follows.
            on_batch: Called with each chunk of sound batches.
            known_size: Bytes that are known to be sound; the scan starts there.

        Returns:
            What was found and done.

        Raises:
            CorruptRecordError: Damage, by the table of `streamlog.segment.recovery`.

        Source: LogSegment.recover.
        """
        limit = self.file.stat().size
        if known_size and known_size <= limit:
            self._size = known_size
            self._loaded = False
            self._load_tail()
        else:
            known_size, self._size, self._next_offset = 0, 0, self.base_offset
            self._make_indexes()
        self._loaded = True
        batches, position, epoch = 0, known_size, -1
        while position < limit:
            scan = self.scan_from(position, end=limit)
            table = scan.table
            sound = _in_order(table, int(self._next_offset or 0), epoch)
            if sound:
                table = table.slice(0, sound)
                self._index(table.moved(position))
                if on_batch is not None:
                    on_batch(self.file.pread(scan.consumed, position), table)
                self._next_offset = int(table.last_offset[-1]) + 1
                epoch = int(table.leader_epoch[-1])
                batches += sound
                position += _end_of(table)
            if sound < len(scan.table) or sound == 0:
                break
        self._size = position
        self._known_end = position
        self._store_indexes()
        return self._end_recovery(batches, limit, durable_offset, is_last=is_last)

    def _end_recovery(
        self, batches: int, limit: int, durable_offset: int | None, *, is_last: bool
    ) -> RecoveryReport:
        assert self._size is not None and self._next_offset is not None
        tail_size = limit - self._size
        tail = self.file.pread(tail_size, self._size) if tail_size else b""
        later = find_later_batch(tail, self._next_offset) if tail else None
        synced = durable_offset is not None and self._next_offset < durable_offset
        case = decide(
            Facts(
                at_end=not tail,
                synced=bool(tail) and synced,
                followed=later is not None,
                last=is_last,
            )
        )
        if case.verdict is Verdict.REFUSE:
            raise CorruptRecordError(
                f"damaged records that were acknowledged (case {case.name})",
                path=self.path,
                position=self._size,
                offset=self._next_offset,
                got="no sound batch",
                expected=f"the batch of offset {self._next_offset}",
                hint="restore the file from a copy; streamlog never cuts acknowledged records",
            )
        kept_path = self._keep_aside(tail) if case.verdict is Verdict.CUT else ""
        if tail:
            self.file.truncate(self._size)
        self._known_end = self._size
        return RecoveryReport(batches, self._next_offset, len(tail), kept_path)

    def _keep_aside(self, tail: bytes) -> str:
        for number in range(_TORN_FILES_MAX):
            path = f"{self.directory}/{torn_file_name(log_file_name(self.base_offset), number)}"
            if self._fs.stat(path) is None:
                with self._fs.open(path, OpenMode.CREATE) as kept:
                    kept.pwrite(tail, 0)
                    kept.sync()
                return path
        _logger.warning("%s: %d torn tails are kept already", self.path, _TORN_FILES_MAX)
        return ""

    def cut_torn_tail(self) -> int:
        """After a failed append: keep the whole batches that stand, cut the rest.

        Returns:
            How many batches of the append stand.
        """
        before = self.size
        end = self.file.stat().size
        stands = 0
        position = before
        while position < end:
            scan = self.scan_from(position, end=end)
            if len(scan.table) == 0:
                break
            stands += len(scan.table)
            self._index(scan.table.moved(position))
            self._next_offset = int(scan.table.last_offset[-1]) + 1
            position += scan.consumed
        self._size = position
        if end > position:
            self.file.truncate(position)
        return stands

    def rewrite_from(self, position: int) -> None:
        """Write the bytes from `position` on once more, so that the next sync counts for them."""
        while position < self.size:
            chunk = self.read(position, _CHUNK)
            self.file.pwrite(chunk, position)
            position += len(chunk)

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that hold or follow `offset`; return the bytes removed.

        Source: LogSegment.truncateTo.
        """
        found = self.translate_offset(offset)
        if found is None:
            return 0
        removed = self.size - found.position
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.file.truncate(found.position)
        self._size, self._next_offset, self._loaded = found.position, None, False
        self._store_indexes()
        self._max = self.time_index.last_entry
        if found.position == 0:
            self._first_batch_timestamp = None
        self._load_tail()
        return removed

    # ---- durability, end ---------------------------------------------------------------------
    def sync(self) -> None:
        """Make the log and its indexes durable."""
        self.file.sync()
        if self._offset_index is not None and self._time_index is not None:
            self._offset_index.file.sync()
            self._time_index.file.sync()
        if self._txn_index is not None:
            self._txn_index.file.sync()

    def rename_suffix(self, old: SegmentSuffix, new: SegmentSuffix) -> None:
        """Rename all files of the segment, as when they are to be deleted."""
        for kind in FileSuffix:
            if self._fs.stat(self._path_of(kind, old)) is not None:
                self._fs.rename(self._path_of(kind, old), self._path_of(kind, new))

    def delete_files(self) -> None:
        """Remove all files of the segment; the log last, so that a crash leaves no index alone."""
        for kind in reversed(FileSuffix):
            if self._fs.stat(self._path_of(kind)) is not None:
                self._fs.remove(self._path_of(kind))

    def close(self) -> None:
        """Release the files."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.file.close()
        if self._txn_index is not None:
            self._txn_index.file.close()

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"


def _last_position(index: OffsetIndex) -> int:
    return index[len(index) - 1].position if len(index) else 0


def _end_of(table: BatchTable) -> int:
    return int(table.position[-1] + table.size[-1]) if len(table) else 0


def _in_order(table: BatchTable, next_offset: int, epoch: int) -> int:
    """Return how many batches of a table follow on: offsets rise, epochs do not fall."""
    if len(table) == 0:
        return 0
    before = np.concatenate(([next_offset - 1], table.last_offset[:-1]))
    epochs = np.concatenate(([epoch], table.leader_epoch[:-1]))
    wrong = (table.base_offset <= before) | (
        (table.leader_epoch >= 0) & (table.leader_epoch < epochs)
    )
    hits = np.flatnonzero(wrong)
    return int(hits[0]) if hits.size else len(table)
