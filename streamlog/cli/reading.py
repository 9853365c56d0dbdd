"""Reading for `cat`: which offsets of which partitions, and the records of them as columns."""

import sys
from typing import Final, NamedTuple, Protocol

from streamlog.cli.failures import Findings
from streamlog.cli.moments import OffsetSpec, Span
from streamlog.cli.output import remark
from streamlog.cli.progress import Progress
from streamlog.cli.settings import Settings
from streamlog.cli.sources import Source, Sources
from streamlog.clock import Clock
from streamlog.errors import (
    CorruptDataError,
    OffsetOutOfRangeError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.partition.iteration import POLL_MS, read_columns
from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.record import IsolationLevel
from streamlog.topic import TopicPartition

__all__ = ["Reading", "RecordWriter", "first_rows", "read_all"]

LOOK_MS: Final = 1000  # how often to look for partitions that were added or deleted


class Reading(NamedTuple):
    """What `cat` is to read."""

    span: Span
    limit: int | None
    is_following: bool
    isolation: IsolationLevel


class RecordWriter(Protocol):
    """What becomes of the records."""

    columns: frozenset[str]

    def write(self, columns: RecordColumns, partition: TopicPartition) -> None:
        """Take some records of a partition."""
        ...

    def flush(self) -> None:
        """Hand over what is held back."""
        ...


def read_all(
    settings: Settings, sources: Sources, reading: Reading, writer: RecordWriter, clock: Clock
) -> None:
    """Write all records wanted, partition by partition; then, if following, those that come.

    Raises:
        Findings: Something was damaged or out of range; what could be read was written first.
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
    """How many records may still be written."""

    def __init__(self, count: int | None) -> None:
        self._count = count

    @property
    def is_nothing(self) -> bool:
        return self._count is not None and self._count <= 0

    def take(self, columns: RecordColumns) -> RecordColumns:
        """Return as many of `columns` as may be written, and count them."""
        if self._count is None:
            return columns
        taken = columns if columns.count <= self._count else first_rows(columns, self._count)
        self._count -= taken.count
        return taken


Part = tuple[Source, int, int]
Work = tuple[RecordWriter, _Left, Progress, list[StreamLogError]]


def _places(sources: Sources, reading: Reading, errors: list[StreamLogError]) -> list[Part]:
    """Return from where to where each partition is to be read; note those where that fails."""
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
                f"offset is outside of {source.partition}",
                path=source.reader.path,
                got=place.value,
                expected=f"{source.start_offset} to {end}",
                hint="--offset beginning, or an offset of that range",
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
    """Return the offset of the `count`-th record from the end; offsets may have gaps."""
    width = count
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
    """Return about how many bytes there are to read; None where damage hides that."""
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
    """Write what is appended, also to partitions that are added, until enough or interrupted.

    Raises:
        Findings: The last partition of what was named was deleted.
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
                end = max(start, source.end_offset(reading.isolation))
                for _, columns in read_columns(
                    source.reader, start, end, isolation=reading.isolation, columns=writer.columns
                ):
                    writer.write(left.take(columns), source.partition)
                    has_written = True
                    if left.is_nothing:
                        return writer.flush()
                ends[source] = end
            except UnknownTopicError:  # it is looked at again in a moment
                continue
        if has_written:
            writer.flush()
        else:
            clock.sleep_ms(POLL_MS)
    return None


def _drop_deleted(settings: Settings, ends: dict[Source, int]) -> list[StreamLogError]:
    """Take out the partitions that are no more; return why."""
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
    """Tell whether stdout is no terminal, so that a bar on stderr does not mix with data."""
    return not reading.is_following and not sys.stdout.isatty()


def _remark_open_transaction(settings: Settings, source: Source, isolation: IsolationLevel) -> None:
    held_back = source.end_offset(IsolationLevel.READ_UNCOMMITTED) - source.end_offset(isolation)
    if held_back > 0:
        remark(
            settings,
            f"{source.partition}: {held_back} offsets from {source.end_offset(isolation)} on wait"
            " for an open transaction (--isolation-level read_uncommitted shows them)",
        )


def first_rows(columns: RecordColumns, count: int) -> RecordColumns:
    """Return the first `count` records; nothing is copied."""
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
