"""Segments of a partition in an object store: built from staged extents, in Kafka's format.

A segment is written by the same code as in a directory, into a scratch directory of the machine,
and uploaded with its indexes under Kafka's file names. No record is decompressed, and only base
offsets and leader epochs are written: the fields that a commit decides.

Nothing refers to the uploaded objects until an entry of the journal swaps them in. They lie below a
name of their own, so two processes that build the same segments do not disturb each other.
"""

import random as random_module
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from streamlog.bucket.actions import BucketSegment
from streamlog.bucket.keys import segment_directory
from streamlog.bucket.reading import BucketReader
from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import FileMissingError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.files import remove_tree
from streamlog.partition.read import FetchInfo
from streamlog.records.table import BatchTable
from streamlog.segment.filenames import FileSuffix, segment_file_name
from streamlog.segment.segment import Segment
from streamlog.store.api import ObjectStore

__all__ = ["SegmentBuilder"]

_READ_BYTES: Final = 32 << 20
_APPENDS: Final = 100  # to a segment, so that it gets nearly full
_UPLOAD_BYTES: Final = 4 << 20
_POINTS: Final = 128  # of an index in the journal; a reader of more than that looks through batches


class _Batches(NamedTuple):
    """Some whole batches."""

    buffer: memoryview
    table: BatchTable


class SegmentBuilder:
    """Builds segments of one partition and uploads them.

    Args:
        store: The root's objects.
        reader: The partition.
        config: The settings of its topic.
        clock: The clock.
        random: Makes the names unique.
        fs: The file system of the scratch directory.
        scratch: A directory that does not exist yet; removed afterwards.
    """

    def __init__(
        self,
        store: ObjectStore,
        reader: BucketReader,
        *,
        config: LogConfig,
        clock: Clock,
        random: random_module.Random,
        fs: FileSystem,
        scratch: str,
    ) -> None:
        self._store, self._reader, self._config = store, reader, config
        self._clock, self._fs, self._scratch = clock, fs, scratch
        self._prefix = segment_directory(reader.topic_partition, f"{random.getrandbits(64):016x}")
        self._points: list[tuple[int, int]] = []

    def build(self, first_offset: int, end_offset: int) -> Iterator[BucketSegment]:
        """Yield the segments with the records between two offsets, each when it is uploaded.

        Args:
            first_offset: The first offset, at the beginning of a batch.
            end_offset: The offset after the last, at the end of a batch.

        Raises:
            CorruptDataError: A batch is damaged.
            StorageError: A request or the disk failed.
        """
        self._fs.make_directory(self._scratch)
        try:
            yield from self._build(first_offset, end_offset)
        finally:
            remove_tree(self._fs, self._scratch)

    def _build(self, first_offset: int, end_offset: int) -> Iterator[BucketSegment]:
        offset, segment = first_offset, None
        while offset < end_offset:
            info = self._reader.read(offset, _READ_BYTES, end_offset=end_offset)
            for part in _cut(info, self._config.effective_segment_bytes // _APPENDS):
                outline = part.table.outline()
                now_ms, wait_ms = self._clock.now_ms(), self._config.effective_segment_ms
                if segment is not None and segment.roll_reason(
                    outline, now_ms=now_ms, max_wait_ms=wait_ms
                ):
                    yield self._upload(segment, int(part.table.base_offset[0]))
                    segment = None
                if segment is None:
                    base = int(part.table.base_offset[0])
                    segment = Segment.create(
                        self._fs, self._scratch, base, config=self._config, now_ms=now_ms
                    )
                    self._points = []
                self._note(segment.size, part)
                segment.append(part.buffer, part.table)
            offset = info.next_offset
        if segment is not None:
            yield self._upload(segment, end_offset)

    def _note(self, position: int, part: _Batches) -> None:
        """Note where batches lie; of too many, every second one stays."""
        start = int(part.table.position[0])
        for base, at in zip(
            part.table.base_offset.tolist(), part.table.position.tolist(), strict=True
        ):
            self._points.append((base, position + at - start))
        while len(self._points) > _POINTS:
            self._points = self._points[::2]

    def _upload(self, segment: Segment, end_offset: int) -> BucketSegment:
        segment.seal()
        built = BucketSegment(
            key=f"{self._prefix}{segment_file_name(segment.base_offset, FileSuffix.LOG)}",
            size=segment.size,
            base_offset=segment.base_offset,
            end_offset=end_offset,
            max_timestamp=segment.largest_timestamp,
            points=tuple(self._points),
        )
        segment.sync()
        segment.close()
        suffixes = (FileSuffix.OFFSET_INDEX, FileSuffix.TIME_INDEX, FileSuffix.LOG)
        for suffix in suffixes:
            self._upload_file(segment_file_name(segment.base_offset, suffix))
        segment.delete_files()
        return built

    def _upload_file(self, name: str) -> None:
        try:
            file = self._fs.open(f"{self._scratch}/{name}", OpenMode.READ)
        except FileMissingError:
            return  # an index without entries
        with file, self._store.upload(f"{self._prefix}{name}") as upload:
            size, position = file.stat().size, 0
            while position < size:
                piece = np.empty(min(_UPLOAD_BYTES, size - position), np.uint8)
                position += file.pread_into(piece, position)
                upload.write(piece)


def _cut(info: FetchInfo, size: int) -> Iterator[_Batches]:
    """Yield the batches of a read in appends that are small beside a segment."""
    table = info.table
    ends = table.position + table.size
    first = 0
    while first < len(table):
        start = int(table.position[first])
        stop = max(first + 1, int(np.searchsorted(ends, start + size, side="right")))
        part = table.slice(first, stop).moved(-start)
        yield _Batches(info.buffer[start : int(ends[stop - 1])], part)
        first = stop
