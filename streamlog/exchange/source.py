"""The records that an export reads: partitions of a root as ranges of offsets."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.log_view import OffsetRange, PartitionBounds
from streamlog.arrow.object_reading import ReadBuffers
from streamlog.arrow.reading import read_ranges
from streamlog.arrow.tables import choose_topics
from streamlog.arrow.views import open_read_roots, open_view
from streamlog.bucket.places import root_paths
from streamlog.errors import (
    CorruptDataError,
    DataLossError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
)
from streamlog.exchange.positions import ExportPosition
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.records.record import IsolationLevel
from streamlog.root.offset_specs import OffsetSpec, Span
from streamlog.root.read_roots import ReadRoots, RootPaths
from streamlog.topic import TopicPartition

__all__ = ["ExportSource"]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a target has of the topics of a source."""

    topic_ids: Mapping[str, str]
    positions: Mapping[TopicPartition, ExportPosition]


class ExportSource:
    """The chosen partitions as they are at this moment; close it, or use it as a context manager.

    Args:
        path: A log root, a broker's log.dir, a partition's directory or a URL of an object store.
        topic: The topic; None: all at the path.
        partitions: Numbers of its partitions; None: all.
        isolation: Whether open and aborted transactions are included.
        max_decompressed_bytes: Limit of one decompressed batch; None: that of its topic.
        fs: The file system; the machine's own by default.

    Attributes:
        name: The path, for errors.
        topic_ids: The ids of topics that have one.

    Raises:
        UnknownTopicError: No such path, topic or partition.
        StorageError: The disk or the store cannot be read.
    """

    def __init__(
        self,
        path: RootPaths,
        topic: str | None = None,
        *,
        partitions: Collection[int] | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        max_decompressed_bytes: int | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        fs = fs or LocalFileSystem()
        roots = open_read_roots(root_paths(path, fs), fs=fs)
        self._fs = roots.fs if isinstance(roots, ReadRoots) else fs
        self._isolation, self._limit = isolation, max_decompressed_bytes
        choice = choose_topics(roots, topic, partitions)
        self._view = open_view(roots, choice, isolation, max_decompressed_bytes=self._limit)
        self._buffers = ReadBuffers()
        self.name = roots.name
        self.topic_ids = dict(self._view.topic_ids)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions, sorted."""
        return sorted(self._view.bounds)

    def ranges(
        self,
        span: Span,
        topic_ids: Mapping[str, str],
        positions: Mapping[TopicPartition, ExportPosition],
    ) -> list[OffsetRange]:
        """Return what is to be exported of each partition.

        Args:
            span: Where partitions begin that the target has nothing of, and where all end.
            topic_ids: The ids of the topics that the target has.
            positions: How far it is.

        Raises:
            InconsistentTopicIdError: A topic was deleted and created again since.
            DataLossError: Records were deleted before they were exported, or the log lost some
                that were.
            OffsetOutOfRangeError: A partition does not have the first offset.
        """
        known = _Known(topic_ids, positions)
        return [
            self._range(partition, bounds, span, known)
            for partition, bounds in sorted(self._view.bounds.items())
        ]

    def _range(
        self, partition: TopicPartition, bounds: PartitionBounds, span: Span, known: _Known
    ) -> OffsetRange:
        topic = partition.topic
        here, there = self.topic_ids.get(topic, ""), known.topic_ids.get(topic, "")
        if here and there and here != there:
            raise InconsistentTopicIdError(
                f"topic {topic} was deleted and created again since it was exported",
                path=self.name,
                got=f"topic id {here}",
                expected=there,
                hint="export it to another target",
            )
        end = self._end(partition, bounds, span.end)
        position = known.positions.get(partition)
        if position is None:
            start = self._start(partition, bounds, span.start)
        else:
            start = position.offset
            self._check_complete(partition, bounds, position)
        return OffsetRange(*partition, start, max(start, end))

    def _check_complete(
        self, partition: TopicPartition, bounds: PartitionBounds, position: ExportPosition
    ) -> None:
        """Raise unless the log has what follows a position, and still has what precedes it."""
        if position.offset < bounds.log_start_offset:
            raise DataLossError(
                f"records of {partition} were deleted before they were exported",
                path=self.name,
                offset=position.offset,
                got=f"log start offset {bounds.log_start_offset}",
                expected=f"at most {position.offset}, where the target ends",
                hint="export to another target; to keep this from happening, export more often",
            )
        if position.offset > bounds.log_end_offset:
            raise DataLossError(
                f"the target has records of {partition} that the log does not have",
                path=self.name,
                offset=position.offset,
                got=f"log end offset {bounds.log_end_offset}",
                expected=f"at least {position.offset}, where the target ends",
                hint="the log was truncated or another one is in its place: export to another"
                " target",
            )
        end = None
        if position.epoch >= 0 and position.offset > bounds.log_start_offset:
            end = self._view.end_of_epoch(partition, position.epoch)
        if end is not None and end < position.offset:
            raise DataLossError(
                f"the log has lost records of {partition} that were exported, and has others in"
                " their place",
                path=self.name,
                offset=end,
                got=f"leader epoch {position.epoch} ends at offset {end}",
                expected=f"{position.offset} or more",
                hint="export to another target",
            )

    def _start(self, partition: TopicPartition, bounds: PartitionBounds, place: OffsetSpec) -> int:
        first, end = bounds.log_start_offset, bounds.end_offset
        if place.kind == "offset":
            if not first <= place.value <= end:
                raise OffsetOutOfRangeError(
                    f"offset out of range for {partition}",
                    path=self.name,
                    got=place.value,
                    expected=f"{first} to {end}",
                    hint="pass --offset beginning or an offset in that range",
                )
            return place.value
        if place.kind == "time":
            return max(first, self._at_time(partition, bounds, place.value))
        if place.kind == "tail":
            return max(first, end - place.value)
        return end if place.kind == "end" else first

    def _end(self, partition: TopicPartition, bounds: PartitionBounds, place: OffsetSpec) -> int:
        if place.kind == "time":
            return self._at_time(partition, bounds, place.value)
        if place.kind == "offset":
            return min(place.value, bounds.end_offset)
        return bounds.log_start_offset if place.kind == "beginning" else bounds.end_offset

    def _at_time(self, partition: TopicPartition, bounds: PartitionBounds, time_ms: int) -> int:
        found = self._view.offset_for_timestamp(partition, time_ms)
        return bounds.end_offset if found is None else min(found, bounds.end_offset)

    def size_of(self, part: OffsetRange) -> int:
        """Return the approximate size of a range in bytes of the log; 0 if damage hides it."""
        if part.length <= 0:
            return 0
        try:
            return self._view.size_of(part)
        except CorruptDataError:
            return 0

    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before an offset, -1 if unknown."""
        return self._view.epoch_before(partition, offset)

    def read(self, part: OffsetRange, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises:
            DataLossError: Records of the range no longer exist.
            InvalidTimestampError: A time does not fit into microseconds.
            CorruptDataError: A batch is damaged; the records before it were yielded.
            StorageError: The disk or the store failed.
        """
        return read_ranges(
            [self._view.planned(part)],
            decoder=ArrowDecoder(columns),
            isolation=self._isolation,
            fail_on_data_loss=True,
            fs=self._fs,
            max_decompressed_bytes=self._limit,
            buffers=self._buffers,
        )

    def close(self) -> None:
        """Close the files; idempotent."""
        self._view.close()

    def __enter__(self) -> "ExportSource":
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.closing(self._view):
            pass
