"""`streamlog produce`: appends the records of its input, see `streamlog.cli.produce_input`."""

import io
import random
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import click

from streamlog.cli.output import PARTITION_COLUMNS, Column, Kind, Output, Progress, remark
from streamlog.cli.produce_input import (
    BadLineError,
    Dressing,
    Input,
    LineParser,
    NdjsonParser,
    read_chunks,
)
from streamlog.cli.roots import open_manager
from streamlog.cli.verb import Settings
from streamlog.clock import SystemClock
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import Stager
from streamlog.records.acks import Acks
from streamlog.records.builder import EncodedBatches
from streamlog.records.record import CompressionType
from streamlog.root.manager import LogManager
from streamlog.root.offset_specs import parse_moment
from streamlog.root.topic_appender import Appended, InputLines, PartitionedAppender, TopicAppender
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.cli.roots import AnyManager

__all__ = ["produce"]


def produce(
    settings: Settings,
    *,
    topic: str,
    file: IO[bytes],
    partition: int | None,
    ignore_partition: bool,
    atomic: bool,
    compression_type: str,
    acks: str,
    **parsing: Any,
) -> None:
    """Append the records of the input and print one row per partition."""
    parser = _parser(**parsing)

    if file.isatty():
        remark(settings, f"reading {parsing['input_format']} from the terminal; end with Ctrl-D")
    columns = (
        *PARTITION_COLUMNS,
        Column("baseOffset", "BASE OFFSET", Kind.NUMBER),
        Column("lastOffset", "LAST OFFSET", Kind.NUMBER),
        Column("count", "COUNT", Kind.NUMBER),
    )
    with open_manager(settings) as manager:
        chosen = {
            "partition": partition,
            "compression": CompressionType.of(compression_type),
            "acks": Acks.of(acks),
        }
        appender = _appender(manager, topic, chosen, is_atomic=atomic)
        is_bucket = not isinstance(manager, LogManager)
        try:
            _append_all(
                settings,
                appender,
                parser,
                file,
                ignore_partition=ignore_partition,
                is_atomic=atomic,
                commits_chunks=is_bucket and not atomic,
            )
        finally:
            Output(settings).rows(_rows(appender), columns)


# ---- the append ---------------------------------------------------------------------------------
class AtomicAppender(TopicAppender):
    """Stages appended records; `flush` adds them to the topic in one commit."""

    def __init__(
        self,
        manager: LogManager,
        topic: str,
        *,
        partition: int | None = None,
        compression: CompressionType = CompressionType.NONE,
        acks: Acks = Acks.ALL,
    ) -> None:
        super().__init__(manager, topic, partition=partition, compression=compression, acks=acks)
        self._identity = CommitIdentity.anonymous(random.SystemRandom())
        self._stager = Stager(manager.log_root, self._identity.app, 0, 0)
        self._counts: dict[int, int] = {}

    def _append_batches(self, number: int, encoded: EncodedBatches, lines: InputLines) -> None:
        self._counts[number] = self._counts.get(number, 0) + encoded.records
        self._stager.append(TopicPartition(self.topic, number), encoded)

    def flush(self) -> None:
        """Commit all staged records."""
        with self._stager as stager:
            staged = stager.finish(rows=sum(self._counts.values()), checksum=0)
        outcome = self._manager.commits.commit(self._identity, [staged], acks=self._acks)
        for partition, base_offset, last_offset in outcome.parts:
            number = partition.partition
            self.appended[number] = Appended(base_offset, last_offset, self._counts[number])

    def discard(self) -> None:
        """Delete the staged records; nothing is appended."""
        self._stager.discard()


def _appender(
    manager: "AnyManager", topic: str, chosen: Mapping[str, Any], *, is_atomic: bool
) -> PartitionedAppender:
    """Return what appends to a topic; in an object store, every append is a commit."""
    if isinstance(manager, LogManager):
        return (AtomicAppender if is_atomic else TopicAppender)(manager, topic, **chosen)
    from streamlog.bucket.appender import BucketAppender

    return BucketAppender(manager, topic, **chosen)


def _rows(appender: PartitionedAppender) -> list[dict[str, Any]]:
    """Return one row per partition with appended records."""
    return [
        {
            "topic": appender.topic,
            "partition": number,
            "baseOffset": appended.base_offset,
            "lastOffset": appended.last_offset,
            "count": appended.records,
        }
        for number, appended in sorted(appender.appended.items())
    ]


def _append_all(
    settings: Settings,
    appender: PartitionedAppender,
    parser: "LineParser | NdjsonParser",
    stream: IO[bytes],
    *,
    ignore_partition: bool,
    is_atomic: bool,
    commits_chunks: bool,
) -> None:
    """Append the whole stream. Appended records are durable on return and on errors."""

    def append(records: Input) -> None:
        asked = None if ignore_partition else records.partition
        appender.append(records.columns, asked, records.lines)
        if commits_chunks:
            appender.flush()

    try:
        with Progress(settings, "producing", _size_of(stream)) as progress:
            for chunk in read_chunks(stream):
                try:
                    append(parser.parse(chunk))
                except BadLineError as error:
                    if error.before is not None:  # the lines before the bad one are good
                        append(error.before)
                    raise
                progress.advance(len(chunk.data))
    except BaseException:
        if is_atomic:
            appender.discard()
        else:
            appender.flush()
        raise
    appender.flush()


def _size_of(stream: IO[bytes]) -> int | None:
    """Return the bytes left to read in a file; None for a pipe."""
    if not stream.seekable():
        return None
    here = stream.tell()
    size = stream.seek(0, io.SEEK_END) - here
    stream.seek(here)
    return size


# ---- options ------------------------------------------------------------------------------------
def _parser(
    *,
    input_format: str,
    encoding: str,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    has_nulls: bool,
    timestamp: str | None,
) -> LineParser | NdjsonParser:
    """Return the parser of the input; reject conflicting options."""
    separator = _separator(key_separator, input_format)
    if input_format != "lines" and (key is not None or headers or has_nulls or timestamp):
        raise click.UsageError(
            "--key, --header, --null and --timestamp need --format lines; ndjson has fields"
        )
    if key is not None and separator is not None:
        raise click.UsageError("--key and --key-separator are mutually exclusive")
    now_ms = SystemClock().now_ms
    if input_format == "ndjson":
        return NdjsonParser(encoding, now_ms)
    time_ms = None if timestamp is None else parse_moment(timestamp, now_ms())
    if timestamp is not None and time_ms is None:
        raise click.BadParameter(
            f"expected milliseconds, a date or a time before now (-1h), got {timestamp!r}",
            param_hint="--timestamp",
        )
    pairs = [_header(text) for text in headers]
    dressing = Dressing(
        None if key is None else key.encode("utf-8", "surrogateescape"),
        tuple(pairs),
        has_nulls=has_nulls,
        timestamp=time_ms,
    )
    return LineParser(separator, encoding, now_ms, dressing)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint="--header")
    return name, value.encode("utf-8", "surrogateescape")


def _separator(text: str | None, input_format: str) -> bytes | None:
    if text is None:
        return None
    if input_format != "lines":
        raise click.UsageError("--key-separator needs --format lines")
    separator = text.replace("\\t", "\t").encode("utf-8", "surrogateescape")
    if not separator or b"\n" in separator:
        raise click.UsageError("--key-separator must not be empty or contain a newline")
    return separator
