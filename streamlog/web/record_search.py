"""A search for records, newest or oldest first, within limits of rows, bytes and time.

Each partition is read from one end of its range until it has as many matches as a page shows, or a
limit is reached. The matches of all partitions are put in order of time, and the cursor says where
each partition goes on. Newest first, a partition is read in windows, each larger than the last.
"""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streamlog.arrow.tables import read_arrow
from streamlog.arrow.views import open_read_roots
from streamlog.bucket.places import root_paths
from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    InvalidOptionError,
    OffsetOutOfRangeError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.fs.local import LocalFileSystem
from streamlog.records.record import IsolationLevel
from streamlog.root.offset_specs import OffsetSpec, parse_place
from streamlog.root.topics import unknown_topic_error
from streamlog.topic import TopicPartition
from streamlog.web.record_filter import RecordFilter

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots

__all__ = [
    "FoundRecords",
    "RecordQuery",
    "SearchLimits",
    "one_record",
    "parse_border",
    "parse_cursor",
    "read_range",
    "rows_of",
    "search",
]

_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
_WINDOW: Final = 512  # offsets
_WINDOW_BYTES: Final = 16 << 20
_CURSOR: Final = re.compile(r"[0-9]{1,9}:[0-9]{1,19}(,[0-9]{1,9}:[0-9]{1,19})*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """How much one search may do.

    Attributes:
        rows: Records on a page.
        bytes: Bytes of records that are looked at.
        ms: How long it may take, in ms.
    """

    rows: int = 50
    bytes: int = 256 << 20
    ms: float = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """What is searched for.

    Attributes:
        topic: The topic.
        partition: Its only partition wanted; None: all.
        start: The beginning of the range, an offset or a time; None: the log start.
        end: Its end (exclusive); None: the end of the log.
        is_newest_first: The order.
        filter: The conditions.
        cursor: Where each partition goes on: the first offset, or newest first the end.
        has_headers: Whether the records found have their headers.
    """

    topic: str
    partition: int | None = None
    start: OffsetSpec | None = None
    end: OffsetSpec | None = None
    is_newest_first: bool = True
    filter: RecordFilter = field(default_factory=RecordFilter)
    cursor: Mapping[int, int] = field(default_factory=dict)
    has_headers: bool = False


def parse_cursor(text: str) -> dict[int, int]:
    """Return a cursor: `0:120,1:77`.

    Raises:
        InvalidOptionError: It is none.
    """
    if not text:
        return {}
    if _CURSOR.fullmatch(text) is None:
        raise InvalidOptionError("not a cursor", got=text, expected="PARTITION:OFFSET,…")
    pairs = (each.split(":") for each in text.split(","))
    return {int(number): int(offset) for number, offset in pairs}


def parse_border(text: str, now_ms: int) -> OffsetSpec | None:
    """Return a border of a range: an offset or a time; None for an empty text.

    Raises:
        InvalidOptionError: It is neither.
    """
    if not text.strip():
        return None
    place = parse_place(text.strip(), now_ms)
    if place is None or place.kind == "tail":
        raise InvalidOptionError(
            "neither an offset nor a time",
            got=text,
            expected="an offset, beginning, end, 2026-11-01T10:00 (UTC), -1h or s@MS",
        )
    return place


class FoundRecords(NamedTuple):
    """The result of a search.

    Attributes:
        rows: The records, in order.
        cursor: Where to go on, as text; None if everything was looked at.
        scanned: How many records were looked at.
        scanned_bytes: How many bytes they have.
        ms: How long it took.
        stopped: The limit that ended it before the page was full; None if none did.
        problem: What could not be read; None if nothing.
    """

    rows: list[dict[str, Any]]
    cursor: str | None
    scanned: int
    scanned_bytes: int
    ms: float
    stopped: str | None
    problem: str | None


class _Budget:
    """What is left of the limits of one search."""

    def __init__(self, limits: SearchLimits, clock: Clock) -> None:
        self._clock, self._limits = clock, limits
        self._began_ms = clock.monotonic_ms()
        self.records = self.bytes = 0

    def take(self, batch: pa.RecordBatch) -> None:
        self.records += batch.num_rows
        self.bytes += batch.nbytes

    @property
    def ms(self) -> float:
        return self._clock.monotonic_ms() - self._began_ms

    def exceeded(self, share: float) -> str | None:
        """Return the limit of which more than a share is used."""
        if self.bytes > self._limits.bytes * share:
            return "bytes"
        return "time" if self.ms > self._limits.ms * share else None


class _Part(NamedTuple):
    """What was found in one partition.

    Attributes:
        rows: The matches, in the order of the search.
        next: Where to go on; None at the end of the range.
        stopped: The limit that ended it.
        problem: What could not be read.
    """

    rows: list[dict[str, Any]]
    next: int | None
    stopped: str | None = None
    problem: str | None = None


def search(
    path: str, query: RecordQuery, limits: SearchLimits, *, clock: Clock | None = None
) -> FoundRecords:
    """Search for records; nothing is changed.

    Args:
        path: A root, as `read_table` takes it.
        query: What is wanted.
        limits: How much may be done; where a limit ends the search, the cursor goes on.
        clock: The clock; the machine's own by default.

    Raises:
        UnknownTopicError: There is no such root, topic or partition.
        StorageError: The root cannot be read.
    """
    clock = clock or SystemClock()
    roots = open_read_roots(root_paths(path, LocalFileSystem()), clock=clock)
    budget = _Budget(limits, clock)
    numbers = _partitions(roots, query)
    if query.cursor:
        numbers = [each for each in numbers if each in query.cursor]
    parts: dict[int, _Part] = {}
    for at, number in enumerate(numbers, 1):
        look = _PartitionSearch(path, roots, TopicPartition(query.topic, number), query)
        try:
            parts[number] = look.run(limits.rows, budget, share=at / len(numbers))
        except OffsetOutOfRangeError:  # deleted since the log start was looked at
            parts[number] = _Part([], None)
    return _merged(parts, query, limits, budget)


def ranges_of(path: str, query: RecordQuery) -> list[tuple[TopicPartition, int, int]]:
    """Return the range of offsets of each partition that a query asks for.

    Raises:
        UnknownTopicError: There is no such root, topic or partition.
    """
    roots = open_read_roots(root_paths(path, LocalFileSystem()))
    found = []
    for number in _partitions(roots, query):
        partition = TopicPartition(query.topic, number)
        look = _PartitionSearch(path, roots, partition, query)
        with look.open() as log:
            found.append((partition, *look.bounds(log)))
    return found


def _partitions(roots: "AnyReadRoots", query: RecordQuery) -> list[int]:
    found = roots.find()
    if query.topic not in found:
        raise unknown_topic_error(roots.name, query.topic, sorted(found), is_wanted=False)
    numbers = sorted(found[query.topic])
    if query.partition is None:
        return numbers
    if query.partition not in numbers:
        raise UnknownTopicError(
            f"topic {query.topic} has no such partition", path=roots.name, got=query.partition
        )
    return [query.partition]


def _merged(
    parts: Mapping[int, _Part], query: RecordQuery, limits: SearchLimits, budget: _Budget
) -> FoundRecords:
    """Return the matches of all partitions in order of time, and where each goes on."""
    sign = -1 if query.is_newest_first else 1
    every = [row for part in parts.values() for row in part.rows]
    every.sort(key=lambda row: (sign * row["timestamp"], row["partition"], sign * row["offset"]))
    shown = every[: limits.rows]
    kept = {(row["partition"], row["offset"]) for row in shown}
    cursor = {}
    for number, part in parts.items():
        left = [row["offset"] for row in part.rows if (number, row["offset"]) not in kept]
        if left:  # found, but not shown: the next page begins with it
            cursor[number] = left[0] + (1 if query.is_newest_first else 0)
        elif part.next is not None:
            cursor[number] = part.next
    is_full = len(shown) == limits.rows
    return FoundRecords(
        rows=shown,
        cursor=",".join(f"{number}:{at}" for number, at in sorted(cursor.items())) or None,
        scanned=budget.records,
        scanned_bytes=budget.bytes,
        ms=budget.ms,
        stopped=None if is_full else next((p.stopped for p in parts.values() if p.stopped), None),
        problem=next((part.problem for part in parts.values() if part.problem), None),
    )


class _PartitionSearch:
    """The search in one partition."""

    def __init__(
        self, path: str, roots: "AnyReadRoots", partition: TopicPartition, query: RecordQuery
    ) -> None:
        self._path, self._roots, self._partition, self._query = path, roots, partition, query

    def bounds(self, log: Any) -> tuple[int, int]:
        """Return the range that is searched, in an open partition."""
        readable = log.readable(IsolationLevel.READ_COMMITTED)
        start = self._border(log, self._query.start, readable.start, readable)
        end = self._border(log, self._query.end, readable.end, readable)
        at = self._query.cursor.get(self._partition.partition)
        if at is None:
            return start, end
        return (start, min(end, at)) if self._query.is_newest_first else (max(start, at), end)

    def open(self) -> Any:
        """Open the partition for reading."""
        directories = self._roots.find()[self._partition.topic][self._partition.partition]
        return self._roots.open(self._partition, directories)

    def run(self, rows: int, budget: _Budget, share: float) -> _Part:
        """Return up to `rows` matches; stop at a share of the limits."""
        is_backward = self._query.is_newest_first
        with self.open() as log:
            start, end = self.bounds(log)
            if start >= end:
                return _Part([], None)
            if (stopped := budget.exceeded(1)) is not None:
                return _Part([], end if is_backward else start, stopped)
            if is_backward:
                return self._backward(start, end, rows, budget, share, log.size_between)
        return self._forward(start, end, rows, budget, share)

    @staticmethod
    def _border(log: Any, place: OffsetSpec | None, default: int, readable: Any) -> int:
        if place is None:
            return default
        if place.kind == "time":
            found = log.offset_for_timestamp(place.value)
            return int(readable.end if found is None else found.offset)
        offset = {"beginning": readable.start, "end": readable.end}.get(place.kind, place.value)
        return int(max(readable.start, min(readable.end, offset)))

    def _read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return read_range(
            self._path,
            self._partition,
            start,
            end,
            columns=_COLUMNS,
            include_headers=self._query.has_headers,
        )

    def _forward(self, start: int, end: int, rows: int, budget: _Budget, share: float) -> _Part:
        found: list[dict[str, Any]] = []
        at = start
        try:
            for batch in self._read(start, end):
                budget.take(batch)
                match = self._query.filter.matching(batch)
                found += rows_of(match.slice(0, rows - len(found)))
                at = batch["offset"][-1].as_py() + 1
                if len(found) == rows:
                    at = found[-1]["offset"] + 1
                    return _Part(found, at if at < end else None)
                stopped = budget.exceeded(share)
                if stopped is not None and at < end:
                    return _Part(found, at, stopped)
        except StreamLogError as error:
            return _Part(found, None, problem=error.sentence)
        return _Part(found, None)

    def _backward(
        self, start: int, end: int, rows: int, budget: _Budget, share: float, size_of: Any
    ) -> _Part:
        found: list[dict[str, Any]] = []
        width, high = max(_WINDOW, rows), end
        problem = None
        while high > start:
            low = max(start, high - width)
            try:
                while low < high - 1 and size_of(low, high) > _WINDOW_BYTES:
                    low = high - (high - low) // 2
                matches = []
                for batch in self._read(low, high):
                    budget.take(batch)
                    matches.append(self._query.filter.matching(batch))
            except StreamLogError as error:
                problem = error.sentence
            window = [
                row
                for match in matches
                for row in rows_of(match.slice(max(0, match.num_rows - rows)))
            ]
            found += reversed(window[-(rows - len(found)) :])
            high, width = low, width * 4
            if len(found) == rows:
                at = found[-1]["offset"]
                return _Part(found, at if at > start else None, problem=problem)
            stopped = budget.exceeded(share)
            if stopped is not None and high > start:
                return _Part(found, high, stopped, problem)
        return _Part(found, None, problem=problem)


def read_range(
    path: str,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    columns: Collection[str] | None = None,
    include_headers: bool = False,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition from `start` to before `end`.

    Args:
        path: The root.
        partition: The partition.
        start: The first offset.
        end: The offset after the last one.
        columns: Which columns; None: all of them, with headers.
        include_headers: Whether to add headers to chosen columns.
        isolation: Whether to leave out records that are not committed.

    Raises:
        StreamLogError: The root, topic or partition does not exist, or a record is damaged.
    """
    topic, number = partition
    return iter(
        read_arrow(
            path,
            topic,
            partitions=[number],
            columns=columns,
            include_headers=include_headers or columns is None,
            isolation=isolation,
            invalid_timestamps="null",
            starting_offsets={topic: {number: start}},
            ending_offsets={topic: {number: end}},
        )
    )


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return records as dictionaries, with the timestamp in ms since 1970, -1 for none."""
    at = batch.schema.get_field_index("timestamp")
    micros = batch.column(at).cast(pa.int64())
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row, micro in zip(rows, micros.to_pylist(), strict=True):
        row["timestamp"] = -1 if micro is None else micro // 1000
    return rows


def one_record(path: str, partition: TopicPartition, offset: int) -> dict[str, Any] | None:
    """Return one record with its headers, None if there is none at this offset.

    Raises:
        StreamLogError: The root, topic or partition does not exist, or the record is damaged.
    """
    all_records = IsolationLevel.READ_UNCOMMITTED
    with contextlib.suppress(OffsetOutOfRangeError):
        for batch in read_range(path, partition, offset, offset + 1, isolation=all_records):
            for row, kind in zip(rows_of(batch), batch["timestampType"].to_pylist(), strict=True):
                return {**row, "timestampType": kind}
    return None
