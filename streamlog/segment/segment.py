"""The files of one base offset: log, offset index, time index, transaction index.

The log file is the truth. The two sparse indexes are hints that save scanning; each entry is
verified when it is used. A segment opened for reading never writes: if an index is missing or does
not match, one scan rebuilds it in memory. A segment opened for writing owns its files. Reading is
safe from several threads next to one writer, and continues after the files are renamed or removed.
"""

import logging
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptIndexError
from streamlog.fs.api import Buffer, File, FileSystem
from streamlog.records.batch import BatchTable
from streamlog.records.layout import (
    MAX_INT32,
    MAX_INT64,
    NO_PARTITION_LEADER_EPOCH,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.plain_headers import max_timestamp_of
from streamlog.records.table import BatchOutline
from streamlog.segment import recovery
from streamlog.segment.copies import replace_by_copy
from streamlog.segment.file_records import Chunk, OffsetPosition, TimestampAndOffset
from streamlog.segment.filenames import FileSuffix, SegmentSuffix, segment_file_name
from streamlog.segment.index_file import IndexFile
from streamlog.segment.indexed_records import IndexedRecords
from streamlog.segment.offset_index import OffsetIndex
from streamlog.segment.recovery import OnBatch, RecoveryReport, Restore, nothing_known
from streamlog.segment.time_index import TimeIndex
from streamlog.segment.txn_index import AbortedTxn, TxnIndex, TxnSearch

__all__ = ["RollReason", "Segment"]

_logger = logging.getLogger(__name__)


class RollReason(Enum):
    """Reason why the next append must go to a new segment.

    Source: LogSegment.shouldRoll.
    """

    SIZE = "segment.bytes"
    TIME = "segment.ms"
    OFFSET_INDEX_FULL = "offset index full"
    TIME_INDEX_FULL = "time index full"
    OFFSET_RANGE = "relative offset above 2**31 - 1"


class SegmentFiles:
    """The log file and its three indexes, as files.

    Args:
        fs: Their file system.
        directory: The partition's directory.
        log: The log file and the two sparse indexes.
        suffix: Suffix of the file names.

    Attributes:
        is_dirty: Whether the log file may hold unsynced bytes.
        is_sealed: Whether the segment no longer grows, so that its indexes are final.
        names_changed: Whether the directory has to be synced.
    """

    __slots__ = (
        "_directory",
        "_fs",
        "_log",
        "_txn_index",
        "_txn_index_is_loaded",
        "is_dirty",
        "is_sealed",
        "names_changed",
    )

    def __init__(
        self, fs: FileSystem, directory: str, log: IndexedRecords, suffix: SegmentSuffix
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._log = log
        name = segment_file_name(log.base_offset, FileSuffix.TXN_INDEX, suffix)
        self._txn_index = TxnIndex(fs, f"{directory}/{name}", log.base_offset)
        self._txn_index_is_loaded = False
        self.is_dirty = True
        self.is_sealed = False
        self.names_changed = False

    # ---- the transaction index ---------------------------------------------------------------
    @property
    def txn_index(self) -> TxnIndex:
        """The transaction index, loaded on first use.

        Raises:
            CorruptIndexError: Its file is damaged.
        """
        if not self._txn_index_is_loaded:
            self._txn_index.load(log_size=self._log.records.file.stat().size)
            self._txn_index_is_loaded = True
        return self._txn_index

    def reload_txn_index(self) -> None:
        """Read the transaction index again on its next use."""
        self._txn_index_is_loaded = False

    def reset_txn_index(self) -> None:
        """Empty the transaction index and remove its file."""
        self._txn_index.reset()
        self._txn_index_is_loaded = True

    def forget_transactions(self, offset: int) -> None:
        """Drop the aborted transactions whose markers were truncated, from `offset` on.

        A damaged transaction index is left as it is: reading it raises the error where it matters.
        """
        try:
            self.txn_index.truncate_to(offset)
        except CorruptIndexError as error:
            _logger.warning("%s", error)

    # ---- all files ---------------------------------------------------------------------------
    def sync(self, *, leave_names: bool = False) -> None:
        """Make the log durable, and the indexes of a sealed segment; see `Segment.sync`."""
        if self.is_dirty:
            self._log.records.file.sync()
        files = [self._txn_index.file]
        if self.is_sealed:
            files += self._log.index_files()
        for file in files:
            file.sync()
            self.names_changed |= file.was_created
            file.was_created = False
        if not leave_names:
            self.sync_names()
        self.is_dirty = False

    def sync_names(self, *, is_done: bool = False) -> None:
        """Make the names of files created since the last sync durable."""
        if self.names_changed and not is_done:
            self._fs.sync_directory(self._directory)
        self.names_changed = False

    def rename(self, old: SegmentSuffix, new: SegmentSuffix) -> None:
        """Replace the suffix of the names; an index file may be missing, the log file may not."""
        path = self._log.records.path
        self._log.records.rename(path.removesuffix(old.value) + new.value)
        for file in self._index_files():
            file.rename(file.path.removesuffix(old.value) + new.value)

    def remove(self) -> None:
        """Remove the four files; the copies that recovery set aside stay."""
        self._log.records.remove()
        self.remove_indexes()

    def remove_indexes(self) -> None:
        """Remove the index files."""
        for file in self._index_files():
            file.remove()

    def close(self) -> None:
        """Release the handles; a later call opens the files again."""
        self._log.close()
        self._txn_index.file.close()

    def _index_files(self) -> list[IndexFile]:
        return [*self._log.index_files(), self._txn_index.file]


class Segment:
    """One segment; see `Segment.create` and `Segment.open`.

    Attributes:
        base_offset: Its first offset; it holds no record below that.
        directory: The partition's directory.
        writable: Whether it may be appended to and truncated, and its indexes rebuilt.
        created_ms: Creation time; for an opened segment the last change of its log file.

    Source: org.apache.kafka.storage.internals.log.LogSegment.
    """

    __slots__ = (
        "_files",
        "_first_batch_timestamp",
        "_fs",
        "_log",
        "base_offset",
        "created_ms",
        "directory",
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
        suffix: SegmentSuffix = SegmentSuffix.NONE,
    ) -> None:
        self._fs = fs
        self._log = IndexedRecords(
            fs, directory, base_offset, config=config, writable=writable, suffix=suffix
        )
        self._files = SegmentFiles(fs, directory, self._log, suffix)
        self._first_batch_timestamp: int | None = None
        self.directory = directory
        self.base_offset = base_offset
        self.writable = writable
        self.created_ms = 0

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
        suffix: SegmentSuffix = SegmentSuffix.NONE,
    ) -> "Segment":
        """Create an empty segment; `sync` makes it durable, including its name.

        Reuses an empty log file of the same name and removes leftover indexes.

        Args:
            fs: Its file system.
            directory: The partition's directory.
            base_offset: Its first offset.
            config: The topic's settings.
            now_ms: The current time.
            suffix: Suffix of its file names.

        Raises:
            FileExistsAlreadyError: A log file of that name is not empty.
        """
        segment = cls(fs, directory, base_offset, config=config, writable=True, suffix=suffix)
        segment.created_ms = now_ms
        segment._log.records.create()
        segment._log.start_empty()
        segment._files.remove_indexes()
        segment._files.names_changed = True
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
        suffix: SegmentSuffix = SegmentSuffix.NONE,
    ) -> "Segment":
        """Open an existing segment; reads nothing before it is needed.

        Args:
            fs: Its file system.
            directory: The partition's directory.
            base_offset: Its first offset, from its name.
            config: The topic's settings.
            writable: Whether it may be appended to and truncated, and its indexes rebuilt.
            suffix: Suffix of its file names.

        Raises:
            FileMissingError: The log file does not exist.
            LimitExceededError: It is larger than a segment can be.
        """
        segment = cls(fs, directory, base_offset, config=config, writable=writable, suffix=suffix)
        found = segment._log.records.stat()
        segment._log.size = found.size
        segment.created_ms = found.mtime_ms
        return segment

    # ---- what it knows -----------------------------------------------------------------------
    @property
    def path(self) -> str:
        """Path of the log file."""
        return self._log.records.path

    @property
    def file(self) -> File:
        """The open log file.

        Raises:
            FileMissingError: It was removed or replaced before it was opened.
        """
        return self._log.records.file

    @property
    def config(self) -> LogConfig:
        """The topic's settings; a change takes effect with the next append."""
        return self._log.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._log.config = config

    @property
    def size(self) -> int:
        """Bytes of whole, sound batches.

        In a segment opened for reading this is the file size until `extend` has checked its end.
        """
        return self._log.size

    @property
    def tail_size(self) -> int:
        """Bytes after `size` as of the last `extend`: torn, damaged or still being written."""
        return self._log.tail_size

    @property
    def is_empty(self) -> bool:
        """Whether it holds no batch."""
        return self._log.size == 0

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, in ms; -1 if no record has one."""
        return self._log.at_end()[1].max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp, in ms; the file's modification time if no record has one.

        Source: LogSegment.largestTimestamp.
        """
        found = self.max_timestamp
        return found if found >= 0 else self._log.records.stat().mtime_ms

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the batch with the largest timestamp, -1 for none."""
        return self._log.at_end()[1].offset_of_max_timestamp

    @property
    def first_batch_timestamp(self) -> int | None:
        """The largest timestamp of the first batch, in ms; None in an empty segment."""
        if self._first_batch_timestamp is None and self._log.size:
            self._first_batch_timestamp = max_timestamp_of(self.read(0, RECORD_BATCH_OVERHEAD))
        return self._first_batch_timestamp

    def is_replaced(self, *, grows: bool = False) -> bool:
        """Return whether the log's name denotes another file; with `grows` it may be longer."""
        return self._log.records.is_replaced(None if grows else self.size)

    def is_file_of(self, other: "Segment") -> bool:
        """Return whether two handles are known to have the same log file; asks no disk."""
        return self._log.records.is_file_of(other._log.records)

    @property
    def needs_recovery(self) -> bool:
        """Whether an index is missing or known to be wrong, so that a writer should rebuild it."""
        if self.is_empty:
            return False
        files = self._log.index_files()
        return self._log.is_distrusted or any(self._fs.stat(file.path) is None for file in files)

    def next_offset(self) -> int:
        """Return the offset after the last batch, the base offset in an empty segment.

        Raises:
            CorruptRecordError: The bytes after the last index entry are not sound.
        """
        return self._log.at_end()[0].next_offset

    def roll_reason(
        self, append: BatchOutline, *, now_ms: int, max_wait_ms: int
    ) -> RollReason | None:
        """Return the reason why an append must go to a new segment, None if it may go here.

        Args:
            append: The batches to append.
            now_ms: The current time; counts only if the first batch has no timestamp.
            max_wait_ms: How much younger than the first batch the append may be: `segment.ms`
                less jitter.

        Source: LogSegment.shouldRoll.
        """
        log, first_timestamp = self._log, self.first_batch_timestamp
        if log.size > log.config.effective_segment_bytes - append.size:
            return RollReason.SIZE
        if first_timestamp is not None:
            waited = append.max_timestamp - first_timestamp
            age_ms = now_ms - self.created_ms
            if (waited if first_timestamp >= 0 else age_ms) > max_wait_ms:
                return RollReason.TIME
        if log.indexes.offset.is_full:
            return RollReason.OFFSET_INDEX_FULL
        if log.indexes.time.is_full:
            return RollReason.TIME_INDEX_FULL
        if not 0 <= append.last_offset - log.base_offset <= MAX_INT32:
            return RollReason.OFFSET_RANGE
        return None

    # ---- read --------------------------------------------------------------------------------
    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position` on, limited to the sound batches."""
        return self._log.records.file.pread(max(0, min(size, self.size - position)), position)

    def read_checked(
        self, position: int, size: int, *, beyond: int = 0, into: NDArray[np.uint8] | None = None
    ) -> Chunk:
        """Read up to `size` bytes and check their batches; see `FileRecords.read_checked`."""
        return self._log.records.read_checked(position, size, beyond, end=self.size, into=into)

    def translate_offset(self, offset: int, *, is_whole: bool = False) -> OffsetPosition | None:
        """Find the first batch that reaches `offset`; see `IndexedRecords.translate_offset`."""
        return self._log.translate_offset(offset, is_whole=is_whole)

    def approximate_position(self, offset: int) -> int:
        """Return the position of the batch that holds `offset`; the size if all end below it."""
        found = self._log.translate_offset(offset)
        return self.size if found is None else found.position

    def offset_at(self, position: int) -> int | None:
        """Return the offset after the indexed batch at or below `position`; None without an entry.

        A batch starts at that offset, unless a gap or the log end follows.
        """
        entry = self._log.indexes.offset.lookup_position(position)
        return None if entry is None else entry.offset + 1

    def upper_bound(self, position: int) -> int | None:
        """Return an offset that no batch below `position` reaches; None if the index has none.

        Source: LogSegment.fetchUpperBoundOffset.
        """
        entry = self._log.indexes.offset.lookup_from(position)
        return None if entry is None else entry.offset + 1

    def offset_for_timestamp(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """Find the first record from `start_offset` on with a timestamp of at least `timestamp`.

        Raises:
            CorruptRecordError: A batch that had to be decoded is damaged.
        """
        return self._log.offset_for_timestamp(timestamp, start_offset)

    def latest(self, start_offset: int, end_offset: int = MAX_INT64) -> TimestampAndOffset | None:
        """Find the first record with the largest timestamp between two offsets."""
        return self._log.latest(start_offset, end_offset)

    def extend(self) -> bool:
        """Take in the sound batches that other writers appended; True if anything changed.

        The first call always returns True.
        """
        return self._log.extend()

    def take_in(self, position: int, table: BatchTable) -> None:
        """Take in batches that were just written at the end of the same file; reads nothing.

        Args:
            position: Where they begin: the size of this handle.
            table: Their headers, positions relative to `position`.
        """
        if self._log.size == 0:
            self._first_batch_timestamp = int(table.max_timestamp[0])
        self._log.take_in(table, position)

    def check_limits(self, table: BatchTable) -> None:
        """Refuse batches that do not fit, which `append` does by itself.

        Raises:
            InvalidRequestError: Positions or offsets do not fit into the segment.
        """
        self._log.check_limits(table)

    # ---- append ------------------------------------------------------------------------------
    def append(self, buffer: Buffer, table: BatchTable) -> None:
        """Write whole batches after the last one, then the index entries, a few at a time.

        Args:
            buffer: The batches and nothing else.
            table: Their headers.

        Raises:
            InvalidRequestError: Positions or offsets do not fit into the segment.
            StorageError: The disk refused; nothing counts as appended, but the file may hold a
                part of it: see `cut_torn_tail`.

        Source: LogSegment.append.
        """
        log = self._log
        was_empty = log.size == 0
        self._files.is_dirty = True
        log.append(buffer, table)
        if was_empty:
            self._first_batch_timestamp = int(table.max_timestamp[0])
        log.store_indexes_if_due()

    def cut_torn_tail(self) -> int:
        """After a failed append: keep its whole batches and truncate the rest.

        Returns:
            How many batches of the append were kept.
        """
        standing = self._log.cut_torn_tail()
        self._log.store_indexes()
        return standing

    # ---- the indexes -------------------------------------------------------------------------
    def seal(self) -> None:
        """Add the last entry to the time index: the segment stops growing for now.

        Source: LogSegment.onBecomeInactiveSegment.
        """
        self._log.seal_indexes()
        self._files.is_sealed = True

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index; a hint, see the module."""
        return self._log.indexes.offset

    @property
    def time_index(self) -> TimeIndex:
        """The time index; a hint, see the module."""
        return self._log.indexes.time

    @property
    def txn_index(self) -> TxnIndex:
        """The transaction index.

        Raises:
            CorruptIndexError: Its file is damaged.
        """
        return self._files.txn_index

    def aborted_transactions(self, start_offset: int, end_offset: int) -> TxnSearch:
        """Find aborted transactions whose markers lie in this segment; see `TxnIndex.collect`.

        Raises:
            CorruptIndexError: The transaction index is damaged.
        """
        if not self.writable:
            self._files.reload_txn_index()  # a writer may have added entries
        return self.txn_index.collect(start_offset, end_offset)

    def append_aborted(self, aborted: AbortedTxn) -> None:
        """Add an aborted transaction whose marker lies in this segment.

        Raises:
            InvalidRequestError: Its marker does not lie after the last one.
            StorageError: It could not be written; nothing was added.
        """
        self.txn_index.append(aborted)

    def reset_aborted(self) -> None:
        """Drop all aborted transactions, even if the transaction index is damaged."""
        self._files.reset_txn_index()

    # ---- cut and mend ------------------------------------------------------------------------
    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds `offset`, whole, and all batches after it.

        Args:
            offset: No batch that reaches it stays.

        Returns:
            How many bytes were removed.

        Source: LogSegment.truncateTo.
        """
        found = self._log.translate_offset(offset)
        if found is None:
            return 0
        removed = self.size - found.position
        txn_index = self.txn_index  # loaded before anything is truncated: it may be damaged
        self._files.is_dirty = True
        self._log.cut(offset, found.position)
        if self.is_empty:
            self._first_batch_timestamp = None
        txn_index.truncate_to(offset)
        return removed

    def recover(
        self,
        *,
        durable_offset: int | None,
        is_last: bool,
        on_batch: OnBatch | None = None,
        known_size: int = 0,
        previous_epoch: int = NO_PARTITION_LEADER_EPOCH,
        lost_power: bool = False,
        restore: Restore = nothing_known,
    ) -> RecoveryReport:
        """Walk over all batches, rebuild the indexes, truncate a torn tail, refuse damage.

        The transaction index only loses entries of truncated batches. To rebuild it from the
        producers' state, call `reset_aborted` first and `append_aborted` in `on_batch`.

        Args:
            durable_offset: The recovery point: all records below it were synced. None: unknown.
            is_last: Whether no later segment exists.
            on_batch: Called with the table of each run of sound batches, positions relative to the
                file; `read` returns their bytes.
            known_size: Leading bytes that are known to be sound and are not walked again.
            previous_epoch: The latest leader epoch before this segment, -1 for none.
            lost_power: Whether the machine went down after the last append: unsynced blocks may be
                lost before others that survived.
            restore: Supplies batches that are also stored elsewhere, byte for byte; they replace
                bad bytes that precede sound batches.

        Raises:
            CorruptRecordError: Acknowledged records are damaged; nothing was truncated.

        Source: LogSegment.recover.
        """
        self._first_batch_timestamp = None
        report = recovery.recover(
            self._fs,
            self._log,
            durable_offset=durable_offset,
            is_last=is_last,
            on_batch=on_batch,
            known_size=known_size,
            previous_epoch=previous_epoch,
            lost_power=lost_power,
            restore=restore,
        )
        self._files.forget_transactions(report.next_offset)
        return report

    def copy_afresh(self) -> None:
        """Replace the log file by a synced copy; see `streamlog.segment.copies`.

        Raises:
            CorruptRecordError: The bytes read differ from those written; nothing was replaced.
        """
        replace_by_copy(self._fs, self._log.records, self.base_offset, self.size)

    # ---- files -------------------------------------------------------------------------------
    def sync(self, *, leave_names: bool = False) -> None:
        """Make the log and its name durable, and the indexes of a sealed segment.

        Recovery rebuilds the indexes of a growing one. With `leave_names` the caller syncs the
        names.

        Raises:
            StorageError: The disk refused; the content of this segment is no longer certain.
        """
        self._files.sync(leave_names=leave_names)

    def sync_names(self, *, is_done: bool = False) -> None:
        """Make the names of its files durable; with `is_done` the directory was just synced."""
        self._files.sync_names(is_done=is_done)

    def rename_suffix(self, old: SegmentSuffix, new: SegmentSuffix) -> None:
        """Rename all files of the segment, for instance before deleting them; reading continues.

        Source: LogSegment.changeFileSuffixes.
        """
        self._files.rename(old, new)

    def delete_files(self) -> None:
        """Remove all files of the segment, the log first; the copies that recovery set aside stay.

        Source: LogSegment.deleteIfExists.
        """
        self._files.remove()

    def close(self) -> None:
        """Release the handles; a later call opens the files again."""
        self._files.close()

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"
