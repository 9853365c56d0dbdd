"""One round of cleaning a partition, in steps, so that it can pause after each.

    keys of the dirty section → offset map → for each group of segments from the log start on:
    read, filter, write `.cleaned`, sync → under the partition's lock: replace → checkpoint

Reading takes no lock because only sealed segments are read. The lock is taken to replace them, and
the round first checks that no other process has. After a crash `streamlog.partition.leftovers`
finishes or undoes a replacement; groups that were replaced stay replaced.

Source: org.apache.kafka.storage.internals.log.Cleaner.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from streamlog.cleaner.choosing import Cleanable, segments_between
from streamlog.cleaner.offset_map import OffsetMap
from streamlog.cleaner.rules import CleanedTransactions, KeepRules, last_records
from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import FileMissingError, StorageError, UnavailableError
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition.checkpoints import write_cleaner_offsets
from streamlog.partition.leftovers import remove_cleaned
from streamlog.partition.read import aborted_between
from streamlog.partition.segments import Segments
from streamlog.records.filter import filter_batches, locate
from streamlog.records.layout import MAX_INT32
from streamlog.records.slots import RecordSlots
from streamlog.records.table import BatchTable
from streamlog.root.partition_log import PartitionLog
from streamlog.segment.file_records import Chunk, FileRecords
from streamlog.segment.filenames import SegmentSuffix
from streamlog.segment.offset_index import OFFSET_ENTRY_SIZE
from streamlog.segment.segment import Segment
from streamlog.segment.time_index import TIME_ENTRY_SIZE
from streamlog.segment.walk import sound_chunks
from streamlog.topic import TopicPartition

__all__ = ["CleanReport", "CleaningRound", "Throttle"]

CHUNK_SIZE: Final = 1 << 20  # bytes of a log file read at a time
_WORTH_WAITING_MS: Final = 10  # shorter sleeps are too inaccurate

_logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class CleanReport:
    """The result of a round of cleaning, so far.

    Attributes:
        topic_partition: The partition.
        first_dirty_offset: The start of the dirty section.
        end_offset: The end of the cleaned section, where the next round starts; an upper bound of
            it until all keys are in the offset map.
        is_finished: Whether the round is complete.
        keys: The number of keys in the dirty section.
        is_map_full: Whether the keys did not all fit, so that another round is due.
        bytes_indexed: Bytes read to build the offset map.
        bytes_read: Bytes of the segments before cleaning.
        bytes_written: Bytes of the segments after cleaning.
        records_read: Records before cleaning, control records included.
        records_written: Records after cleaning.
        segments_before: Number of segments before cleaning.
        segments_after: Number of segments after cleaning.
        duration_ms: Time spent, without pauses.

    Source: org.apache.kafka.storage.internals.log.CleanerStats.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    end_offset: int
    is_finished: bool = False
    keys: int = 0
    is_map_full: bool = False
    bytes_indexed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    segments_before: int = 0
    segments_after: int = 0
    duration_ms: float = 0.0


class Throttle:
    """Limits the bytes read and written per second.

    Args:
        clock: Measures time and sleeps.
        bytes_per_second: `log.cleaner.io.max.bytes.per.second`; infinite for no limit.

    Source: org.apache.kafka.storage.internals.utils.Throttler.
    """

    __slots__ = ("_bytes_per_ms", "_clock", "_due_ms")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_ms = max(bytes_per_second, 1.0) / 1000.0
        self._due_ms = -math.inf  # the earliest time at which the noted bytes are within the limit

    def note(self, size: int) -> None:
        """Count `size` bytes read or written; sleep if that exceeds the limit."""
        if math.isinf(self._bytes_per_ms):
            return
        now_ms = self._clock.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms) + size / self._bytes_per_ms
        if self._due_ms - now_ms >= _WORTH_WAITING_MS:
            self._clock.sleep_ms(self._due_ms - now_ms)


def group_segments(
    segments: Sequence[Segment], config: LogConfig, end_offset: int
) -> list[list[Segment]]:
    """Group neighbouring segments whose current contents fit into one segment.

    Args:
        segments: The segments to clean, ascending.
        config: The topic's settings: `segment.bytes`, `segment.index.bytes`.
        end_offset: The first offset that cannot be cleaned.

    Source: Cleaner.groupSegmentsBySize.
    """
    groups: list[list[Segment]] = []
    sizes = [0, 0, 0]
    limits = (config.effective_segment_bytes, config.segment_index_bytes)
    for at, segment in enumerate(segments):
        own = _sizes(segment)
        next_base = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        total = [before + more for before, more in zip(sizes, own, strict=True)]
        if (
            groups
            and total[0] <= limits[0]
            and max(total[1:]) <= limits[1]
            # Offsets in a segment are int32, relative to its base.
            and (own[0] == 0 or next_base - 1 - groups[-1][0].base_offset <= MAX_INT32)
        ):
            groups[-1].append(segment)
            sizes = total
        else:
            groups.append([segment])
            sizes = own
    return groups


def _sizes(segment: Segment) -> list[int]:
    """Return the bytes of a segment's log, offset index and time index."""
    return [
        segment.size,
        len(segment.offset_index) * OFFSET_ENTRY_SIZE,
        len(segment.time_index) * TIME_ENTRY_SIZE,
    ]


def map_offsets(
    fs: FileSystem, segments: Segments, start: int, end: int, offset_map: OffsetMap
) -> Iterator[int]:
    """Put the keys of the dirty section into the map, until it is full.

    Args:
        fs: The file system of the segments.
        segments: The log's segments.
        start: The start of the dirty section.
        end: Its end.
        offset_map: An empty map.

    Yields:
        The bytes read, chunk by chunk.

    Raises:
        CorruptRecordError: A batch is damaged.
        StorageError: A file cannot be read.

    Source: Cleaner.buildOffsetMap.
    """
    dirty = segments_between(segments, start, end)
    transactions = CleanedTransactions()
    transactions.add(aborted_between(segments, start, end))
    ends = [*(segment.base_offset for segment in dirty[1:]), end]
    for segment, segment_end in zip(dirty, ends, strict=True):
        for size, is_full in _map_segment(fs, segment, start, offset_map, transactions):
            yield size
            if is_full:
                return
        offset_map.update_latest_offset(segment_end - 1)


def _map_segment(
    fs: FileSystem,
    segment: Segment,
    start: int,
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
) -> Iterator[tuple[int, bool]]:
    """Put the keys of one segment into the map; yield bytes read, and whether the map is full."""
    found = segment.translate_offset(start)
    position = segment.size if found is None else found.position
    records = FileRecords(fs, segment.path, writable=False)
    for chunk in sound_chunks(records, position, segment.size, chunk_size=CHUNK_SIZE):
        for run, slots in locate(
            chunk.buffer,
            chunk.scan.table,
            max_decompressed=segment.config.readable_decompressed_bytes,
            path=segment.path,
            position=chunk.position,
        ):
            if not _put(run, slots, start, offset_map, transactions):
                yield chunk.scan.consumed, True
                return
        yield chunk.scan.consumed, False
    records.close()


def _put(
    table: BatchTable,
    records: RecordSlots,
    start: int,
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
) -> bool:
    """Put the keys of batches into the map; return False if it is full before the end."""
    left_out = transactions.discardable(table, records) | table.is_control
    done = offset_map.put(records, ~left_out, start)
    is_whole = done == len(records.slots)
    count = len(table)
    if not is_whole:
        count = int(np.searchsorted(np.cumsum(records.rows), done, side="right"))
    if count and int(table.last_offset[count - 1]) >= start:
        offset_map.update_latest_offset(int(table.last_offset[count - 1]))
    return is_whole


class CleaningRound:
    """A round; its owner holds the partition's maintenance lock from the first step to the last.

    Args:
        root: The log root of the partition.
        log: The partition, caught up.
        cleanable: The part to clean.
        offset_map: An empty map.
        throttle: Limits the speed.

    Attributes:
        report: The work done so far.
    """

    def __init__(
        self,
        root: LogRoot,
        log: PartitionLog,
        cleanable: Cleanable,
        *,
        offset_map: OffsetMap,
        throttle: Throttle,
    ) -> None:
        self._root, self._fs, self._clock, self._log = root, root.fs, root.clock, log
        self._cleanable, self._map, self._throttle = cleanable, offset_map, throttle
        self._segments: Segments = log.segments
        self._transactions = CleanedTransactions()
        self._rules = KeepRules(
            offset_map=offset_map,
            transactions=self._transactions,
            last_records=last_records(log.producers),
            round_end=cleanable.end_offset,
            now_ms=root.clock.now_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
        )
        self._legacy_horizon_ms = self._find_legacy_horizon()
        self.report = CleanReport(
            topic_partition=cleanable.topic_partition,
            first_dirty_offset=cleanable.first_dirty_offset,
            end_offset=cleanable.end_offset,
        )
        self._steps = self._run()

    def _find_legacy_horizon(self) -> int:
        """Return the mtime of a segment up to which its tombstones of v0 and v1 are removed."""
        first_dirty = self._cleanable.first_dirty_offset
        clean = [each for each in self._segments if each.base_offset < first_dirty]
        if not clean:
            return 0
        return self._mtime_ms(clean[-1]) - self._log.config.delete_retention_ms

    def go_on(self, should_pause: Callable[[], bool]) -> CleanReport:
        """Work until the round is done or `should_pause` returns True.

        Raises:
            CorruptRecordError: A batch is damaged; replaced segments stay replaced.
            UnavailableError: A segment was deleted meanwhile, or a file operation failed.
        """
        started_ms = self._clock.monotonic_ms()
        try:
            for _ in self._steps:
                if should_pause():
                    break
        except FileMissingError as error:
            raise self._changed() from error
        finally:
            self.report.duration_ms += self._clock.monotonic_ms() - started_ms
        return self.report

    def _run(self) -> Iterator[None]:
        if self._cleanable.cleanable_bytes == 0:
            self.report.end_offset = self._cleanable.first_dirty_offset
            self.report.is_finished = True
            return
        remove_cleaned(self._fs, self._log.path)  # left by a process that was killed
        yield from self._map_offsets()
        end = self.report.end_offset
        cleaned = [each for each in self._segments if each.base_offset < end]
        groups = group_segments(cleaned, self._log.config, self._cleanable.end_offset)
        for group in groups:
            yield from self._clean(group)
        marks = {self._cleanable.topic_partition: end}
        write_cleaner_offsets(self._root, marks)
        self.report.is_finished = True
        _logger.info("cleaned %s", self.report)

    def _map_offsets(self) -> Iterator[None]:
        start, end = self._cleanable.first_dirty_offset, self._cleanable.end_offset
        for size in map_offsets(self._fs, self._segments, start, end, self._map):
            self.report.bytes_indexed += size
            self._throttle.note(size)
            yield
        self.report.keys = self._map.size
        self.report.end_offset = self._map.latest_offset + 1
        self.report.is_map_full = self.report.end_offset < end

    # ---- one group of segments ---------------------------------------------------------------
    def _clean(self, group: Sequence[Segment]) -> Iterator[None]:
        """Write the remaining records of a group into one segment, and replace the group by it."""
        cleaned = Segment.create(
            self._fs,
            self._log.path,
            group[0].base_offset,
            config=self._log.config,
            now_ms=self._rules.now_ms,
            suffix=SegmentSuffix.CLEANED,
        )
        try:
            for at, segment in enumerate(group):
                is_last = at + 1 == len(group)
                end = segment.next_offset() if is_last else group[at + 1].base_offset
                yield from self._clean_into(cleaned, segment, end)
            cleaned.seal()
            cleaned.sync()
            # Retention by time and the age of legacy tombstones depend on a segment's mtime.
            self._fs.set_mtime(cleaned.path, self._mtime_ms(group[-1]))
            self._put_in_place(group, cleaned)
        except StorageError:
            cleaned.close()
            raise
        self.report.segments_before += len(group)
        self.report.segments_after += 1
        yield

    def _clean_into(self, cleaned: Segment, segment: Segment, end: int) -> Iterator[None]:
        self._transactions.add(aborted_between(self._segments, segment.base_offset, end))
        keeps_tombstones = self._mtime_ms(segment) > self._legacy_horizon_ms
        records = FileRecords(self._fs, segment.path, writable=False)
        for chunk in sound_chunks(records, 0, segment.size, chunk_size=CHUNK_SIZE):
            written = self._filter(
                cleaned, chunk, segment.path, keeps_legacy_tombstones=keeps_tombstones
            )
            self.report.bytes_read += chunk.scan.consumed
            self.report.bytes_written += written
            self._throttle.note(chunk.scan.consumed + written)
            yield
        records.close()

    def _filter(
        self, cleaned: Segment, chunk: Chunk, path: str, *, keeps_legacy_tombstones: bool
    ) -> int:
        """Append the remaining records of a chunk to the cleaned segment; return their bytes."""
        size = 0
        for run, records in locate(
            chunk.buffer,
            chunk.scan.table,
            max_decompressed=self._log.config.readable_decompressed_bytes,
            path=path,
            position=chunk.position,
        ):
            selection = self._rules.select(
                run, records, keeps_legacy_tombstones=keeps_legacy_tombstones
            )
            kept = filter_batches(chunk.buffer, run, records, selection)
            if len(kept.table):
                cleaned.append(kept.buffer, kept.table)
            for aborted in self._transactions.take_retained():
                cleaned.append_aborted(aborted)
            size += len(kept.buffer)
            self.report.records_read += len(records.slots)
            self.report.records_written += int(kept.table.count.sum())
        return size

    def _put_in_place(self, group: Sequence[Segment], cleaned: Segment) -> None:
        with self._log.locked():
            found = [self._log.segments.find(segment.base_offset) for segment in group]
            current = [each for each in found if each is not None]
            if len(current) < len(group) or any(each.is_replaced() for each in group):
                raise self._changed()
            self._log.replace_segments(current, cleaned)

    def _mtime_ms(self, segment: Segment) -> int:
        found = self._fs.stat(segment.path)
        if found is None:
            raise self._changed()
        return found.mtime_ms

    def _changed(self) -> UnavailableError:
        return UnavailableError(
            "segments were deleted or replaced during cleaning",
            path=self._log.path,
            got="a different list of segments",
            hint="nothing is lost; the next round starts over",
        )
