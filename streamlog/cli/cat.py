"""`streamlog cat`: selects records of partitions and prints them as JSON, text or a table."""

import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import click

from streamlog.cli.output import (
    ENCODERS,
    Findings,
    Output,
    Progress,
    encoded_text,
    remark,
    safe_text,
)
from streamlog.cli.sources import Source, Sources, find_sources
from streamlog.cli.verb import Settings
from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    CorruptDataError,
    InvalidOptionError,
    OffsetOutOfRangeError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.partition.iteration import POLL_MS, read_columns
from streamlog.records.columns import COLUMNS, BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.json_lines import format_records
from streamlog.records.record import NO_TIMESTAMP, Header, IsolationLevel
from streamlog.root.offset_specs import OffsetSpec, Span, parse_offsets
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.cli.decoded_records import RecordDecoder

__all__ = ["TextWriter", "cat", "first_rows", "parse_output_format"]


def cat(
    settings: Settings,
    *,
    source: str,
    partitions: tuple[int, ...],
    offsets: tuple[str, ...],
    count: int | None,
    follow: bool,
    isolation_level: str,
    output_format: str | None,
    encoding: str,
    max_decompressed_bytes: int | None,
    decode: tuple[str, ...],
    **decoding: str | None,
) -> None:
    """Print records; `decoding` are the options beside `decode`."""
    if output_format is not None and settings.format is not None:
        raise click.UsageError("--output-format and --format are mutually exclusive")
    if follow and settings.format == "json":
        raise click.UsageError("--follow cannot end a JSON list; use --format ndjson")

    output = Output(settings)
    decoder = _decoder(decode, decoding)
    writer = _writer(output, output_format, encoding, decoder)
    clock = SystemClock()
    span = parse_offsets(offsets, clock.now_ms())
    if follow and span.end != OffsetSpec("end"):
        raise click.UsageError("--follow has no end; omit the end of --offset")
    reading = Reading(span, count, follow, IsolationLevel(isolation_level))
    limit = max_decompressed_bytes
    with find_sources(settings, source, partitions, max_decompressed_bytes=limit) as sources:
        try:
            read_all(settings, sources, reading, writer, clock)
        except Findings as found:
            raise Findings([*found.errors, *_findings(decoder)]) from None
    if bad := _findings(decoder):
        raise Findings(bad)


def _decoder(decode: tuple[str, ...], given: Mapping[str, str | None]) -> "RecordDecoder | None":
    """Return what decodes keys and values, if the options ask for it."""
    from streamlog.cli.decode_options import field_decoders

    fields = field_decoders(decode, given)
    if not fields:
        return None
    from streamlog.cli.decoded_records import RecordDecoder

    return RecordDecoder(fields)


def _findings(decoder: "RecordDecoder | None") -> list[StreamLogError]:
    return [] if decoder is None else decoder.findings()


def _writer(
    output: Output, output_format: str | None, encoding: str, decoder: "RecordDecoder | None"
) -> "RecordWriter":
    writer: TextWriter | TableWriter
    if output_format is None and output.format != "table":
        is_list = output.format == "json"
        if decoder is None:
            return JsonWriter(output, encoding, is_list=is_list)
        from streamlog.cli.decoded_records import DecodedJsonWriter

        return DecodedJsonWriter(output, encoding, decoder, is_list=is_list)
    if output_format is not None:
        writer = TextWriter(output, output_format, encoding)
    else:
        writer = TableWriter(output, encoding)
    if decoder is None:
        return writer
    from streamlog.cli.decoded_records import DecodedTextWriter

    return DecodedTextWriter(writer, decoder)


LOOK_MS: Final = 1000  # interval of the search for new and deleted partitions


class Reading(NamedTuple):
    """The records to print."""

    span: Span
    limit: int | None
    is_following: bool
    isolation: IsolationLevel


class RecordWriter(Protocol):
    """Prints records; `columns` are those it needs decoded."""

    columns: frozenset[str]

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Print records of a partition."""
        ...

    def flush(self) -> None:
        """Flush the output."""
        ...


def read_all(
    settings: Settings, sources: Sources, reading: Reading, writer: RecordWriter, clock: Clock
) -> None:
    """Print the selected records, partition by partition; then follow the log if asked to.

    Raises:
        Findings: Damage, or an offset out of range; all readable records were printed first.
    """
    errors = list(sources.errors)
    left = _Left(reading.limit)
    places = _places(sources, reading, errors)
    with Progress(
        settings, "reading", _total_size(places), is_wanted=_goes_elsewhere(reading)
    ) as progress:
        for source, start, end in places:
            _read_one(source, start, end, reading, (writer, left, progress, errors))
    for source, _, _ in places:
        _remark_open_transaction(settings, source, reading.isolation)
    writer.flush()
    if reading.is_following and not errors:
        ends = {source: max(start, end) for source, start, end in places}
        _follow(settings, sources, ends, reading, (writer, left, clock))
    if errors:
        raise Findings(errors)


class _Left:
    """The rest of `--count`."""

    def __init__(self, count: int | None) -> None:
        self._count = count

    @property
    def is_nothing(self) -> bool:
        return self._count is not None and self._count <= 0

    def take(self, columns: RecordColumns) -> RecordColumns:
        """Return the records within the limit, and count them."""
        if self._count is None:
            return columns
        taken = columns if columns.count <= self._count else first_rows(columns, self._count)
        self._count -= taken.count
        return taken


Part = tuple[Source, int, int]
Work = tuple[RecordWriter, _Left, Progress, list[StreamLogError]]


def _places(sources: Sources, reading: Reading, errors: list[StreamLogError]) -> list[Part]:
    """Return the range of offsets of each partition; add failures to the errors."""
    places: list[Part] = []
    for source in sources.opened:
        try:
            end = source.end_offset(reading.isolation)
            start = _start_offset(source, reading.span.start, end, reading.isolation)
            end = _end_offset(source, reading.span.end, end)
            places.append((source, start, end))
        except StreamLogError as error:
            errors.append(error)
    return places


def _start_offset(source: Source, place: OffsetSpec, end: int, isolation: IsolationLevel) -> int:
    if place.kind == "end":
        return end
    if place.kind == "tail":
        return _tail_start(source, place.value, end, isolation)
    if place.kind == "time":
        found = source.reader.offset_for_timestamp(place.value)
        return end if found is None else max(found.offset, source.start_offset)
    if place.kind == "offset":
        if not source.start_offset <= place.value <= end:
            raise OffsetOutOfRangeError(
                f"offset out of range for {source.partition}",
                path=source.reader.path,
                got=place.value,
                expected=f"{source.start_offset} to {end}",
                hint="pass --offset beginning or an offset in that range",
            )
        return place.value
    return source.start_offset


def _end_offset(source: Source, place: OffsetSpec, end: int) -> int:
    if place.kind == "time":
        found = source.reader.offset_for_timestamp(place.value)
        return end if found is None else min(end, found.offset)
    if place.kind == "offset":
        return min(end, place.value)
    return source.start_offset if place.kind == "beginning" else end


def _tail_start(source: Source, count: int, end: int, isolation: IsolationLevel) -> int:
    """Return the offset of the `count`-th record from the end."""
    width = count  # widened until enough records are found: compaction leaves gaps in offsets
    while count > 0:
        start = max(source.start_offset, end - width)
        found: list[int] = []
        for _, columns in read_columns(
            source.reader, start, end, isolation=isolation, columns=frozenset()
        ):
            found = [*found, *columns.offset.tolist()][-count:]
        if len(found) == count or start == source.start_offset:
            return found[0] if found else start
        width *= 4
    return end


def _read_one(source: Source, start: int, end: int, reading: Reading, work: Work) -> None:
    writer, left, progress, errors = work
    try:
        if left.is_nothing:
            return
        for info, columns in read_columns(
            source.reader, start, end, isolation=reading.isolation, columns=writer.columns
        ):
            writer.write(left.take(columns), source.partition)
            progress.advance(int(info.table.size.sum()))
            if left.is_nothing:
                return
    except StreamLogError as error:
        errors.append(error)


def _total_size(places: list[Part]) -> int | None:
    """Return the approximate bytes to read; None if damage prevents that."""
    try:
        return sum(source.reader.size_between(start, end) for source, start, end in places)
    except CorruptDataError:
        return None


def _follow(
    settings: Settings,
    sources: Sources,
    ends: dict[Source, int],
    reading: Reading,
    work: tuple[RecordWriter, _Left, Clock],
) -> None:
    """Print appended records, including those of new partitions, until `--count` or Ctrl-C.

    Raises:
        Findings: The last selected partition was deleted.
    """
    writer, left, clock = work
    gone: list[StreamLogError] = []
    looked_ms = clock.monotonic_ms()
    while not left.is_nothing:
        if clock.monotonic_ms() - looked_ms >= LOOK_MS:
            looked_ms = clock.monotonic_ms()
            ends.update((source, source.start_offset) for source in sources.look())
            gone += _drop_deleted(settings, ends)
            if gone and not ends:
                writer.flush()
                raise Findings(gone)
        has_written = False
        for source, start in ends.items():
            try:
                source.reader.refresh()
                end = source.end_offset(reading.isolation)
                for info, columns in read_columns(
                    source.reader, start, end, isolation=reading.isolation, columns=writer.columns
                ):
                    writer.write(left.take(columns), source.partition)
                    ends[source], has_written = info.next_offset, True
                    if left.is_nothing:
                        return writer.flush()
            except UnknownTopicError:  # deleted: `_drop_deleted` reports it within LOOK_MS
                continue
        if has_written:
            writer.flush()
        else:
            clock.sleep_ms(POLL_MS)
    return None


def _drop_deleted(settings: Settings, ends: dict[Source, int]) -> list[StreamLogError]:
    """Remove deleted partitions; return the errors that say so."""
    errors: list[StreamLogError] = []
    for source in list(ends):
        try:
            source.check()
        except UnknownTopicError as error:
            del ends[source]
            errors.append(error)
            if ends:
                remark(settings, f"{source.partition}: {error}")
    return errors


def _goes_elsewhere(reading: Reading) -> bool:
    """Return whether a progress bar on stderr cannot mix with data on stdout."""
    return not reading.is_following and not sys.stdout.isatty()


def _remark_open_transaction(settings: Settings, source: Source, isolation: IsolationLevel) -> None:
    held_back = source.end_offset(IsolationLevel.READ_UNCOMMITTED) - source.end_offset(isolation)
    if held_back > 0:
        remark(
            settings,
            f"{source.partition}: an open transaction holds back {held_back} offsets from"
            f" {source.end_offset(isolation)} on (--isolation-level read_uncommitted shows them)",
        )


def first_rows(columns: RecordColumns, count: int) -> RecordColumns:
    """Return the first `count` records without a copy."""
    headers = columns.headers
    return RecordColumns(
        count=count,
        offset=columns.offset[:count],
        timestamp=columns.timestamp[:count],
        timestamp_type=columns.timestamp_type[:count],
        key=_first_values(columns.key, count),
        value=_first_values(columns.value, count),
        headers=None
        if headers is None
        else HeaderColumn(
            offsets=headers.offsets[: count + 1], key=headers.key, value=headers.value
        ),
    )


def _first_values(column: BinaryColumn | None, count: int) -> BinaryColumn | None:
    if column is None:
        return None
    return BinaryColumn(
        offsets=column.offsets[: count + 1],
        data=column.data,
        validity=column.validity,
        null_count=column.null_count,
    )


# ---- printing ---------------------------------------------------------------------------------
_TABLE_ROWS_MEASURED: Final = 200
_CELL_MAX: Final = 60  # characters of a key or value in a table on a terminal
_SIZE: Final = struct.Struct(">i")
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


class JsonWriter:
    """Prints JSON objects, one per line or as one list.

    Args:
        output: The output.
        encoding: One of `ENCODINGS`.
        is_list: Whether to print one JSON list.
    """

    columns = COLUMNS

    def __init__(self, output: Output, encoding: str, *, is_list: bool) -> None:
        self._output, self._encoding, self._is_list = output, encoding, is_list
        self._is_first = True

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Print records."""
        if not self._is_list:
            self._output.write(format_records(columns, partition, encoding=self._encoding))
            return
        text = format_records(
            columns, partition, encoding=self._encoding, before=b",\n ", after=b""
        )
        self._output.write(b"[" if self._is_first else text[:3])
        self._output.write(text[3:])
        self._is_first = False

    def flush(self) -> None:
        """End the list, if any, and flush the output."""
        if self._is_list:
            self._output.write(b"[]\n" if self._is_first else b"]\n")
        self._output.flush()


# ---- kcat's format letters ----------------------------------------------------------------------
Texts = Iterable[bytes]


class _Chunk(NamedTuple):
    """Input of a format letter."""

    columns: RecordColumns
    partition: TopicPartition
    encode: Callable[[bytes], bytes]


def _encoded(column: BinaryColumn | None, chunk: _Chunk) -> Texts:
    if column is None:
        return repeat(b"", chunk.columns.count)
    return (b"" if value is None else chunk.encode(value) for value in column)


def _sizes(column: BinaryColumn | None, count: int) -> Iterator[int]:
    if column is None:
        return repeat(-1, count)
    return (-1 if value is None else len(value) for value in column)


def _decimal(numbers: Iterable[int]) -> Texts:
    return (b"%d" % number for number in numbers)


def _headers(chunk: _Chunk) -> Texts:
    if chunk.columns.headers is None:
        return repeat(b"", chunk.columns.count)
    return (
        b",".join(_header(header, chunk.encode) for header in headers)
        for headers in chunk.columns.headers
    )


def _header(header: Header, encode: Callable[[bytes], bytes]) -> bytes:
    return header.key.encode() + b"=" + (b"NULL" if header.value is None else encode(header.value))


_LETTERS: Final[dict[str, Callable[[_Chunk], Texts]]] = {
    "t": lambda c: repeat(c.partition.topic.encode(), c.columns.count),
    "p": lambda c: repeat(b"%d" % c.partition.partition, c.columns.count),
    "o": lambda c: _decimal(c.columns.offset.tolist()),
    "T": lambda c: _decimal(c.columns.timestamp.tolist()),
    "k": lambda c: _encoded(c.columns.key, c),
    "K": lambda c: _decimal(_sizes(c.columns.key, c.columns.count)),
    "s": lambda c: _encoded(c.columns.value, c),
    "S": lambda c: _decimal(_sizes(c.columns.value, c.columns.count)),
    "R": lambda c: map(_SIZE.pack, _sizes(c.columns.value, c.columns.count)),
    "h": _headers,
}


def parse_output_format(text: str) -> list[bytes | str]:
    r"""Parse a format string.

    Args:
        text: kcat's letters after `%`, `%%`, and `\n \r \t \0 \\ \xHH`.

    Returns:
        Literal bytes (bytes) and letters (str), in order.

    Raises:
        InvalidOptionError: An unknown letter or escape.
    """
    parts: list[bytes | str] = []
    i = 0
    while i < len(text):
        pair = text[i : i + 2]
        size = 2
        if pair == "%%":
            parts.append(b"%")
        elif pair[0] == "%" and pair[1:] in _LETTERS:
            parts.append(pair[1])
        elif pair == "\\x":
            digits = text[i + 2 : i + 4]
            try:
                parts.append(bytes.fromhex(digits.zfill(1)))
            except ValueError:
                raise _bad_format(text[i : i + 4]) from None
            size = 2 + len(digits)
        elif pair[0] == "\\" and pair[1:] in _ESCAPES:
            parts.append(_ESCAPES[pair[1]])
        elif pair[0] in "%\\":
            raise _bad_format(pair)
        else:
            parts.append(pair[0].encode("utf-8", "surrogateescape"))
            size = 1
        i += size
    return parts


def _bad_format(got: str) -> InvalidOptionError:
    return InvalidOptionError(
        "unknown letter or escape in --output-format",
        got=repr(got),
        expected="%t topic, %p partition, %o offset, %T timestamp, %k key, %K its size, %s value,"
        r" %S and %R its size, %h headers, %%, or one of \n \r \t \0 \\ \xHH",
        hint=r"streamlog cat TOPIC --output-format '%p:%o %k %s\n'",
    )


class TextWriter:
    """Prints records with a format string.

    Args:
        output: The output.
        template: The format string.
        encoding: One of `ENCODINGS`; `utf8` prints bytes unchanged.
    """

    def __init__(self, output: Output, template: str, encoding: str) -> None:
        self._output = output
        self._parts = parse_output_format(template)
        self._encode = ENCODERS[encoding]
        letters = {part for part in self._parts if isinstance(part, str)}
        needs = {"key": "kK", "value": "sSR", "headers": "h"}
        self.columns = frozenset(name for name in COLUMNS if letters & set(needs[name]))

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Print records."""
        chunk = _Chunk(columns, partition, self._encode)
        filled = [
            repeat(part, columns.count) if isinstance(part, bytes) else _LETTERS[part](chunk)
            for part in self._parts
        ]
        self._output.write(b"".join(map(b"".join, zip(*filled, strict=True))))

    def flush(self) -> None:
        """Flush the output."""
        self._output.flush()


# ---- table ------------------------------------------------------------------------------------
class TableWriter:
    r"""Prints a table; the first rows determine the column widths.

    Long keys and values are shortened on a terminal only.

    Args:
        output: The output.
        encoding: One of `ENCODINGS`; `utf8` prints invalid bytes as `\x..`.
    """

    columns = COLUMNS
    titles = ("partition", "offset", "timestamp", "key", "value", "headers")

    def __init__(self, output: Output, encoding: str) -> None:
        self._output, self._encoding = output, encoding
        self._widths: list[int] | None = None

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Print records."""
        lines = [
            (
                str(partition),
                str(record.offset),
                _time_text(record.timestamp),
                self._text(record.key),
                self._text(record.value),
                " ".join(f"{safe_text(h.key)}={self._text(h.value)}" for h in record.headers),
            )
            for record in columns.records()
        ]
        if self._widths is None and lines:
            measured = [self.titles, *lines[:_TABLE_ROWS_MEASURED]]
            self._widths = [max(map(len, column)) for column in zip(*measured, strict=True)]
            self._print(self.titles)
        for line in lines:
            self._print(line)

    def _print(self, line: Iterable[str]) -> None:
        assert self._widths is not None
        cells = (cell.ljust(width) for cell, width in zip(line, self._widths, strict=True))
        self._output.write("  ".join(cells).rstrip().encode() + b"\n")

    def _text(self, value: bytes | None) -> str:
        if value is None:
            return "null"
        text = encoded_text(value, self._encoding)
        if self._output.is_terminal and len(text) > _CELL_MAX:
            return text[: _CELL_MAX - 1] + "…"
        return text

    def flush(self) -> None:
        """Flush the output."""
        self._output.flush()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time_text(timestamp: int | None) -> str:
    if timestamp is None or timestamp == NO_TIMESTAMP:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
