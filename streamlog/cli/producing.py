"""Writing for `produce`: records to their partitions, in batches, durable before it reports."""

import io
import random
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from streamlog.cli.produce_input import BadLineError, Input, InputChunk, read_chunks
from streamlog.cli.progress import Progress
from streamlog.cli.settings import Settings
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import Stager
from streamlog.records.builder import EncodedBatches
from streamlog.records.columns import BinaryColumn, HeaderColumn
from streamlog.records.record import CompressionType
from streamlog.root.manager import LogManager
from streamlog.root.topic_appender import Appended, InputLines, TopicAppender
from streamlog.topic import TopicPartition

__all__ = ["AtomicProducer", "Dressing", "DressingParser", "Parser", "LineProducer", "produce_all"]


class Parser(Protocol):
    """Makes records of input."""

    def parse(self, chunk: InputChunk) -> Input:
        """Return the records of some lines."""
        ...


class Dressing(NamedTuple):
    """What all records of lines get.

    Attributes:
        key: Their key; None: the lines have it, or there is none.
        headers: Their headers.
        has_nulls: Whether empty keys and values are null.
        timestamp: ms since 1970; None: the present.
    """

    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    has_nulls: bool = False
    timestamp: int | None = None


class DressingParser:
    """Gives what another parser makes a key, headers, a timestamp."""

    def __init__(self, parser: Parser, dressing: Dressing) -> None:
        self._parser, self._dressing = parser, dressing

    def parse(self, chunk: InputChunk) -> Input:
        """Return the records of some lines.

        Raises:
            BadLineError: A line that is no record.
        """
        try:
            return self._dressed(self._parser.parse(chunk))
        except BadLineError as error:
            if error.before is not None:
                error.before = self._dressed(error.before)
            raise

    def _dressed(self, records: Input) -> Input:
        key, headers, has_nulls, timestamp = self._dressing
        columns, count = records.columns, len(records.columns.timestamp)
        if has_nulls:
            columns = columns._replace(
                key=_with_nulls(columns.key), value=_with_nulls(columns.value)
            )
        if key is not None:
            columns = columns._replace(key=_repeated(BinaryColumn.from_values([key]), count))
        if timestamp is not None:
            columns = columns._replace(timestamp=np.full(count, timestamp, np.int64))
        if headers:
            names = BinaryColumn.from_values(name.encode() for name, _ in headers)
            values = BinaryColumn.from_values(value for _, value in headers)
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(headers))
            column = HeaderColumn(
                offsets=offsets, key=_repeated(names, count), value=_repeated(values, count)
            )
            columns = columns._replace(headers=column)
        return records._replace(columns=columns)


def _with_nulls(column: BinaryColumn | None) -> BinaryColumn | None:
    """Return a column with null in place of what is empty."""
    if column is None:
        return None
    is_full = np.diff(column.offsets) > 0
    return BinaryColumn(
        offsets=column.offsets,
        data=column.data,
        validity=np.packbits(is_full, bitorder="little"),
        null_count=int(len(column) - is_full.sum()),
    )


def _repeated(column: BinaryColumn, count: int) -> BinaryColumn:
    """Return the values of a column, all of them `count` times in a row."""
    sizes = np.tile(np.diff(column.offsets), count)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return BinaryColumn(offsets=offsets, data=np.tile(column.data, count))


class AtomicProducer(TopicAppender):
    """Stages what is appended; `flush` makes all of it part of the topic, in one commit."""

    def __init__(
        self,
        manager: LogManager,
        topic: str,
        *,
        partition: int | None = None,
        compression: CompressionType = CompressionType.NONE,
    ) -> None:
        super().__init__(manager, topic, partition=partition, compression=compression)
        self._identity = CommitIdentity.anonymous(random.SystemRandom())
        self._stager = Stager(manager.fs, manager.root, self._identity.app, 0, 0)
        self._counts: dict[int, int] = {}

    def _append_batches(self, number: int, encoded: EncodedBatches, lines: InputLines) -> None:
        self._counts[number] = self._counts.get(number, 0) + encoded.records
        self._stager.append(TopicPartition(self.topic, number), encoded)

    def flush(self) -> None:
        """Commit what was staged: all of it."""
        with self._stager as stager:
            staged = stager.finish(rows=sum(self._counts.values()), checksum=0)
        outcome = self._manager.commits.commit(self._identity, [staged])
        for partition, base_offset, last_offset in outcome.parts:
            number = partition.partition
            self.appended[number] = Appended(base_offset, last_offset, self._counts[number])

    def discard(self) -> None:
        """Take back what was staged: nothing was appended."""
        self._stager.discard()


class LineProducer:
    """Appends what was parsed to the partitions of a topic, and reports it.

    Args:
        appender: Appends.
        ignore_partition: Whether records go by their keys, whatever partition they ask for.
    """

    def __init__(self, appender: TopicAppender, *, ignore_partition: bool) -> None:
        self._appender = appender
        self._ignores_partition = ignore_partition

    @property
    def is_atomic(self) -> bool:
        """Whether a bad line keeps the lines before it from being appended."""
        return isinstance(self._appender, AtomicProducer)

    def append(self, records: Input) -> None:
        """Write some records; see `TopicAppender.append`."""
        asked = None if self._ignores_partition else records.partition
        self._appender.append(records.columns, asked, records.lines)

    def discard(self) -> None:
        """Take back what was not appended yet."""
        if isinstance(self._appender, AtomicProducer):
            self._appender.discard()

    def flush(self) -> None:
        """Make everything durable that was appended."""
        self._appender.flush()

    def rows(self) -> list[dict[str, Any]]:
        """Return what was appended: a row for each partition."""
        return [
            {
                "topic": self._appender.topic,
                "partition": number,
                "baseOffset": appended.base_offset,
                "lastOffset": appended.last_offset,
                "count": appended.records,
            }
            for number, appended in sorted(self._appender.appended.items())
        ]


def produce_all(
    settings: Settings, producer: LineProducer, parser: Parser, stream: IO[bytes]
) -> None:
    """Append all of `stream`; what was appended is durable however this ends.

    An atomic producer appends all of it at the end, or nothing.

    Raises:
        BadLineError: A line is no record; the ones before it were appended.
        StreamLogError: A record cannot be written; those before it were, or some of its chunk.
    """
    try:
        with Progress(settings, "producing", _size_of(stream)) as progress:
            for chunk in read_chunks(stream):
                try:
                    producer.append(parser.parse(chunk))
                except BadLineError as error:
                    if error.before is not None:
                        producer.append(error.before)
                    raise
                progress.advance(len(chunk.data))
    except BaseException:
        if producer.is_atomic:
            producer.discard()
        else:
            producer.flush()
        raise
    producer.flush()


def _size_of(stream: IO[bytes]) -> int | None:
    """Return how much there is to read, where the input is a file; None for a pipe."""
    if not stream.seekable():
        return None
    here = stream.tell()
    size = stream.seek(0, io.SEEK_END) - here
    stream.seek(here)
    return size
