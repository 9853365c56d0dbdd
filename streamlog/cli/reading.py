"""Reading for `cat`: which offsets of which partitions, and the records of them as columns."""

import re
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from streamlog.cli.failures import Findings
from streamlog.cli.output import remark
from streamlog.cli.progress import Progress
from streamlog.cli.settings import Settings
from streamlog.cli.sources import Source, Sources
from streamlog.clock import Clock
from streamlog.errors import (
    CorruptDataError,
    InvalidOptionError,
    OffsetOutOfRangeError,
    StreamLogError,
)
from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.record import IsolationLevel
from streamlog.topic import TopicPartition

__all__ = ["Reading", "RecordWriter", "Span", "first_rows", "parse_offsets", "read_all"]

READ_SIZE: Final = 1 << 20
POLL_MS: Final = 100

_WORDS: Final = {"beginning": "beginning", "earliest": "beginning", "end": "end", "latest": "end"}
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_TIME: Final = re.compile(r"([se])@([0-9]{1,19})", re.ASCII)


class Span(NamedTuple):
    """From where to where to read, as `--offset` says it.

    Attributes:
        start: `beginning`, `end`, or what `value` is: `offset`, `tail` (the last `value` records
            of each partition) or `time`.
        value: An offset, a number of records, or ms since 1970.
        end_ms: Where to stop: at the first record of that time or later; None: at the end.
    """

    start: str = "beginning"
    value: int = 0
    end_ms: int | None = None


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


def parse_offsets(texts: tuple[str, ...]) -> Span:
    """Return the span that some `--offset` options name: a start, an end (`e@MS`), or both.

    Raises:
        InvalidOptionError: Not an offset, or two starts or ends.
    """
    starts: list[tuple[str, int]] = []
    ends: list[int] = []
    for text in texts:
        timed = _TIME.fullmatch(text)
        if timed is not None and timed[1] == "e":
            ends.append(int(timed[2]))
        elif timed is not None:
            starts.append(("time", int(timed[2])))
        elif text in _WORDS:
            starts.append((_WORDS[text], 0))
        elif _NUMBER.fullmatch(text) is not None:
            is_tail = text.startswith("-")
            starts.append(("tail" if is_tail else "offset", abs(int(text))))
        else:
            starts.append(("", 0))
    if len(starts) > 1 or len(ends) > 1 or ("", 0) in starts:
        raise InvalidOptionError(
            "--offset does not say where to start",
            got=" ".join(texts),
            expected="beginning, end, N, -N, s@MS or e@MS, once each way",
            hint="streamlog cat TOPIC --offset s@1700000000000 --offset e@1700000060000",
        )
    start, value = starts[0] if starts else ("beginning", 0)
    return Span(start, value, ends[0] if ends else None)


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
        _follow(places, reading, writer, left, clock)
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


Place = tuple[Source, int, int]
Work = tuple[RecordWriter, _Left, Progress, list[StreamLogError]]


def _places(sources: Sources, reading: Reading, errors: list[StreamLogError]) -> list[Place]:
    """Return from where to where each partition is to be read; note those where that fails."""
    places: list[Place] = []
    for source in sources.opened:
        try:
            end = source.end_offset(reading.isolation)
            start = _start_offset(source, reading.span, end, reading.isolation)
            if reading.span.end_ms is not None:
                found = source.reader.offset_for_timestamp(reading.span.end_ms)
                end = end if found is None else min(end, found.offset)
            places.append((source, start, end))
        except StreamLogError as error:
            errors.append(error)
    return places


def _start_offset(source: Source, span: Span, end: int, isolation: IsolationLevel) -> int:
    if span.start == "end":
        return end
    if span.start == "tail":
        return _tail_start(source, span.value, end, isolation)
    if span.start == "time":
        found = source.reader.offset_for_timestamp(span.value)
        return end if found is None else max(found.offset, source.start_offset)
    if span.start == "offset":
        if not source.start_offset <= span.value <= end:
            raise OffsetOutOfRangeError(
                f"offset is outside of {source.partition}",
                path=source.reader.path,
                got=span.value,
                expected=f"{source.start_offset} to {end}",
                hint="--offset beginning, or an offset of that range",
            )
        return span.value
    return source.start_offset


def _tail_start(source: Source, count: int, end: int, isolation: IsolationLevel) -> int:
    """Return the offset of the `count`-th record from the end; offsets may have gaps."""
    width = count
    while count > 0:
        start = max(source.start_offset, end - width)
        found: list[int] = []
        for columns, _ in _chunks(source, start, end, isolation, frozenset()):
            found = [*found, *columns.offset.tolist()][-count:]
        if len(found) == count or start == source.start_offset:
            return found[0] if found else start
        width *= 4
    return end


def _chunks(
    source: Source, start: int, end: int, isolation: IsolationLevel, wanted: frozenset[str]
) -> Iterator[tuple[RecordColumns, int]]:
    """Yield the records from `start` to `end`, and how many bytes of log they took.

    Before damage is raised those records are yielded that stand before it.
    """
    offset, size = start, READ_SIZE
    while offset < end:
        try:
            info = source.reader.read(offset, size, isolation=isolation, end_offset=end)
            columns = info.columns(columns=wanted)
        except CorruptDataError:
            if size == 1:
                raise
            size = 1  # batch by batch, up to the damaged one
            continue
        if columns.count:
            yield columns, len(info.buffer)
        if info.next_offset <= offset:
            return
        offset = info.next_offset


def _read_one(source: Source, start: int, end: int, reading: Reading, work: Work) -> None:
    writer, left, progress, errors = work
    try:
        if left.is_nothing:
            return
        for columns, size in _chunks(source, start, end, reading.isolation, writer.columns):
            writer.write(left.take(columns), source.partition)
            progress.advance(size)
            if left.is_nothing:
                return
    except StreamLogError as error:
        errors.append(error)


def _total_size(places: list[Place]) -> int | None:
    """Return about how many bytes there are to read; None where damage hides that."""
    try:
        return sum(source.reader.size_between(start, end) for source, start, end in places)
    except CorruptDataError:
        return None


def _follow(
    places: list[Place], reading: Reading, writer: RecordWriter, left: _Left, clock: Clock
) -> None:
    """Write what is appended, until enough or interrupted."""
    ends = {source.partition: max(start, end) for source, start, end in places}
    while not left.is_nothing:
        is_idle = True
        for source, _, _ in places:
            source.reader.refresh()
            start, end = ends[source.partition], source.end_offset(reading.isolation)
            for columns, _ in _chunks(source, start, end, reading.isolation, writer.columns):
                writer.write(left.take(columns), source.partition)
                is_idle = False
                if left.is_nothing:
                    return writer.flush()
            ends[source.partition] = max(start, end)
        if is_idle:
            clock.sleep_ms(POLL_MS)
        else:
            writer.flush()
    return None


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
