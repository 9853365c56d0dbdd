"""`read_table` and `read_arrow`: a log as Arrow, for pandas, Polars, DuckDB and others.

They read any log root, partition directory or segment file in Kafka's format, strictly read-only:
nothing is created, locked, repaired or modified. The columns are those of the Spark source.
"""

import contextlib
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

from streamlog.arrow.decoded_columns import DecodedColumns, Decoding
from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.decoding_arguments import DecodingArguments
from streamlog.arrow.log_view import (
    EARLIEST,
    LATEST,
    OffsetRange,
    OpenLogView,
    PartitionBounds,
    TopicChoice,
)
from streamlog.arrow.object_reading import ReadBuffers
from streamlog.arrow.planned import PlannedRange
from streamlog.arrow.reading import FETCH_BYTES, read_ranges
from streamlog.arrow.schema import choose_columns
from streamlog.arrow.views import open_read_roots, open_view
from streamlog.bucket.places import is_bucket, root_paths
from streamlog.clock import epoch_ms
from streamlog.errors import (
    InvalidOptionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.partition.reader import LogReader
from streamlog.partition.topic_config import check_decompressed_bytes
from streamlog.records.layout import MAX_INT32
from streamlog.records.record import IsolationLevel
from streamlog.root.read_roots import ReadRoots, RootPaths
from streamlog.topic import TopicPartition, check_topic_name

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots

__all__ = ["choose_topics", "read_arrow", "read_table"]

Offsets: TypeAlias = str | int | Mapping[str, Mapping[int, int]]
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_MOST_NAMED: Final = 20  # partitions in an error

_PIECE_BYTES: Final = 32 << 20  # reading less takes no longer than starting a thread
# A table's first rows are not needed early, so its arrays can be large: from 4 MiB on the kernel
# backs them with pages of 2 MiB, and fresh memory is expensive: each page is zeroed on first use.
_TABLE_FETCH_BYTES: Final = 16 << 20
_TABLE_BATCH_BYTES: Final = 64 << 20
_BATCH_BYTES: Final = 1 << 20  # size of a large batch: a fetch may end inside one


def read_table(
    path: RootPaths,
    topic: str | None = None,
    *,
    partitions: Collection[int] | None = None,
    columns: Collection[str] | None = None,
    include_headers: bool = False,
    isolation: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
    invalid_timestamps: str = "error",
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    starting_timestamp: int | datetime | None = None,
    ending_timestamp: int | datetime | None = None,
    max_decompressed_bytes: int | None = None,
    value_format: str | None = None,
    key_format: str | None = None,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    value_subject: str | None = None,
    key_subject: str | None = None,
    value_message: str | None = None,
    key_message: str | None = None,
    schema_framing: str = "confluent",
    mode: str = "PERMISSIVE",
) -> pa.Table:
    """Return records as one Arrow table in memory; for the arguments see `read_arrow`.

    Large partitions are read in pieces, by one thread per processor. If a partition cannot be
    read, no table is returned; the error names all such partitions and how to select the others.
    """
    return _Plan.of(
        *(path, topic),
        partitions=partitions,
        columns=columns,
        include_headers=include_headers,
        isolation=isolation,
        invalid_timestamps=invalid_timestamps,
        span=_TableRange.of(starting_offsets, ending_offsets, starting_timestamp, ending_timestamp),
        max_decompressed_bytes=max_decompressed_bytes,
        decoding=DecodingArguments(
            (key_format, value_format),
            (key_schema, value_schema),
            (key_subject, value_subject),
            (key_message, value_message),
            *(schema_registry, schema_framing, mode),
        ),
    ).table()


def read_arrow(
    path: RootPaths,
    topic: str | None = None,
    *,
    partitions: Collection[int] | None = None,
    columns: Collection[str] | None = None,
    include_headers: bool = False,
    isolation: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
    invalid_timestamps: str = "error",
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    starting_timestamp: int | datetime | None = None,
    ending_timestamp: int | datetime | None = None,
    max_decompressed_bytes: int | None = None,
    value_format: str | None = None,
    key_format: str | None = None,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    value_subject: str | None = None,
    key_subject: str | None = None,
    value_message: str | None = None,
    key_message: str | None = None,
    schema_framing: str = "confluent",
    mode: str = "PERMISSIVE",
) -> pa.RecordBatchReader:
    """Return records as a stream of Arrow record batches, up to the end of the log at this time.

    Args:
        path: A log root, also in an object store (`s3://BUCKET/PATH`, `gs://…`, `az://…`), a
            partition's directory, or one segment file. Several log roots of a
            replica set, as a list or separated by commas, are read as one: whichever is reachable.
        topic: The topic; by default all topics except Kafka's internal ones.
        partitions: Numbers of its partitions; all by default.
        columns: Names of columns; all by default.
        include_headers: Whether to include headers in addition.
        isolation: `read_committed`, or `read_uncommitted` to include open and aborted
            transactions.
        invalid_timestamps: Result for times that microseconds cannot hold: `error` or `null`.
        starting_offsets: `earliest` (default), `latest`, one offset for all partitions, or
            offsets by topic and partition, `{"orders": {0: 5, 1: 7}}` (-1 latest, -2 earliest).
        ending_offsets: The end (exclusive), in the same forms; `latest` by default.
        starting_timestamp: Instead: start at the first record of each partition with this time or
            later, in ms since 1970 or as a datetime with a time zone. A partition without such a
            record is not read.
        ending_timestamp: Instead: end before the first record with this time or later.
        max_decompressed_bytes: Limit of one decompressed batch, if that of its topic
            (`streamlog.max.decompressed.bytes`, at least 64 MiB) is too low.
        value_format: `json`, `avro` or `protobuf`: `value` has the type of the schema, and a last
            column `_error` says which records could not be decoded, and why.
        key_format: The same for `key`.
        schema_registry: URL of a schema registry, or a directory of schemas.
        value_schema: The reader's schema: its text or `@FILE`; for JSON a Spark DDL or a JSON
            Schema.
        key_schema: The same for `key`.
        value_subject: Instead: the subject in the registry; TOPIC-value by default.
        key_subject: The same for `key`; TOPIC-key by default.
        value_message: Full name of the Protobuf message; by default the first of the schema.
        key_message: The same for `key`.
        schema_framing: `confluent`: an id in front of a value, or a GUID in a header of the
            record, names its schema; or `none`.
        mode: `PERMISSIVE`, or `FAILFAST` to raise for the first record that cannot be decoded.

    Returns:
        A reader with the schema of the Spark source, partition by partition in order of offsets.
        Iterate over it, or pass it to any library that accepts an Arrow stream.

    Raises:
        UnknownTopicError: No such path, topic or partition.
        InvalidOptionError: An unknown column, or an invalid argument.
        OffsetOutOfRangeError: A partition does not have the given offset.
        UnknownSchemaError: The registry does not know the subject.
        InvalidRecordError: A record cannot be decoded, with `mode="FAILFAST"`.
        RegistryError: The registry cannot be reached.
        CorruptDataError: A batch is damaged. Raised after everything else was read, including the
            records before the damage; names every partition that cannot be read.
        StorageError: The disk or its permissions prevent reading; raised in the same way.
    """
    return _Plan.of(
        *(path, topic),
        partitions=partitions,
        columns=columns,
        include_headers=include_headers,
        isolation=isolation,
        invalid_timestamps=invalid_timestamps,
        span=_TableRange.of(starting_offsets, ending_offsets, starting_timestamp, ending_timestamp),
        max_decompressed_bytes=max_decompressed_bytes,
        decoding=DecodingArguments(
            (key_format, value_format),
            (key_schema, value_schema),
            (key_subject, value_subject),
            (key_message, value_message),
            *(schema_registry, schema_framing, mode),
        ),
    ).reader()


class _Piece(NamedTuple):
    """A part of a partition for one thread, and the size of its reads."""

    part: PlannedRange
    fetch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The arguments of `read_arrow`, resolved before the first record is read.

    Attributes:
        ranges: The range of each partition that could be opened.
        unreadable: Collects the errors of the others.
    """

    ranges: list[PlannedRange]
    columns: tuple[str, ...]
    decoding: Decoding | None
    isolation: IsolationLevel
    invalid_timestamps: str
    max_decompressed_bytes: int | None
    unreadable: "_Unreadable"
    fs: FileSystem
    buffers: ReadBuffers = field(default_factory=ReadBuffers)

    @classmethod
    def of(
        cls,
        path: RootPaths,
        topic: str | None,
        *,
        partitions: Collection[int] | None,
        columns: Collection[str] | None,
        include_headers: bool,
        isolation: IsolationLevel | str,
        invalid_timestamps: str,
        span: "_TableRange",
        max_decompressed_bytes: int | None,
        decoding: DecodingArguments,
    ) -> "_Plan":
        """Return the plan for the arguments of `read_arrow`."""
        resolved = decoding.resolve(topic)
        chosen = choose_columns(
            None if columns is None else ",".join(columns),
            include_headers=include_headers,
            has_errors=resolved is not None,
        )
        if invalid_timestamps not in ("error", "null"):
            raise InvalidOptionError(
                "invalid value for invalid_timestamps",
                got=repr(invalid_timestamps),
                expected="error or null",
            )
        if max_decompressed_bytes is not None:
            check_decompressed_bytes(max_decompressed_bytes)
        fs, level = LocalFileSystem(), IsolationLevel.of(isolation)
        roots = open_read_roots(root_paths(path, fs), fs=fs)
        unreadable = _Unreadable(roots.name)
        choice = choose_topics(roots, topic, partitions)
        ranges = _plan_ranges(roots, choice, level, span, unreadable)
        return cls(
            ranges=ranges,
            columns=chosen,
            decoding=resolved,
            isolation=level,
            invalid_timestamps=invalid_timestamps,
            max_decompressed_bytes=max_decompressed_bytes,
            unreadable=unreadable,
            fs=roots.fs if isinstance(roots, ReadRoots) else fs,
        )

    def decoder(self, **sizes: int) -> ArrowDecoder:
        """Return a new decoder of records; each thread needs its own."""
        columns = self.decoded_columns()
        raw = self.columns if columns is None else columns.raw
        return ArrowDecoder(raw, invalid_timestamps=self.invalid_timestamps, **sizes)

    def decoded_columns(self) -> DecodedColumns | None:
        """Return what decodes keys and values, if they are decoded; each thread needs its own."""
        return None if self.decoding is None else DecodedColumns(self.decoding, self.columns)

    def reader(self) -> pa.RecordBatchReader:
        """Return the records as a stream."""
        decoder, decoded = self.decoder(), self.decoded_columns()
        batches = self.read_all(decoder)
        if decoded is None:
            return pa.RecordBatchReader.from_batches(decoder.schema, batches)
        return pa.RecordBatchReader.from_batches(decoded.schema, decoded.decode(batches))

    def table(self) -> pa.Table:
        """Return the records, read by several threads."""
        threads = os.cpu_count() or 1
        pieces: list[_Piece] = []
        for part in self.ranges:
            with self.unreadable.noting(part.topic_partition):
                pieces += self.cut(part, threads)
        with ThreadPoolExecutor(threads) as pool:
            try:
                batches = [batch for part in pool.map(self.read_whole, pieces) for batch in part]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self.raise_if_unreadable()
        decoded = self.decoded_columns()
        schema = self.decoder().schema if decoded is None else decoded.schema
        return pa.Table.from_batches(batches, schema)

    def cut(self, part: PlannedRange, most: int) -> list["_Piece"]:
        """Split a range into at most `most` pieces, each large enough for a thread."""
        if is_bucket(part.directories[0]):
            return [_Piece(part, FETCH_BYTES)]  # it is read in parallel ranges
        try:
            reader = LogReader.open(part.directories[0], fs=self.fs)
        except StreamLogError:
            if len(part.directories) == 1:
                raise
            return [_Piece(part, FETCH_BYTES)]  # it is read from another replica
        with reader:
            size = reader.size_between(part.start_offset, part.end_offset)
            count = max(1, min(most, size // _PIECE_BYTES))
            cuts = reader.split(part.start_offset, part.end_offset, count)
            pieces = [self._piece(part, reader, *cut) for cut in cuts]
        fetches = max(1, size // count // _TABLE_FETCH_BYTES)
        fetch_bytes = size // count // fetches + _BATCH_BYTES
        return [_Piece(piece, fetch_bytes) for piece in pieces]

    def _piece(self, part: PlannedRange, reader: LogReader, start: int, end: int) -> PlannedRange:
        epoch = part.end_epoch if part.end_epoch < 0 else reader.epoch_for_offset(end - 1)
        return part._replace(start_offset=start, end_offset=end, end_epoch=epoch)

    def raise_if_unreadable(self) -> None:
        """Raise if a partition could not be read."""
        self.unreadable.raise_if_any(part.topic_partition for part in self.ranges)

    def read_all(self, decoder: ArrowDecoder) -> Iterator[pa.RecordBatch]:
        """Yield the records of all partitions, then raise if some could not be read."""
        for part in self.ranges:
            with self.unreadable.noting(part.topic_partition):
                yield from self._read(part, decoder)
        self.raise_if_unreadable()

    def _read(
        self, part: PlannedRange, decoder: ArrowDecoder, **sizes: int
    ) -> Iterator[pa.RecordBatch]:
        return read_ranges(
            [part],
            decoder=decoder,
            isolation=self.isolation,
            fail_on_data_loss=True,
            fs=self.fs,
            max_decompressed_bytes=self.max_decompressed_bytes,
            buffers=self.buffers,
            **sizes,
        )

    def read_whole(self, piece: "_Piece") -> list[pa.RecordBatch]:
        """Return the records of a piece, in large arrays.

        After the first error of any thread nothing is kept, since no table will be returned.
        """
        decoder = self.decoder(max_rows=MAX_INT32, max_bytes=_TABLE_BATCH_BYTES)
        kept: list[pa.RecordBatch] = []
        with self.unreadable.noting(piece.part.topic_partition):
            for batch in self._read(piece.part, decoder, fetch_bytes=piece.fetch_bytes):
                if not self.unreadable:
                    kept.append(batch)
        columns = self.decoded_columns()
        return kept if columns is None else list(columns.decode(kept))


def _plan_ranges(
    roots: "AnyReadRoots",
    choice: TopicChoice,
    isolation: IsolationLevel,
    span: "_TableRange",
    unreadable: "_Unreadable",
) -> list[PlannedRange]:
    """Return the ranges; if a partition cannot be opened, open the others one by one."""
    try:
        return _ranges_of(roots, choice, isolation, span, is_all=True)
    except InvalidRequestError:
        raise
    except StreamLogError:
        ranges: list[PlannedRange] = []
        for topic, numbers in sorted(roots.find().items()):
            for number in filter(partial(choice.wants, topic), numbers):
                partition = TopicPartition(topic, number)
                with unreadable.noting(partition):
                    one = TopicChoice(partitions=(partition,))
                    ranges += _ranges_of(roots, one, isolation, span, is_all=False)
        return ranges


def _ranges_of(
    roots: "AnyReadRoots",
    choice: TopicChoice,
    isolation: IsolationLevel,
    span: "_TableRange",
    *,
    is_all: bool,
) -> list[PlannedRange]:
    with contextlib.closing(open_view(roots, choice, isolation)) as view:
        if is_all:
            span.check_names(view)
        return [view.planned(part) for part in span.ranges(view)]


def choose_topics(
    roots: "AnyReadRoots", topic: str | None, partitions: Collection[int] | None
) -> TopicChoice:
    """Return what the arguments of `read_arrow` choose.

    Args:
        roots: The roots.
        topic: The topic; None: that of the path, or all.
        partitions: Numbers of its partitions; None: all.

    Raises:
        UnknownTopicError: Partitions are given without a topic, or the name is invalid.
    """
    found = roots.find()
    if topic is None:
        # The path of a partition names its topic, even an internal one.
        topic = next((each for each, there in found.items() if roots.paths in there.values()), None)
    if topic is None and partitions is None:
        return TopicChoice(pattern=".*")
    if topic is None:
        if len(found) != 1:
            raise UnknownTopicError(
                "partitions are given without a topic",
                path=roots.name,
                expected=f"topic=, one of {', '.join(found)}" if found else None,
            )
        topic = next(iter(found))
    check_topic_name(topic)
    if partitions is None:
        return TopicChoice(topics=(topic,))
    return TopicChoice(partitions=tuple(TopicPartition(topic, each) for each in partitions))


# ---- from where to where -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Border:
    """Start or end of the ranges: one number for all partitions, or one for each.

    Attributes:
        name: The argument that set it, for errors.
        everywhere: The number for all partitions; None: see `partitions`.
        partitions: Numbers by partition.
        is_time: Whether the numbers are ms since 1970 instead of offsets.
    """

    name: str
    everywhere: int | None
    partitions: Mapping[TopicPartition, int]
    is_time: bool

    @classmethod
    def of(cls, side: str, offsets: Offsets | None, time: int | datetime | None) -> "_Border":
        """Return the border for the arguments of one side, `starting` or `ending`."""
        name = f"{side}_offsets"
        default = EARLIEST if side == "starting" else LATEST
        if time is not None:
            if offsets is not None:
                raise InvalidOptionError(
                    f"both {name} and {side}_timestamp are given", expected="one of them"
                )
            return cls(f"{side}_timestamp", epoch_ms(time), {}, is_time=True)
        if isinstance(offsets, Mapping):
            return cls(name, None, dict(_by_partition(name, offsets)), is_time=False)
        number = default if offsets is None else _WORDS.get(str(offsets), offsets)
        if isinstance(number, bool) or not isinstance(number, int):
            raise _impossible(name, offsets)
        return cls(name, number, {}, is_time=False)

    def in_partition(
        self, view: OpenLogView, partition: TopicPartition, bounds: PartitionBounds
    ) -> int:
        """Return the offset of the border in a partition."""
        number = self.partitions.get(partition) if self.everywhere is None else self.everywhere
        if number is None:
            raise InvalidOptionError(
                f"{self.name} must name all partitions to read",
                got=", ".join(map(str, sorted(self.partitions))) or "none",
                expected=f"{partition} as well; -1: its latest, -2: its earliest offset",
                hint="select partitions with partitions=",
            )
        if self.is_time:
            found = view.offset_for_timestamp(partition, number)
            return bounds.end_offset if found is None else min(found, bounds.end_offset)
        if number == LATEST:
            return bounds.end_offset
        if number == EARLIEST:
            return bounds.log_start_offset
        if not bounds.log_start_offset <= number <= bounds.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.name}: offset out of range in {partition}",
                got=number,
                expected=f"{bounds.log_start_offset} to {bounds.log_end_offset}",
            )
        return min(number, bounds.end_offset)


@dataclass(frozen=True, slots=True)
class _TableRange:
    """Start and end of the ranges to read."""

    start: _Border
    end: _Border

    @classmethod
    def of(
        cls,
        starting_offsets: Offsets | None = None,
        ending_offsets: Offsets | None = None,
        starting_timestamp: int | datetime | None = None,
        ending_timestamp: int | datetime | None = None,
    ) -> "_TableRange":
        """Return the range for the arguments of `read_arrow`."""
        return cls(
            _Border.of("starting", starting_offsets, starting_timestamp),
            _Border.of("ending", ending_offsets, ending_timestamp),
        )

    def check_names(self, view: OpenLogView) -> None:
        """Raise `InvalidOptionError` if an argument names a partition that is not read."""
        for border in (self.start, self.end):
            strange = sorted(border.partitions.keys() - view.bounds.keys())
            if strange:
                raise InvalidOptionError(
                    f"{border.name} names a partition that is not read",
                    got=str(strange[0]),
                    expected=", ".join(map(str, sorted(view.bounds))) or "none",
                )

    def ranges(self, view: OpenLogView) -> list[OffsetRange]:
        """Return the range of each partition of a view; some may be empty."""
        return [
            OffsetRange(
                *partition,
                self.start.in_partition(view, partition, bounds),
                self.end.in_partition(view, partition, bounds),
            )
            for partition, bounds in sorted(view.bounds.items())
        ]


def _by_partition(
    name: str, offsets: Mapping[str, Mapping[int, int]]
) -> list[tuple[TopicPartition, int]]:
    found = []
    for topic, numbers in offsets.items():
        if not isinstance(numbers, Mapping):
            raise _impossible(name, offsets)
        for partition, offset in numbers.items():
            if type(partition) is not int or type(offset) is not int:
                raise _impossible(name, offsets)
            found.append((TopicPartition(topic, partition), offset))
    return found


def _impossible(name: str, got: object) -> InvalidOptionError:
    return InvalidOptionError(
        f"invalid value for {name}",
        got=repr(got),
        expected="'earliest', 'latest', an offset, or offsets by topic and partition:"
        " {'orders': {0: 5, 1: 7}}",
    )


# ---- what cannot be read -------------------------------------------------------------------------
class _Unreadable:
    """Errors of partitions that cannot be read; falsy while there are none.

    Args:
        path: The path being read, for hints.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._errors: dict[TopicPartition, StreamLogError] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    @contextlib.contextmanager
    def noting(self, partition: TopicPartition) -> Iterator[None]:
        """Record an error of a partition instead of raising it, unless the call is wrong."""
        try:
            yield
        except InvalidRequestError:
            raise
        except StreamLogError as error:
            self._errors.setdefault(partition, error)

    def raise_if_any(self, wanted: Iterable[TopicPartition]) -> None:
        """Raise the error of the first unreadable partition, extended by the names of all.

        Args:
            wanted: All partitions that were to be read.
        """
        if not self._errors:
            return
        bad, everything = sorted(self._errors), {*wanted, *self._errors}
        error = self._errors[bad[0]]
        if len(everything) > 1:
            others = ", ".join(map(str, bad[:_MOST_NAMED]))
            more = f" and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
            error.what = (
                f"{len(bad)} of {len(everything)} partitions cannot be read ({others}{more}), "
                f"the first one: {error.what}"
            )
            error.hint = (
                f"check each: streamlog verify {self._path}; read the others: "
                f"{_selecting(everything.difference(bad)) or 'none'}"
            )
        raise error


def _selecting(partitions: Iterable[TopicPartition]) -> str:
    """Return the arguments of `read_arrow` that select partitions, topic by topic."""
    topics = itertools.groupby(sorted(partitions), key=lambda each: each.topic)
    calls = [
        f"topic={topic!r}, partitions={[each.partition for each in some]}" for topic, some in topics
    ]
    return "; ".join(calls[:_MOST_NAMED]) + (" …" if len(calls) > _MOST_NAMED else "")
