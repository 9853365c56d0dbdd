"""Opening a partition's directory for writing: adopt the last writer's state, or recover.

*Adopt*: the shared state in the lock file is of this boot and clean, and the directory matches it.
Nothing is scanned; opening takes the same time for a byte and for a gigabyte.

*Recover*: everything else. Segments from the recovery point on are scanned batch by batch, torn
tails are truncated (a copy is kept), damage is refused, indexes are rebuilt, and epochs are
adjusted. Bytes that were scanned in this boot, before a writer died, are not scanned again.

Records that were acknowledged and lie above the log start are never deleted. Source:
LogLoader.load, with the differences listed in `streamlog/SKIPPED.md`.
"""

import itertools
import logging
from collections.abc import Collection
from typing import NamedTuple

from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptDataError, CorruptRecordError, StorageError
from streamlog.fs.api import FileKind, FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition import leftovers
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.lock_states import DISTRUSTED
from streamlog.partition.locks import SharedState, is_being_maintained
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.partition_metadata import PARTITION_METADATA
from streamlog.partition.producers import ProducerStateManager
from streamlog.partition.segments import Segments
from streamlog.records.batch import BatchTable
from streamlog.records.layout import NO_PARTITION_LEADER_EPOCH
from streamlog.segment.filenames import (
    FileSuffix,
    base_offsets,
    log_file_name,
    segment_file_name,
)
from streamlog.segment.recovery import Restore
from streamlog.segment.segment import Segment
from streamlog.segment.walk import how_to_go_on
from streamlog.topic import TopicPartition

__all__ = ["LoadedLog", "adopt", "recover"]

_logger = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """A partition as it was adopted or recovered."""

    segments: Segments
    offsets: LogOffsets
    epochs: LeaderEpochCache
    tail_was_cut: bool


class PartitionDirectory(NamedTuple):
    """A partition's directory and the settings to open it with."""

    root: LogRoot
    path: str
    partition: TopicPartition
    config: LogConfig


def adopt(directory: PartitionDirectory, state: SharedState, known: Segments) -> LoadedLog | None:
    """Adopt the state that the last writer of this boot left; None if the files do not match.

    Args:
        directory: The partition.
        state: The shared state, of this boot and clean.
        known: Segments that this process has open; sealed ones are reused.
    """
    fs, path = directory.root.fs, directory.path
    names = fs.list(path)
    bases = base_offsets(names)
    if not bases or bases[-1] != state.active_base_offset or leftovers.has_swaps(names):
        return None
    found = fs.stat(f"{path}/{log_file_name(bases[-1])}")
    if found is None or found.kind is not FileKind.FILE or found.size != state.active_size:
        return None
    segments = Segments(
        (None if base == bases[-1] else known.find_current(base))
        or Segment.open(fs, path, base, config=directory.config, writable=True)
        for base in bases
    )
    for segment in list(segments)[:-1]:
        if known.find(segment.base_offset) is not segment:
            _complete_indexes(fs, segment, names)
    close_replaced(known, segments)
    return LoadedLog(
        segments=segments,
        offsets=state.offsets,
        epochs=LeaderEpochCache.load(fs, path),
        tail_was_cut=False,
    )


def _complete_indexes(fs: FileSystem, segment: Segment, names: Collection[str]) -> None:
    """Rebuild missing index files of a sealed segment, for instance after a full disk at the roll.

    Indexes are hints: if this fails, the segment is read without them.
    """
    wanted = [
        segment_file_name(segment.base_offset, kind)
        for kind in (FileSuffix.OFFSET_INDEX, FileSuffix.TIME_INDEX)
    ]
    if segment.is_empty or all(name in names for name in wanted):
        return
    _logger.warning("an index of %s is missing and is rebuilt", segment.path)
    try:
        segment.seal()
        segment.offset_index.file.sync()
        segment.time_index.file.sync()
        fs.sync_directory(segment.directory)
    except (CorruptDataError, StorageError) as error:
        _logger.warning("an index of %s cannot be rebuilt for now: %s", segment.path, error)


def recover(
    directory: PartitionDirectory,
    *,
    log_start_offset: int,
    durable_offset: int | None,
    scanned: SharedState | None,
    lost_power: bool,
    restore: Restore,
    now_ms: int,
) -> LoadedLog:
    """Scan a partition from its recovery point on, truncate a torn tail, refuse damage.

    Args:
        directory: The partition.
        log_start_offset: The log start in the checkpoint, 0 without a row.
        durable_offset: The recovery point: records below it were synced. None: unknown.
        scanned: A shared state of this boot whose writer died during a change: bytes before its
            active size were sound then, and there was no power cut since.
        lost_power: Whether the machine went down since the last writer.
        restore: Returns batches of decided commits, to fill holes. The caller applies what is
            missing of them at the log end.
        now_ms: The time.

    Returns:
        The partition; its epochs include those that start above the log end, which are not
        stored: a new epoch must be above them.

    Raises:
        CorruptRecordError: Acknowledged bytes are damaged; names file, position and offset.
        StorageError: A file cannot be read, truncated or written.
    """
    fs, path = directory.root.fs, directory.path
    if any(name != PARTITION_METADATA for name in fs.list(path)):
        fs.sync_directory(path)  # a process that rolled may have died
    is_being_cleaned = is_being_maintained(directory.root, directory.partition)
    leftovers.finish(fs, path, directory.config, now_ms, is_being_cleaned=is_being_cleaned)
    bases = base_offsets(fs.list(path))
    if bases:
        leftovers.set_aside_below(fs, path, bases[0], now_ms=now_ms)
    elif durable_offset is not None and durable_offset > log_start_offset:
        raise _all_gone(path, log_start_offset, durable_offset)
    epochs = LeaderEpochCache.load(fs, path)
    opened = [Segment.open(fs, path, b, config=directory.config, writable=True) for b in bases]
    first = _first_to_scan(bases, durable_offset, scanned)
    scan = _Scan(
        directory,
        opened,
        epochs,
        durable_offset,
        lost_power=lost_power,
        restore=restore,
        now_ms=now_ms,
    )
    for at, segment in enumerate(opened):
        if at >= first or segment.needs_recovery:
            scan.recover(at)
    _check_order(opened)
    if not opened or opened[-1].next_offset() < log_start_offset:
        opened = [_start_anew(directory, opened, log_start_offset, now_ms)]
    segments = Segments(opened)
    start, end = max(log_start_offset, segments[0].base_offset), segments.active.next_offset()
    epochs.truncate_from_start(log_start_offset)
    return LoadedLog(
        segments=segments,
        offsets=LogOffsets.of_one_replica(start, end, min(durable_offset or 0, end)),
        epochs=epochs,
        tail_was_cut=scan.tail_was_cut,
    )


def _all_gone(path: str, log_start_offset: int, durable_offset: int) -> CorruptRecordError:
    return CorruptRecordError(
        "synced records are lost, so no new segment was created",
        path=path,
        offset=log_start_offset,
        got="a partition without any segment",
        expected=f"records up to offset {durable_offset}, as the recovery point says",
        hint=how_to_go_on(f"{path}/{log_file_name(log_start_offset)}"),
    )


def _start_anew(
    directory: PartitionDirectory, segments: list[Segment], log_start_offset: int, now_ms: int
) -> Segment:
    """Return a new, empty first segment; set aside segments below the log start."""
    fs, path = directory.root.fs, directory.path
    for segment in segments:
        _logger.warning("[%s] %s lies below the log start", directory.partition, segment.path)
        segment.close()
    leftovers.set_aside(fs, segments, now_ms=now_ms)
    fresh = Segment.create(fs, path, log_start_offset, config=directory.config, now_ms=now_ms)
    fresh.sync_names()
    return fresh


def close_replaced(old: Segments, new: Segments) -> None:
    """Close the segments of `old` that `new` does not hold."""
    for segment in old:
        if new.find(segment.base_offset) is not segment:
            segment.close()


def _first_to_scan(
    bases: list[int], durable_offset: int | None, scanned: SharedState | None
) -> int:
    """Return the index of the first segment whose bytes may differ from those written."""
    start = durable_offset or 0
    if scanned is not None and scanned.flags not in DISTRUSTED:
        start = max(start, scanned.active_base_offset)
    return max(0, sum(base <= start for base in bases) - 1)


class _Scan:
    """Recovers segments in order; each continues with the state that the previous one left."""

    def __init__(
        self,
        directory: PartitionDirectory,
        segments: list[Segment],
        epochs: LeaderEpochCache,
        durable_offset: int | None,
        *,
        lost_power: bool,
        restore: Restore,
        now_ms: int,
    ) -> None:
        self._directory, self._segments, self._epochs = directory, segments, epochs
        self._durable_offset, self._lost_power = durable_offset, lost_power
        self._restore = restore
        self._now_ms = now_ms
        self._previous_epoch = NO_PARTITION_LEADER_EPOCH
        self._recovered: tuple[int, ProducerStateManager] | None = None
        self.tail_was_cut = False

    def recover(self, at: int) -> None:
        """Recover segment `at`: log, indexes, and its epochs and aborted transactions."""
        segment = self._segments[at]
        producers = self._producers_before(at)
        segment.reset_aborted()

        def on_batch(table: BatchTable) -> None:
            self._epochs.assign_from(table)
            for aborted in producers.update(segment.read, table):
                segment.append_aborted(aborted)

        report = segment.recover(
            durable_offset=self._durable_offset,
            is_last=at == len(self._segments) - 1,
            on_batch=on_batch,
            previous_epoch=self._previous_epoch,
            lost_power=self._lost_power,
            restore=self._restore,
        )
        self._recovered = (at, producers)
        self._previous_epoch = max(self._previous_epoch, report.leader_epoch)
        if report.restored_size:
            _logger.warning(
                "[%s] restored %d bytes of decided commits, which were lost in %s",
                self._directory.partition,
                report.restored_size,
                segment.path,
            )
        if report.cut_size:
            self.tail_was_cut = True
            _logger.warning(
                "[%s] truncated %d bytes of a torn tail at byte %d of %s; they are kept in %s",
                self._directory.partition,
                report.cut_size,
                report.size,
                segment.path,
                report.kept_path or "no file: all of them were zeros",
            )

    def _producers_before(self, at: int) -> ProducerStateManager:
        """Return the state of producers at the start of segment `at`."""
        base_offset = self._segments[at].base_offset
        if self._recovered is not None and self._recovered[0] == at - 1:
            producers = self._recovered[1]  # built from the log itself, so no snapshot is better
            producers.on_high_watermark(base_offset)
            return producers
        return ProducerStateManager.load(
            self._directory.root.fs,
            self._directory.path,
            segments=self._segments[:at],
            log_start_offset=self._segments[0].base_offset,
            log_end_offset=base_offset,
            now_ms=self._now_ms,
        )


def _check_order(segments: list[Segment]) -> None:
    """Raise `CorruptRecordError` if a segment holds offsets of the next one."""
    for before, after in itertools.pairwise(segments):
        end = before.next_offset()
        found = before.translate_offset(after.base_offset)
        if found is not None:
            raise CorruptRecordError(
                "segments overlap",
                path=before.path,
                position=found.position,
                offset=after.base_offset,
                got=f"records up to offset {end - 1}",
                expected=f"none at or above {after.base_offset}, where the next segment starts",
            )
