"""The log file of a segment: record batches without gaps between them.

    <base offset>.log

    position 0            size of batch 0        … + size of batch 1
    | batch 0            | batch 1             | batch 2 …

Offsets ascend from batch to batch, and a batch states its own size, so the file can be walked from
position 0 or from any known start of a batch. The file is opened on first use and kept open, so
that reading continues after it was renamed or removed. When too many files are open
(`streamlog.fs.open_files`) it is released, and the next use opens it again and verifies that the
path still denotes the same file.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from threading import Lock
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer
from streamlog.errors import (
    CorruptIndexError,
    CorruptRecordError,
    FileExistsAlreadyError,
    FileMissingError,
    LimitExceededError,
)
from streamlog.fs.api import File, FileStat, FileSystem, OpenMode
from streamlog.fs.open_files import open_files
from streamlog.records.batch import PIECE_SIZE, BatchScan, BatchScanner, ScanStop, claimed_size
from streamlog.records.layout import (
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_OFFSET,
    LOG_OVERHEAD,
    MAX_INT32,
    MAX_INT64,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.legacy_layout import MIN_MESSAGE_SIZE
from streamlog.records.plain_headers import FEW, MIN_LENGTHS, numba_is_loaded
from streamlog.segment.offset_index import IndexEntry
from streamlog.segment.walk_layout import (
    CONTINUE,
    FOUND,
    NO_PROMISE,
    UNSOUND,
    WALK_PROMISED,
    WALK_WIDTH,
)

__all__ = [
    "CHUNK_SIZE",
    "MAX_SEGMENT_SIZE",
    "Chunk",
    "FileRecords",
    "HeaderWalk",
    "OffsetPosition",
    "TimestampAndOffset",
    "walk_to",
]

CHUNK_SIZE: Final = 4 << 20
MAX_SEGMENT_SIZE: Final = MAX_INT32  # positions in the offset index are int32
_PROBE_SIZE: Final = 8 << 10  # one index interval and a bit: most lookups need one read


class OffsetPosition(NamedTuple):
    """Position, size and offsets of a batch.

    Source: org.apache.kafka.common.record.FileRecords.LogOffsetPosition.
    """

    offset: int
    position: int
    size: int
    last_offset: int


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp.

    Source: org.apache.kafka.common.record.FileRecords.TimestampAndOffset.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


class Chunk(NamedTuple):
    """A piece of the file and the whole batches at its start.

    Attributes:
        position: Its position in the file.
        buffer: uint8[n], reused for the next chunk.
        scan: The batches; positions are relative to `buffer`.
        sound: How many of them, from the first, have the right checksum.
    """

    position: int
    buffer: NDArray[np.uint8]
    scan: BatchScan
    sound: int


class FileRecords:
    """A log file; see the module. Reading is safe from several threads.

    Args:
        fs: Its file system.
        path: Its path.
        writable: Whether it may be changed.

    Source: org.apache.kafka.common.record.FileRecords.
    """

    __slots__ = (
        "__weakref__",
        "_file",
        "_fs",
        "_inode",
        "_lock",
        "_mode",
        "is_listed",
        "path",
        "was_used",
    )

    def __init__(self, fs: FileSystem, path: str, *, writable: bool) -> None:
        self._fs = fs
        self._mode = OpenMode.WRITE if writable else OpenMode.READ
        self._file: File | None = None
        self.was_used = self.is_listed = False
        self._inode: int | None = None
        self._lock = Lock()
        self.path = path

    def create(self) -> None:
        """Create the file, or reuse an empty one.

        Raises:
            FileExistsAlreadyError: The file exists and is not empty.
        """
        found = self._fs.stat(self.path)
        if found is None:
            file = self._file = self._fs.open(self.path, OpenMode.CREATE)
            self._inode = file.stat().inode
            open_files.keep(self)
        elif found.size:
            raise FileExistsAlreadyError(
                "roll to a segment file that exists and is not empty",
                path=self.path,
                got=f"{found.size} bytes",
                expected="no file",
            )
        else:
            self._inode = found.inode

    def stat(self) -> FileStat:
        """Return facts about the file.

        Raises:
            FileMissingError: It does not exist.
            LimitExceededError: It is larger than a segment can be.
        """
        found = self._fs.stat(self.path)
        if found is None:
            raise FileMissingError("segment does not exist", path=self.path, operation="stat")
        if found.size > MAX_SEGMENT_SIZE:
            raise LimitExceededError(
                "log file exceeds the size limit of a segment",
                path=self.path,
                got=f"{found.size} bytes",
                expected=f"at most {MAX_SEGMENT_SIZE}",
            )
        self._inode = found.inode
        return found

    def is_replaced(self, size: int | None = None) -> bool:
        """Return whether the path now denotes another file, or none.

        Args:
            size: Size of the file if it cannot have grown; inode numbers are reused.
        """
        found = self._fs.stat(self.path)
        if found is None or (size is not None and found.size != size):
            return True
        return self._inode is not None and found.inode != self._inode

    def is_file_of(self, other: "FileRecords") -> bool:
        """Return whether another handle is known to have the same file, of the same path."""
        inode = self._inode
        return inode is not None and inode == other._inode and self.path == other.path

    @property
    def file(self) -> File:
        """The open file.

        Raises:
            FileMissingError: It was removed or replaced before it was opened.
        """
        file = self._file
        if file is None:
            with self._lock:
                file = self._file
                if file is None:
                    file = self._file = self._open()
                    open_files.keep(self)
        self.was_used = True
        return file

    def _open(self) -> File:
        file = self._fs.open(self.path, self._mode)
        inode = file.stat().inode
        if self._inode is None:
            self._inode = inode  # if it is released and opened again, it must be this file
        elif inode != self._inode:
            file.close()
            raise FileMissingError(
                "segment was replaced since it was listed", path=self.path, operation="open"
            )
        return file

    def release_file(self) -> bool:
        """Release the file while a reader may still use it; the next use opens it again."""
        self._file = None
        return True

    # ---- read --------------------------------------------------------------------------------
    def find(
        self, offset: int, entry: IndexEntry | None, end: int, *, is_whole: bool = False
    ) -> OffsetPosition | None:
        """Find the first batch whose last offset is at or above `offset`.

        Args:
            offset: The offset to find.
            entry: The index entry to start from, at or below `offset`; None: start at position 0.
            end: End of the batches.
            is_whole: Whether every batch must end by `end`: a damaged length that reaches beyond it
                would hide all later batches.

        Returns:
            The batch, None if there is none before `end`.

        Raises:
            CorruptIndexError: The batch that the entry names does not exist.
            CorruptRecordError: The walk met bytes that are no batch.

        Source: FileRecords.searchForOffsetFromPosition.
        """
        start, promised = (0, NO_PROMISE) if entry is None else (entry.position, entry.offset)
        position = start
        while end - position >= MIN_MESSAGE_SIZE:
            probe = self.file.pread(min(_PROBE_SIZE, end - position), position)
            status, passed, promised, base_offset, last_offset, size = walk_to(
                probe, offset, promised
            )
            position += passed
            if status == FOUND:
                if size > end - position:
                    break  # still being written, or truncated
                return OffsetPosition(base_offset, position, size, last_offset)
            if status == UNSOUND and promised == NO_PROMISE:
                raise self._no_batch(probe[passed:], position, offset)
            if status != CONTINUE or passed == 0:
                break
        if promised == NO_PROMISE:
            if is_whole and position != end:
                # A walk over headers trusts lengths; a checked scan finds the first bad one.
                *_, last = self.chunks(start, end)
                rest = last.buffer[last.scan.consumed :].tobytes()
                raise self._no_batch(rest, last.position + last.scan.consumed, offset)
            return None
        raise CorruptIndexError(
            "offset index names a batch that does not exist",
            path=self.path,
            position=None if entry is None else entry.position,
            offset=promised,
        )

    def _no_batch(self, found: bytes, position: int, offset: int) -> CorruptRecordError:
        return CorruptRecordError(
            "not a record batch",
            path=self.path,
            position=position,
            offset=offset,
            got=found[:HEADER_SIZE_UP_TO_MAGIC].hex(),
            expected="a batch header of magic 0, 1 or 2, and a length within the file",
        )

    def chunks(self, position: int, end: int, *, chunk_size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """Read whole batches piece by piece, up to the first bytes that are no whole batch.

        Args:
            position: Start of a batch.
            end: Where to stop.
            chunk_size: How much to read at a time; a larger batch is read whole.

        Yields:
            Adjacent pieces. Only the last one may contain bytes that are no whole batch; its scan
            says why it stopped.
        """
        buffer = np.empty(min(chunk_size, max(end - position, 0)), np.uint8)
        while position < end:
            chunk = self._fill(buffer[: end - position], position, end - position)
            view, scan = chunk.buffer, chunk.scan
            if scan.stop is ScanStop.PARTIAL and len(scan.table) == 0:
                size = claimed_size(view)
                if len(buffer) < size <= end - position:  # one batch larger than a chunk
                    buffer = np.empty(size, np.uint8)
                    continue
            yield chunk
            if scan.consumed == 0 or scan.stop not in (ScanStop.END, ScanStop.PARTIAL):
                return
            position += scan.consumed

    def read_checked(
        self,
        position: int,
        size: int,
        beyond: int,
        *,
        end: int,
        into: NDArray[np.uint8] | None = None,
    ) -> Chunk:
        """Read up to `size` bytes and check the batches at their start.

        Reads into numpy's memory, which the system backs with large pages.

        Args:
            position: Start of a batch.
            size: How many bytes to check.
            beyond: How many more bytes to read, unchecked.
            end: Where to stop.
            into: Memory to use if it is large enough; otherwise new memory is allocated.
        """
        room = max(0, min(size + beyond, end - position))
        if into is None or len(into) < room:
            into = np.empty(room, np.uint8)
        return self._fill(into[:room], position, size)

    def _fill(self, buffer: NDArray[np.uint8], position: int, size: int) -> Chunk:
        """Read into `buffer` while batches arrive, and scan its first `size` bytes for them."""
        scanner, filled, file = BatchScanner(buffer), 0, self.file
        size = min(size, len(buffer))
        for start in range(0, size, PIECE_SIZE):
            end = start + PIECE_SIZE if start + PIECE_SIZE < size else len(buffer)
            filled += file.pread_into(buffer[start:end], position + start)
            if not scanner.go_on(min(filled, size)) or filled < end:
                break
        return Chunk(position, buffer[:filled], *scanner.finish())

    # ---- write -------------------------------------------------------------------------------
    def append(self, buffer: Buffer, position: int) -> None:
        """Write batches at `position`.

        Raises:
            StorageError: The file may hold any prefix of them.
        """
        self.file.pwrite(buffer, position)

    def rename(self, path: str) -> None:
        """Rename the file; reading continues."""
        self._fs.rename(self.path, path)
        self.path = path
        file = self._file
        if file is not None:
            file.path = path

    def remove(self) -> None:
        """Remove the file if it exists; reading continues."""
        with contextlib.suppress(FileMissingError):
            self._fs.remove(self.path)

    def replace_by(self, path: str) -> None:
        """Replace this file, durably, by another one of the directory, and continue with that."""
        self._fs.rename(path, self.path)
        self._fs.sync_directory(os.path.dirname(self.path))
        self.stat()
        self.close()

    def close(self) -> None:
        """Release the handle; the next use opens the file again."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()


_PREFIX: Final = struct.Struct(">qiiB")  # base offset, length, epoch or CRC-32, magic
_DELTA: Final = struct.Struct(">i")


class HeaderWalk(NamedTuple):
    """Result of a walk.

    Attributes:
        status: FOUND, CONTINUE, UNSOUND or ENTRY_MISSED.
        position: Of the batch where it ended, or where to continue; relative to the buffer.
        promised: The promise that is still open, or NO_PROMISE.
        base_offset: Base offset of the batch found; the last offset for a compressed message of
            v0 or v1.
        last_offset: Its last offset.
        size: Its size in bytes.
    """

    status: int
    position: int
    promised: int
    base_offset: int = -1
    last_offset: int = -1
    size: int = 0


def walk_to(buffer: bytes, offset: int, promised: int) -> HeaderWalk:
    """Walk over headers to the first batch that reaches `offset`.

    Args:
        buffer: Starts at a batch; its content is not trusted.
        offset: The offset to find.
        promised: The last offset that an index entry promised for a batch on the way.
    """
    # Large batches have an index entry each, so the first header decides.
    found = _walk_few(buffer, offset, promised, most=1 if numba_is_loaded() else FEW)
    if found is not None:
        return found
    from streamlog.segment import kernels

    state = np.zeros(WALK_WIDTH, np.int64)
    state[WALK_PROMISED] = promised
    status = kernels.find_batch(np.frombuffer(buffer, np.uint8), offset, state)
    return HeaderWalk(status, *state.tolist())


def _walk_few(buffer: bytes, offset: int, promised: int, *, most: int) -> HeaderWalk | None:
    """Walk over up to `most` sound headers without numba; None if that is not conclusive."""
    position = 0
    for _ in range(most):
        left = len(buffer) - position
        if left < MIN_MESSAGE_SIZE:
            return HeaderWalk(CONTINUE, position, promised)
        base, length, _, magic = _PREFIX.unpack_from(buffer, position)
        delta = 0
        if magic == CURRENT_MAGIC:
            if left < RECORD_BATCH_OVERHEAD:
                return HeaderWalk(CONTINUE, position, promised)
            (delta,) = _DELTA.unpack_from(buffer, position + LAST_OFFSET_DELTA_OFFSET)
        last, size = base + delta, LOG_OVERHEAD + length
        if magic > CURRENT_MAGIC or length < MIN_LENGTHS[magic]:
            return None
        if base < 0 or delta < 0 or last > MAX_INT64 or last > promised != NO_PROMISE:
            return None
        promised = NO_PROMISE if last == promised else promised
        if last >= offset:
            return HeaderWalk(FOUND, position, promised, base, last, size)
        position += size
    return None
