"""Writing for `produce`: records to their partitions, in batches, durable before it reports."""

import io
from typing import IO, Any, Protocol

from streamlog.cli.produce_input import BadLineError, Chunk, Input, read_chunks
from streamlog.cli.progress import Progress
from streamlog.cli.settings import Settings
from streamlog.log.topic_appender import TopicAppender

__all__ = ["Producer", "produce_all"]


class Parser(Protocol):
    """Makes records of input."""

    def parse(self, chunk: Chunk) -> Input:
        """Return the records of some lines."""
        ...


class Producer:
    """Appends what was parsed to the partitions of a topic, and reports it.

    Args:
        appender: Appends.
    """

    def __init__(self, appender: TopicAppender) -> None:
        self._appender = appender

    def append(self, records: Input) -> None:
        """Write some records; see `TopicAppender.append`."""
        self._appender.append(records.columns, records.partition)

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


def produce_all(settings: Settings, producer: Producer, parser: Parser, stream: IO[bytes]) -> None:
    """Append all of `stream`; what was appended is durable however this ends.

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
    finally:
        producer.flush()


def _size_of(stream: IO[bytes]) -> int | None:
    """Return how much there is to read, where the input is a file; None for a pipe."""
    if not stream.seekable():
        return None
    here = stream.tell()
    size = stream.seek(0, io.SEEK_END) - here
    stream.seek(here)
    return size
