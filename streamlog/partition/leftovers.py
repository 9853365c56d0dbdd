"""Segments on their way out, and files between two names that a crash left in a partition.

*Deletion* has two steps. A segment that leaves the log is set aside at once:

    00000000000000000000.log             a live segment
    00000000000000000000.log.deleted     set aside: not part of the log, its bytes still there

A process with the file open goes on reading it under either name; one that listed the directory
just before finds it gone, and lists again. After `file.delete.delay.ms` the files are removed, by
maintenance or by the next opening for writing. The delay counts from the last change of the file,
so setting aside touches the files first. Setting aside requires the partition's lock; removing
does not.

*Replacement*, as after compaction or after a segment was split, writes its result as `.cleaned`
and syncs it. All of it is renamed to `.swap`, the highest base first; the segments it replaces
are renamed to `.deleted`; then the suffix `.swap` is removed. Names alone tell how far this got:

    a `.cleaned`      not everything is `.swap` yet: each `.swap` at or above the lowest `.cleaned`
                      belongs to it. All of these are removed; the segments to replace still stand.
    only `.swap`      everything is written and durable. It replaces every segment from the first
                      base of a `.swap` up to the end of the last one.
    a `.deleted`      was replaced, or lay below the log start.
    a temporary file  of a snapshot, a checkpoint or a copy of a log was never put in place: it is
                      removed. One of `partition.metadata`, which is written without the
                      partition's lock, is removed when it is an hour old.

Renaming requires the partition's lock. A reader, which has no lock, reads the log as it will be
after the replacement: `live_logs`.

Source: LocalLog.deleteSegmentFiles, LogSegment.deleteIfExists,
LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

import contextlib
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptRecordError, FileMissingError
from streamlog.fs.api import FileSystem
from streamlog.fs.names import TEMPORARY_SUFFIX, remove_stale_temporaries, temporary_base
from streamlog.partition.epochs import LEADER_EPOCH_CHECKPOINT
from streamlog.partition.partition_metadata import PARTITION_METADATA
from streamlog.segment.filenames import (
    FileSuffix,
    SegmentFileName,
    SegmentSuffix,
    base_offsets,
    parse_segment_file_name,
    segment_file_name,
)
from streamlog.segment.segment import Segment

__all__ = [
    "LogFile",
    "finish",
    "has_swaps",
    "live_logs",
    "remove_cleaned",
    "remove_due",
    "set_aside",
    "set_aside_below",
    "set_aside_file",
]

_OF_A_SEGMENT: Final = frozenset(FileSuffix) - {FileSuffix.PRODUCER_SNAPSHOT}
_TORN: Final = re.compile(r"([0-9]{20})\.log\.torn-[0-9]+", re.ASCII)

_logger = logging.getLogger(__name__)


class LogFile(NamedTuple):
    """A log file that belongs to the log: its base offset, and the suffix it still has."""

    base_offset: int
    suffix: SegmentSuffix = SegmentSuffix.NONE


def live_logs(fs: FileSystem, directory: str, config: LogConfig) -> list[LogFile]:
    """Return the log files that make up the log, ascending; changes nothing.

    Args:
        fs: Where they lie.
        directory: The partition's directory.
        config: The topic's settings.

    Raises:
        CorruptRecordError: A `.swap` log is damaged.
        StorageError: The directory or a file cannot be read.
    """
    names = fs.list(directory)
    plain = base_offsets(names)
    swaps = _complete_swaps(_parse(names)) if has_swaps(names) else []
    if not swaps:
        return [LogFile(base) for base in plain]
    end = _end_of_swaps(fs, directory, swaps, config)
    kept = [LogFile(base) for base in plain if not swaps[0] <= base < end]
    return sorted([*kept, *(LogFile(base, SegmentSuffix.SWAP) for base in swaps)])


def has_swaps(names: Iterable[str]) -> bool:
    """Whether there are `.swap` files."""
    swaps = (name for name in names if name.endswith(SegmentSuffix.SWAP.value))
    return any(parse_segment_file_name(name) is not None for name in swaps)


def finish(
    fs: FileSystem,
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    is_being_cleaned: bool = False,
) -> None:
    """Complete a replacement that a crash interrupted, or undo it; requires the partition's lock.

    A crash meanwhile leaves names from which the next call continues.

    Args:
        fs: Where the partition lies.
        directory: Its directory.
        config: The topic's settings.
        now_ms: The time.
        is_being_cleaned: Whether a live process compacts it now: its `.cleaned` files stay.

    Raises:
        CorruptRecordError: A `.swap` log is damaged; nothing was replaced.
        StorageError: A file cannot be read, renamed or removed.
    """
    names = fs.list(directory)
    _remove_temporaries(fs, directory, names, now_ms)
    files = [file for file in _parse(names) if file.suffix is not SegmentSuffix.NONE]
    if not files:
        return
    remove_due(fs, directory, names, now_ms=now_ms, delay_ms=config.file_delete_delay_ms)
    swaps = _complete_swaps(files)
    lowest = _lowest_cleaned(files)
    swapped = [file for file in files if file.suffix is SegmentSuffix.SWAP]
    # Swaps first: without a `.cleaned` next to them they would look like a finished compaction.
    _remove(fs, directory, [file for file in swapped if file.base_offset >= lowest])
    if not is_being_cleaned:
        remove_cleaned(fs, directory)
    if swaps:
        _replace(fs, directory, swaps, _end_of_swaps(fs, directory, swaps, config), now_ms)
    for file in swapped:
        if file.base_offset < lowest:
            _put_in_place(fs, directory, file)
    fs.sync_directory(directory)


def remove_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove the files of a compaction that did not finish."""
    files = _parse(fs.list(directory))
    _remove(fs, directory, [file for file in files if file.suffix is SegmentSuffix.CLEANED])


def _remove_temporaries(fs: FileSystem, directory: str, names: Iterable[str], now_ms: int) -> None:
    """Remove temporary files of snapshots, checkpoints and copies of logs."""
    for name in names:
        base = temporary_base(name)
        if base is None and name.endswith(TEMPORARY_SUFFIX):  # as older releases named them
            base = name.removesuffix(TEMPORARY_SUFFIX)
        if base is None:
            continue
        file = parse_segment_file_name(base)
        is_ours = base == LEADER_EPOCH_CHECKPOINT or (
            file is not None and file.kind in (FileSuffix.PRODUCER_SNAPSHOT, FileSuffix.LOG)
        )
        if is_ours:
            fs.remove(f"{directory}/{name}")
        elif base == PARTITION_METADATA:
            remove_stale_temporaries(fs, directory, now_ms=now_ms)


def _remove(fs: FileSystem, directory: str, files: Sequence[SegmentFileName]) -> None:
    """Remove files of a compaction that cannot be completed, durably."""
    for file in files:
        name = segment_file_name(*file)
        _logger.warning("[%s] removed %s of an unfinished compaction", directory, name)
        fs.remove(f"{directory}/{name}")
    if files:
        fs.sync_directory(directory)


def _parse(names: Iterable[str]) -> list[SegmentFileName]:
    """Return the files of segments, ordered by base offset, each log after its indexes."""
    parsed = [file for name in names if (file := parse_segment_file_name(name)) is not None]
    return sorted(parsed, key=lambda file: (file.base_offset, file.kind is FileSuffix.LOG))


def _is_log(file: SegmentFileName, suffix: SegmentSuffix) -> bool:
    return file.kind is FileSuffix.LOG and file.suffix is suffix


def _lowest_cleaned(files: Sequence[SegmentFileName]) -> float:
    cleaned = (file.base_offset for file in files if file.suffix is SegmentSuffix.CLEANED)
    return min(cleaned, default=float("inf"))


def _complete_swaps(files: Sequence[SegmentFileName]) -> list[int]:
    """Return the base offsets of the complete `.swap` logs, ascending."""
    limit = _lowest_cleaned(files)
    return [
        file.base_offset
        for file in files
        if _is_log(file, SegmentSuffix.SWAP) and file.base_offset < limit
    ]


def _end_of_swaps(fs: FileSystem, directory: str, swaps: Sequence[int], config: LogConfig) -> int:
    """Return the offset after the last `.swap` log; all of them must be sound."""
    end = 0
    for base in swaps:
        segment = Segment.open(
            fs, directory, base, config=config, writable=False, suffix=SegmentSuffix.SWAP
        )
        size = segment.size
        segment.extend()
        if segment.size != size:
            raise CorruptRecordError(
                "a log that compaction was about to swap in is damaged",
                path=segment.path,
                position=segment.size,
                offset=segment.next_offset(),
                expected=f"{size} bytes of whole batches",
                hint="remove it if the segments that it replaces still exist",
            )
        # An empty one replaces the segment of its base offset.
        end = max(end, segment.next_offset(), base + 1)
        segment.close()
    return end


def _replace(fs: FileSystem, directory: str, swaps: Sequence[int], end: int, now_ms: int) -> None:
    """Set aside the segments that the `.swap` logs replace."""
    _logger.warning(
        "[%s] completed a compaction: segments from %d up to %d are replaced by %s",
        directory,
        swaps[0],
        end,
        ", ".join(map(str, swaps)),
    )
    for file in _parse(fs.list(directory)):
        is_replaced = file.suffix is SegmentSuffix.NONE and file.kind in _OF_A_SEGMENT
        if is_replaced and swaps[0] <= file.base_offset < end:
            set_aside_file(fs, directory, file, now_ms=now_ms)
    fs.sync_directory(directory)


def _put_in_place(fs: FileSystem, directory: str, file: SegmentFileName) -> None:
    target = segment_file_name(*file._replace(suffix=SegmentSuffix.NONE))
    fs.rename(f"{directory}/{segment_file_name(*file)}", f"{directory}/{target}")


def set_aside(fs: FileSystem, segments: Iterable[Segment], *, now_ms: int) -> None:
    """Set segments aside, the oldest first; handles that have them open can still read them.

    The caller syncs the directory.

    Args:
        fs: Where they lie.
        segments: They may be empty, and may lack indexes.
        now_ms: The time.

    Raises:
        StorageError: A file cannot be renamed; earlier ones are.
    """
    for segment in segments:
        for kind in _OF_A_SEGMENT:
            path = f"{segment.directory}/{segment_file_name(segment.base_offset, kind)}"
            with contextlib.suppress(FileMissingError):
                fs.set_mtime(path, now_ms)
        segment.rename_suffix(SegmentSuffix.NONE, SegmentSuffix.DELETED)


def set_aside_file(fs: FileSystem, directory: str, file: SegmentFileName, *, now_ms: int) -> None:
    """Set one file of a segment aside; the caller syncs the directory."""
    path = f"{directory}/{segment_file_name(*file)}"
    fs.set_mtime(path, now_ms)
    target = segment_file_name(file.base_offset, file.kind, SegmentSuffix.DELETED)
    fs.rename(path, f"{directory}/{target}")


def set_aside_below(fs: FileSystem, directory: str, base_offset: int, *, now_ms: int) -> int:
    """Set aside all files below a log's first segment, durably.

    A process that died while it set segments aside leaves them: whole segments, or indexes
    without a log. Copies of torn tails of such segments are removed.

    Args:
        fs: Where the partition lies.
        directory: Its directory.
        base_offset: The base offset of the first segment that stays.
        now_ms: The time.

    Returns:
        The number of files.

    Raises:
        StorageError: A file cannot be renamed or removed.
    """
    count = 0
    for name in fs.list(directory):
        file, torn = parse_segment_file_name(name), _TORN.fullmatch(name)
        if torn is not None and int(torn[1]) < base_offset:
            fs.remove(f"{directory}/{name}")
            count += 1
        elif file is not None and file.base_offset < base_offset and _is_live(file):
            set_aside_file(fs, directory, file, now_ms=now_ms)
            count += 1
    if count:
        fs.sync_directory(directory)
    return count


def _is_live(file: SegmentFileName) -> bool:
    return file.suffix is SegmentSuffix.NONE and file.kind in _OF_A_SEGMENT


def remove_due(
    fs: FileSystem, directory: str, names: Iterable[str], *, now_ms: int, delay_ms: int
) -> int:
    """Remove the files that were set aside at least `delay_ms` ago.

    Two processes may do this at the same time. A file that is dated further in the future than
    the delay is removed too: the clock was set back, and the file must not stay until then.

    Args:
        fs: Where the partition lies.
        directory: Its directory.
        names: The names in it.
        now_ms: The time.
        delay_ms: `file.delete.delay.ms`.

    Returns:
        The number of files that stay for now.

    Raises:
        StorageError: A file cannot be removed.
    """
    waiting = 0
    for name in names:
        file = parse_segment_file_name(name) if name.endswith(".deleted") else None
        if file is None:
            continue
        path = f"{directory}/{name}"
        found = fs.stat(path)
        if found is not None and abs(now_ms - found.mtime_ms) < delay_ms:
            waiting += 1
        else:
            with contextlib.suppress(FileMissingError):
                fs.remove(path)
    return waiting
