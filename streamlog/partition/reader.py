"""One partition, read without a lock: any directory, written by any program; nothing is changed.

A reader finds the end of the log by scanning whole batches with valid checksums from its last
position on; it never trusts the size of a file. Bytes after them are an append in progress or a
torn tail, unless the recovery point says that records were synced there: then the log ends after
those, and reading them is an error. `refresh` polls; without changes it takes five `stat` calls.

Of a replica nothing at or above its high watermark is read: a position there has no data yet.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptDataError,
    CorruptRecordError,
    FileMissingError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.fs.api import Buffer, FileKind, FileStat, FileSystem
from streamlog.fs.files import stat_directory
from streamlog.fs.local import LocalFile, LocalFileSystem
from streamlog.fs.log_root import LOG_START_OFFSET_CHECKPOINT, LogRoot, refuse_url
from streamlog.partition import checkpoints, partition_metadata
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.high_watermark import SeenHighWatermark
from streamlog.partition.iteration import IterableLog
from streamlog.partition.leftovers import LogFile, live_logs
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.producer_state import ProducerState
from streamlog.partition.producers import ProducerStateManager, within
from streamlog.partition.read import (
    FetchInfo,
    OpenSlice,
    ReadableOffsets,
    Slice,
    aborted_between,
    fetch,
    locate,
    size_between,
    split,
)
from streamlog.partition.segments import (
    OffsetAndTimestamp,
    Segments,
    max_timestamp,
    offset_for_timestamp,
)
from streamlog.partition.topic_config import (
    check_decompressed_bytes,
    readable_decompressed_bytes,
)
from streamlog.records.batch import BatchTable
from streamlog.records.layout import COMPRESSION_MASK, MAX_INT64
from streamlog.records.record import IsolationLevel
from streamlog.records.table import BASE_OFFSET, LAST_OFFSET
from streamlog.segment.filenames import (
    FileSuffix,
    log_file_name,
    parse_log_file_name,
    segment_file_name,
)
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn
from streamlog.segment.walk import how_to_go_on
from streamlog.topic import TopicPartition, check_partition_directory

__all__ = ["LogReader"]

T = TypeVar("T")

_ATTEMPTS: Final = 10  # at listing a directory that changes


P = ParamSpec("P")
R = TypeVar("R")


class Guarded(Protocol):
    """An object with a lock for its threads."""

    _guard: threading.RLock


G = TypeVar("G", bound=Guarded)


def one_thread_at_a_time(
    method: Callable[Concatenate[G, P], R],
) -> Callable[Concatenate[G, P], R]:
    """Run a method under its object's `_guard`, which is reentrant."""

    @functools.wraps(method)
    def alone(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._guard:
            return method(self, *args, **kwargs)

    return alone


class LogReader(IterableLog):
    """A partition open for reading only; see `LogReader.open`. Iterating yields its records.

    Threads that share one take turns; to read at the same time, each opens its own.

    Attributes:
        path: Its directory.
        topic_partition: What the directory is named after.
    """

    def __init__(self, path: str, fs: FileSystem, max_decompressed_bytes: int | None) -> None:
        self._only_base = parse_log_file_name(os.path.basename(path))
        self.path = path if self._only_base is None else os.path.dirname(path)
        self.topic_partition: TopicPartition = check_partition_directory(self.path)
        self._fs = fs
        self._guard = threading.RLock()
        self._root = LogRoot.at(os.path.dirname(self.path), fs=fs)
        self._config = LogConfig()
        self._limit = max_decompressed_bytes  # None: not known before it is needed
        self._segments = Segments()
        self._sound_end_offset = 0
        self._synced_end_offset = 0  # above the one before: of damage at the end
        self._checkpointed_start = 0
        self._directory_mtime_ns = -1
        self._checkpoint_stamp: tuple[int, int, int] | None = None
        self._epochs: LeaderEpochCache | None = None
        self._epochs_stamp: tuple[int, int, int] | None = None
        self._producers: ProducerStateManager | None = None
        self._unindexed: list[AbortedTxn] = []
        self._no_abort_from = MAX_INT64  # with `_producers`: no marker from here on aborts
        self._committed = SeenHighWatermark.find(self._root, self.topic_partition)
        self.topic_id = self._read_topic_id()
        self.refresh()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        fs: FileSystem | None = None,
        max_decompressed_bytes: int | None = None,
    ) -> "LogReader":
        """Open a partition's directory for reading, or one `.log` file in it as if it were all.

        Args:
            path: The directory, `…/TOPIC-PARTITION`, or the file, `…/TOPIC-PARTITION/….log`.
            fs: The file system; the machine's own by default.
            max_decompressed_bytes: The most bytes that the records of one compressed batch may
                decompress to; None: what its topic says, but no less than the default.

        Raises:
            UnknownTopicError: There is no such directory, or no such segment.
            InvalidOptionError: The limit is not 1 to 2^31 - 1, or the path is a URL.
            InvalidTopicError: It is not named after a partition.
            StorageError: It cannot be read.
        """
        if fs is None:
            refuse_url(path)
        fs = fs or LocalFileSystem()
        name = os.path.abspath(path)  # also right where the process changes its directory later
        is_segment = parse_log_file_name(os.path.basename(name)) is not None
        found = fs.stat(name) if is_segment else stat_directory(fs, name)
        if found is None or found.kind is not (FileKind.FILE if is_segment else FileKind.DIRECTORY):
            raise UnknownTopicError(
                "no such partition",
                path=os.fspath(path),
                got="nothing" if found is None else found.kind.value,
                expected="a directory, or a .log file named after its base offset",
            )
        if max_decompressed_bytes is not None:
            check_decompressed_bytes(max_decompressed_bytes)
        return cls(name, fs, max_decompressed_bytes)

    # ---- what it knows -----------------------------------------------------------------------
    @property
    def offsets(self) -> LogOffsets:
        """Log start, high watermark and log end, taken together; no recovery point is known."""
        first = self._segments[0].base_offset if len(self._segments) else 0
        start = max(self._checkpointed_start, first)
        end = max(self._sound_end_offset, self._synced_end_offset, start)
        if self._committed is not None:
            return LogOffsets(start, 0, end).with_high_watermark(self._committed.offset)
        return LogOffsets.of_one_replica(start, end)

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.offsets.start

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch, or after synced records that are damaged."""
        return self.offsets.end

    @property
    def high_watermark(self) -> int:
        """Records below it are committed."""
        return self.offsets.high_watermark

    @property
    @one_thread_at_a_time
    def last_stable_offset(self) -> int:
        """No transaction is open below it."""
        if self._committed is None and self.knows_stable:
            return self.known_stable_offset
        unstable = self._asked(self._transactions).first_unstable_offset
        return self.offsets.stable(unstable)

    def readable(
        self, isolation: IsolationLevel, base_offset: int | None = None
    ) -> ReadableOffsets:
        """Return the offsets to read at an isolation level.

        Transactions are those of the whole log, also for a single segment.

        Args:
            isolation: The isolation level.
            base_offset: Only this segment; None: the whole log.
        """
        offsets = self.offsets  # read once: a streaming query polls this
        committed = isolation is IsolationLevel.READ_COMMITTED
        end = self.last_stable_offset if committed else offsets.high_watermark
        start, log_end = offsets.start, offsets.end
        if base_offset is not None:
            start = max(start, base_offset)
            later = [base for base in self.segments.base_offsets if base > base_offset]
            log_end = max(start, min([log_end, *later]))
            end = max(start, min(end, log_end))
        return ReadableOffsets(start, end, log_end)

    @property
    @one_thread_at_a_time
    def unindexed_aborts(self) -> tuple[AbortedTxn, ...]:
        """The aborted transactions below the last stable offset that no transaction index lists.

        A broker appends an abort marker to the log file first, its index entry afterwards. A
        reader that looks between the two, or after a broker died there, knows of these only
        from the markers.
        """
        self._asked(self._transactions)
        return tuple(self._unindexed)

    @property
    def knows_stable(self) -> bool:
        """Whether `last_stable_offset` needs to read nothing."""
        producers = self._producers
        if producers is None or self._unindexed:
            return False
        return producers.map_end_offset >= self._sound_end_offset

    @property
    def known_stable_offset(self) -> int:
        """The last stable offset as far as batches were looked at for it; reads nothing."""
        producers = self._producers
        return self.offsets.stable(None if producers is None else producers.first_unstable_offset)

    @property
    @one_thread_at_a_time
    def open_transactions(self) -> list[int]:
        """The first offset of each open transaction, ascending."""
        return self._asked(self._transactions).open_transactions

    @property
    def max_decompressed_bytes(self) -> int:
        """The size in bytes that the records of one batch may decompress to.

        The topic's settings are read when this is first needed: most logs are never compressed.
        """
        if self._limit is None:
            self._limit = readable_decompressed_bytes(self._root, self.topic_partition.topic)
        return self._limit

    @property
    def segments(self) -> Segments:
        """The segments as of the last refresh."""
        return self._segments

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size

    @property
    @one_thread_at_a_time
    def leader_epochs(self) -> LeaderEpochCache:
        """The start offset of each epoch, from the current file."""
        stamp = _stamp(self._fs.stat(f"{self.path}/leader-epoch-checkpoint"))
        if self._epochs is None or stamp != self._epochs_stamp:
            self._epochs = LeaderEpochCache.load(self._fs, self.path)
            self._epochs_stamp = stamp
        return self._epochs

    @property
    def leader_epoch(self) -> int:
        """The latest epoch, -1 if none is known."""
        latest = self.leader_epochs.latest_epoch
        return -1 if latest is None else latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch that is at most `epoch`, and the offset where it ends.

        Source: LeaderEpochFileCache.endOffsetFor.
        """
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that `offset` was or will be written in, -1 if none is known."""
        epoch = self.leader_epochs.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    # ---- the poll ----------------------------------------------------------------------------
    @one_thread_at_a_time
    def refresh(self) -> None:
        """Learn of records written, and segments rolled or deleted, since the last look.

        Raises:
            UnknownTopicError: The directory is gone.
            CorruptDataError: A file that had to be read is damaged.
        """
        directory = stat_directory(self._fs, self.path)
        if directory is None:
            raise UnknownTopicError(
                "the partition's directory is gone", path=self.path, expected="a directory"
            )
        self._refresh_log_start()
        if len(self._segments):
            self._follow_tail()
        has_moved = directory.mtime_ns != self._directory_mtime_ns
        if has_moved or self._has_rolled() or self._is_replaced():
            self._relist()
            self._directory_mtime_ns = (
                directory.mtime_ns
            )  # from before the listing, so that later changes are seen
        if self._committed is not None:
            offsets = self.offsets
            self._committed.refresh(offsets.start, offsets.end, lambda: self.leader_epochs)

    def follow(self, written: Segment, batches: Buffer, table: BatchTable) -> bool:
        """Learn of an append of this process without looking at the files, if it is the next one.

        Args:
            written: The segment that the batches were appended to, as the writer has it open.
            batches: The batches.
            table: Their headers.

        Returns:
            Whether they are known now; otherwise `refresh` finds them.
        """
        if not self._guard.acquire(blocking=False):
            return False
        try:
            return self._follow(written, batches, table)
        finally:
            self._guard.release()

    def _follow(self, written: Segment, batches: Buffer, table: BatchTable) -> bool:
        if not len(self._segments) or self._committed is not None or self._synced_end_offset:
            return False
        active, end = self._segments.active, self._sound_end_offset
        position = written.size - table.end
        first, last = table.fields[0].tolist(), table.fields[-1].tolist()
        if not (
            active.size == position
            and active.tail_size == 0
            and end == first[BASE_OFFSET]
            and active.is_file_of(written)
        ):
            return False
        active.take_in(position, table)
        self._sound_end_offset = last[LAST_OFFSET] + 1
        producers = self._producers
        if producers is not None and producers.map_end_offset == end:
            try:
                self._note_aborts(producers.update(within(batches), table))
                producers.on_high_watermark(self.offsets.high_watermark)
            except StreamLogError:  # met again, and reported, by whoever asks for transactions
                self._producers = None
        return True

    @property
    def is_busy(self) -> bool:
        """Whether another thread uses it, so that a call may have to wait."""
        if self._guard.acquire(blocking=False):
            self._guard.release()
            return False
        return True

    def may_have_changed(self) -> bool:
        """Whether `refresh` may find new records; takes two `stat` calls and no lock."""
        if not len(self._segments):
            return True
        active = self._segments.active
        found = self._fs.stat(active.path)
        if found is None or found.size != active.size + active.tail_size or self._has_rolled():
            return True
        return self._committed is not None and self._committed.offset < self._sound_end_offset

    _learn = refresh  # called by an iteration before it continues

    def _has_rolled(self) -> bool:
        """Whether the next segment exists; the directory's time may not show it yet."""
        if len(self._segments) and self._sound_end_offset == self._segments.active.base_offset:
            return False
        return self._fs.stat(f"{self.path}/{log_file_name(self.log_end_offset)}") is not None

    def _is_replaced(self) -> bool:
        """Whether a copy replaced the tail, even within one tick of the clock."""
        return len(self._segments) > 0 and self._segments.active.is_replaced(grows=True)

    def _follow_tail(self) -> None:
        active = self._segments.active
        active.extend()
        self._sound_end_offset = active.next_offset()
        self._synced_end_offset = self._lost_up_to(active) if active.tail_size else 0

    def _lost_up_to(self, active: Segment) -> int:
        """Return the end of synced records that no sound batch holds now; 0 for none."""
        if self._only_base is not None:
            return 0
        synced = checkpoints.read_recovery_points(self._root).get(self.topic_partition, 0)
        if synced <= self._sound_end_offset:
            return 0
        active.extend()  # a batch that was being written is whole by the time it is synced
        self._sound_end_offset = active.next_offset()
        return synced if active.tail_size and synced > self._sound_end_offset else 0

    def _relist(self) -> None:
        """List the segments of the directory; those already open are reused.

        Raises:
            FileMissingError: Files are removed as fast as they are listed.
            CorruptRecordError: A log that a compaction left is damaged.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._take(live_logs(self._fs, self.path, self._config))
            except FileMissingError:  # renamed or removed since it was listed
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def _take(self, files: list[LogFile]) -> None:
        known = self._segments
        files = [file for file in files if self._only_base in (None, file.base_offset)]
        paths = [f"{self.path}/{segment_file_name(base, FileSuffix.LOG, suffix)}"
                 for base, suffix in files]  # fmt: skip
        usable = {
            segment.path: segment
            for at, segment in enumerate(known, 1)
            if not segment.is_replaced(grows=at == len(known))
        }
        if paths == list(usable) and len(usable) == len(known):
            return
        opened = [
            usable.get(path)
            or Segment.open(
                self._fs, self.path, base, config=self._config, writable=False, suffix=suffix
            )
            for path, (base, suffix) in zip(paths, files, strict=True)
        ]
        if len(known) and opened:
            # Batches that the former tail received before the roll are whole now.
            former = known.active
            if former in opened[:-1]:
                former.extend()
        self._segments = Segments(opened)
        for segment in known:
            if self._segments.find(segment.base_offset) is not segment:
                segment.close()
        self._producers = None
        if opened:
            self._follow_tail()

    def _refresh_log_start(self) -> None:
        stamp = _stamp(self._fs.stat(self._root.checkpoint(LOG_START_OFFSET_CHECKPOINT)))
        if stamp == self._checkpoint_stamp:
            return
        self._checkpoint_stamp = stamp
        offsets = checkpoints.read_log_start_offsets(self._root)
        self._checkpointed_start = offsets.get(self.topic_partition, 0)

    def _read_topic_id(self) -> str | None:
        try:
            return partition_metadata.read_topic_id(self._fs, self.path)
        except (FileMissingError, CorruptDataError):
            return None

    # ---- read --------------------------------------------------------------------------------
    @property
    def _known_end_offset(self) -> int:
        """A read from here on looks for new records first."""
        sound = self._sound_end_offset
        return sound if self._committed is None else min(sound, self._committed.offset)

    @one_thread_at_a_time
    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        end_offset: int = MAX_INT64,
        end_is_stable: bool = False,
        unindexed_aborts: Sequence[AbortedTxn] = (),
        into: NDArray[np.uint8] | None = None,
    ) -> FetchInfo:
        """Read whole batches, beginning with the one that holds `offset`.

        One read ends after about `max_bytes` or at the end of a segment; continue at its
        `next_offset`, or iterate over all records with `records`.

        Args:
            offset: The first offset wanted; at the log end the result is empty.
            max_bytes: The approximate size; the first batch is whole however large it is.
            isolation: `read_uncommitted` reads to the high watermark, `read_committed` to the
                last stable offset and without aborted transactions; a level or its name.
            end_offset: Records from it on are left out.
            end_is_stable: The caller knows that `end_offset` was not above the last stable
                offset, maybe of another replica; saves this reader from determining that offset.
            unindexed_aborts: The value of `unindexed_aborts` when the caller read the last
                stable offset; only with `end_is_stable`.
            into: Memory for the batches, used if it has `max_bytes` and `READ_BEYOND` more.
                The next read into it overwrites them.

        Returns:
            The batches, checked.

        Raises:
            OffsetOutOfRangeError: Below the log start or above the log end.
            CorruptRecordError: A batch is damaged; names file, position and offset.
        """
        if offset >= self._known_end_offset:
            self.refresh()
        if self._sound_end_offset <= offset < min(self._synced_end_offset, end_offset):
            raise self._lost(offset)
        committed = IsolationLevel.of(isolation) is IsolationLevel.READ_COMMITTED

        def fetch_now() -> FetchInfo:
            knows_stable = end_is_stable or not committed
            stable = None if knows_stable else self.last_stable_offset
            unindexed = unindexed_aborts if knows_stable else self.unindexed_aborts
            offsets = self.offsets
            if stable is None:
                stable = offsets.end if end_is_stable else offsets.high_watermark
            return fetch(
                self._segments,
                offset,
                offsets=offsets,
                last_stable_offset=stable,
                upper=min(stable, self._sound_end_offset),
                end_offset=end_offset,
                max_bytes=max_bytes,
                is_committed=committed,
                unindexed_aborts=unindexed,
                into=into,
            )

        info = self._asked(fetch_now)
        if (info.table.attributes & COMPRESSION_MASK).any():
            return replace(info, max_decompressed=self.max_decompressed_bytes)
        return info

    @one_thread_at_a_time
    def locate(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Slice | None:
        """Find the bytes that `read` would return, without reading them; see `read.locate`.

        Aborted transactions are in it; the consumer leaves them out.

        Raises:
            OffsetOutOfRangeError: Below the log start or above the log end.
            CorruptRecordError: Synced records are damaged there.
        """
        if offset >= self._known_end_offset:
            self.refresh()
        if self._sound_end_offset <= offset < self._synced_end_offset:
            raise self._lost(offset)
        committed = IsolationLevel.of(isolation) is IsolationLevel.READ_COMMITTED
        upper = self.last_stable_offset if committed else self.high_watermark
        found = self._asked(lambda: self._locate(offset, max_bytes, upper))
        return None if found is None else found[1]

    @one_thread_at_a_time
    def open_slice(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: IsolationLevel,
        is_first: bool,
        read_up_to: int = 0,
    ) -> OpenSlice | None:
        """Find the bytes that a fetch sends; looks for no new records.

        Args:
            offset: The first offset wanted.
            max_bytes: The size wanted.
            isolation: The isolation level.
            is_first: Whether the first batch is whole however large it is; otherwise nothing is
                found where it is larger than `max_bytes`.
            read_up_to: Up to this size the bytes are read, instead of the file held open.

        Raises:
            OffsetOutOfRangeError: Below the log start or above the log end.
            CorruptRecordError: Synced records are damaged there.
        """
        if self._sound_end_offset <= offset < self._synced_end_offset:
            raise self._lost(offset)
        committed = isolation is IsolationLevel.READ_COMMITTED
        upper = self.last_stable_offset if committed else self.high_watermark

        def find() -> OpenSlice | None:
            found = self._locate(offset, max_bytes, upper, is_first=is_first)
            if found is None:
                return None
            segment, (_, position, size) = found
            aborted = self._aborted(segment, offset, position + size, upper) if committed else ()
            file = segment.file
            if size <= read_up_to or not isinstance(file, LocalFile):
                return OpenSlice(None, file.pread(size, position), position, size, tuple(aborted))
            # Lent: a refresh may close the segment while its bytes are sent.
            return OpenSlice(file.lend(), b"", position, size, tuple(aborted))

        return self._asked(find)

    def _locate(
        self, offset: int, max_bytes: int, upper: int, *, is_first: bool = True
    ) -> tuple[Segment, Slice] | None:
        return locate(
            self._segments,
            offset,
            offsets=self.offsets,
            upper=min(upper, self._sound_end_offset),
            max_bytes=max_bytes,
            is_first=is_first,
        )

    def _aborted(
        self, segment: Segment, offset: int, position: int, upper: int
    ) -> Iterator[AbortedTxn]:
        """Yield the aborted transactions between `offset` and a position in its segment."""
        if offset >= self._no_abort_from:
            return
        end = segment.upper_bound(position)
        end = upper if end is None else min(upper, end)
        yield from aborted_between(self._segments, offset, end)
        for txn in self.unindexed_aborts:
            if txn.last_offset >= offset and txn.first_offset < end:
                yield txn

    def _lost(self, offset: int) -> CorruptRecordError:
        active = self._segments.active
        return CorruptRecordError(
            "synced records are damaged",
            path=active.path,
            position=active.size,
            offset=offset,
            got=f"{active.tail_size} bytes that are no sound batch",
            expected=f"records up to offset {self._synced_end_offset}, as the recovery point says",
            hint=how_to_go_on(active.path),
        )

    @one_thread_at_a_time
    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp is at least `timestamp` (ms), or None."""
        self._allow_decompressing()
        return self._asked(lambda: offset_for_timestamp(self._segments, timestamp, self.offsets))

    @one_thread_at_a_time
    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the first record of the largest timestamp, or None."""
        self._allow_decompressing()
        return self._asked(lambda: max_timestamp(self._segments, self.offsets))

    def _allow_decompressing(self) -> None:
        """Apply this reader's limit to the segments: a search by time decompresses in them."""
        limit = self.max_decompressed_bytes
        if limit != self._config.streamlog_max_decompressed_bytes:
            self._config = LogConfig(streamlog_max_decompressed_bytes=limit)
            for segment in self._segments:
                segment.config = self._config

    @one_thread_at_a_time
    def split(self, start_offset: int, end_offset: int, parts: int) -> list[tuple[int, int]]:
        """Split a range of offsets into at most `parts` ranges of about equal bytes."""
        return self._asked(lambda: split(self._segments, start_offset, end_offset, parts))

    @one_thread_at_a_time
    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return the approximate number of bytes between two offsets."""
        return self._asked(lambda: size_between(self._segments, start_offset, end_offset))

    def _asked(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`; list and retry if a file was removed before it was opened."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return ask()
            except FileMissingError:  # renamed or removed since it was listed
                self._relist()
        return ask()

    @property
    @one_thread_at_a_time
    def producers(self) -> Mapping[int, ProducerState]:
        """The state of each idempotent producer, by id."""
        return dict(self._asked(self._transactions).producers)

    def _transactions(self) -> ProducerStateManager:
        end = max(self._sound_end_offset, self.log_start_offset)
        if self._producers is None:
            self._unindexed = []
            self._producers = ProducerStateManager.at_snapshot(
                self._fs,
                self.path,
                log_start_offset=self.log_start_offset,
                end_offset=min(end, self.high_watermark),
                now_ms=0,
            )
            self._no_abort_from = self._producers.map_end_offset
        if self._producers.map_end_offset < end:
            try:
                self._note_aborts(self._producers.replay(self._segments, end))
            except BaseException:  # what it took in before is lost, aborts too
                self._producers = None
                raise
        if self._unindexed:
            self._drop_indexed_aborts()
        self._producers.on_high_watermark(self.offsets.high_watermark)
        return self._producers

    def _note_aborts(self, aborted: list[AbortedTxn]) -> None:
        if aborted:
            self._unindexed += aborted
            self._no_abort_from = aborted[-1].last_offset + 1

    def _drop_indexed_aborts(self) -> None:
        """Keep the aborts that no index lists; the index of a sealed segment is complete."""
        active = self._segments.active
        indexed = active.aborted_transactions(active.base_offset, MAX_INT64).aborted
        last = indexed[-1].last_offset if indexed else active.base_offset - 1
        self._unindexed = [txn for txn in self._unindexed if txn.last_offset > last]

    @one_thread_at_a_time
    def close(self) -> None:
        """Release the files; closing twice is harmless."""
        for segment in self._segments:
            segment.close()

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LogReader {self.path} {self.log_start_offset}..{self.log_end_offset}>"


def _stamp(found: FileStat | None) -> tuple[int, int, int] | None:
    return None if found is None else (found.mtime_ns, found.inode, found.size)
