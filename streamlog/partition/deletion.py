"""Segments on their way out: set aside at once, removed when nobody can be reading them any more.

    00000000000000000000.log             a live segment
    00000000000000000000.log.deleted     set aside: no part of the log, its bytes are still there

Who has a file open goes on reading it under either name; who listed the directory just before
finds it gone, and lists again. After `file.delete.delay.ms` the files are removed by whoever
comes first: maintenance, or the next opening for writing. That time counts from the last change
of the file, so setting aside stamps the files first.

Setting aside is done under the partition's lock; removing needs none.

Source: LocalLog.deleteSegmentFiles, LogSegment.deleteIfExists.
"""

import contextlib
import re
from collections.abc import Iterable
from typing import Final

from streamlog.errors import FileMissingError
from streamlog.fs.api import FileSystem
from streamlog.segment.filenames import (
    FileSuffix,
    SegmentFileName,
    SegmentSuffix,
    parse_segment_file_name,
    segment_file_name,
)
from streamlog.segment.segment import Segment

__all__ = ["remove_due", "set_aside", "set_aside_below", "set_aside_file"]

_OF_A_SEGMENT: Final = frozenset(FileSuffix) - {FileSuffix.PRODUCER_SNAPSHOT}
_TORN: Final = re.compile(r"([0-9]{20})\.log\.torn-[0-9]+", re.ASCII)


def set_aside(fs: FileSystem, segments: Iterable[Segment], *, now_ms: int) -> None:
    """Take segments out of the log, the oldest first; who has them open goes on reading.

    The directory is left to the caller to sync.

    Args:
        fs: Where they lie.
        segments: They may be empty, and may lack indexes.
        now_ms: The time.

    Raises:
        StorageError: A file cannot be renamed; those before it are.
    """
    for segment in segments:
        for kind in _OF_A_SEGMENT:
            path = f"{segment.directory}/{segment_file_name(segment.base_offset, kind)}"
            with contextlib.suppress(FileMissingError):
                fs.set_mtime(path, now_ms)
        segment.rename_suffix(SegmentSuffix.NONE, SegmentSuffix.DELETED)


def set_aside_file(fs: FileSystem, directory: str, file: SegmentFileName, *, now_ms: int) -> None:
    """Take one file of a segment out of the log; the directory is left to the caller to sync.

    Raises:
        StorageError: It cannot be renamed.
    """
    path = f"{directory}/{segment_file_name(*file)}"
    fs.set_mtime(path, now_ms)
    target = segment_file_name(file.base_offset, file.kind, SegmentSuffix.DELETED)
    fs.rename(path, f"{directory}/{target}")


def set_aside_below(fs: FileSystem, directory: str, base_offset: int, *, now_ms: int) -> int:
    """Take whatever lies below a log's first segment out of it, durably.

    That is what a process that died while it set segments aside has left: whole segments, or
    indexes without a log. Tails that recovery once cut from them go for good.

    Args:
        fs: Where the partition lies.
        directory: Its directory.
        base_offset: Of the first segment that stays.
        now_ms: The time.

    Returns:
        How many files that were.

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
    """Remove the files that were set aside some time ago.

    Two processes may do this at once. Of a file from further ahead than the delay the clock has
    gone back since: it must not stay until that time comes again.

    Args:
        fs: Where the partition lies.
        directory: Its directory.
        names: What it holds.
        now_ms: The time.
        delay_ms: `file.delete.delay.ms`.

    Returns:
        How many files were set aside just now, and stay.

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
