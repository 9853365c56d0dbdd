"""What recovery cuts from the end of a log file, kept in a file of its own.

    00000000000000368769.log.torn-1

The bytes as they were. Zeros at the very end say nothing and are left out.
"""

import contextlib
from typing import Final

from streamlog.errors import FileMissingError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.segment.file_records import CHUNK_SIZE, FileRecords
from streamlog.segment.filenames import torn_file_name

__all__ = ["MAX_TORN_FILES", "keep_tail"]

MAX_TORN_FILES: Final = 8


def keep_tail(fs: FileSystem, records: FileRecords, position: int, end: int) -> str | None:
    """Copy what is going to be cut into a file of its own, durably.

    Zeros at the very end say nothing and are not kept. A tail that is kept already is not kept
    twice; of more than `MAX_TORN_FILES` the oldest gives way.

    Args:
        fs: Where the segment lies.
        records: The log file.
        position: Where it is going to be cut.
        end: Where it ends.

    Returns:
        The file's path, None where there are only zeros.
    """
    end = _end_of_non_zeros(records, position, end)
    if end == position:
        return None
    path = _torn_path(fs, records, position, end)
    if fs.stat(path) is None:
        with fs.open(path, OpenMode.CREATE) as file:
            for start in range(position, end, CHUNK_SIZE):
                piece = records.file.pread(min(CHUNK_SIZE, end - start), start)
                file.pwrite(piece, start - position)
            file.sync()
    fs.sync_directory(records.path.rpartition("/")[0])
    return path


def _end_of_non_zeros(records: FileRecords, position: int, end: int) -> int:
    while end > position:
        start = max(position, end - CHUNK_SIZE)
        kept = records.file.pread(end - start, start).rstrip(b"\0")
        if kept:
            return start + len(kept)
        end = start
    return position


def _torn_path(fs: FileSystem, records: FileRecords, position: int, end: int) -> str:
    """Return a path that is free, or that holds these very bytes."""
    ages: list[tuple[int, str]] = []
    for number in range(1, MAX_TORN_FILES + 1):
        path = torn_file_name(records.path, number)
        found = fs.stat(path)
        if found is None:
            return path
        if found.size == end - position and _holds(fs, path, records, position):
            return path
        ages.append((found.mtime_ns, path))
    oldest = min(ages)[1]
    with contextlib.suppress(FileMissingError):
        fs.remove(oldest)
    return oldest


def _holds(fs: FileSystem, path: str, records: FileRecords, position: int) -> bool:
    """Tell whether the file holds what `records` has from `position` on, as far as it goes."""
    with fs.open(path, OpenMode.READ) as file:
        start = 0
        while piece := file.pread(CHUNK_SIZE, start):
            if records.file.pread(len(piece), position + start) != piece:
                return False
            start += len(piece)
    return True
