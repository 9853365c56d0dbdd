"""Exporting topics, so that the same call again goes on.

    ask the target how far each partition is
    for each partition: read from there to the end, write
                        whatever cannot be read ends its partition, not the others
    complete the last file or commit

How far an export is stands in the target and nowhere else: in the names of its files, or in the
commit that holds the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from streamlog.arrow.log_view import OffsetRange
from streamlog.arrow.schema import ERROR
from streamlog.errors import CorruptRecordError, StreamLogError
from streamlog.exchange.batches import last_offset, offsets_of
from streamlog.exchange.export_columns import ExportColumns
from streamlog.exchange.source import ExportSource
from streamlog.exchange.target import ExportSteps, ExportTarget
from streamlog.root.offset_specs import Span
from streamlog.topic import TopicPartition

__all__ = ["ExportReport", "ExportedPartition", "Exporter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPartition:
    """What was exported of a partition: offsets (the end is exclusive) and number of records."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    records: int


@dataclass(slots=True)
class ExportReport:
    """What an export did.

    Attributes:
        partitions: Each partition.
        errors: Why partitions were not exported to their end.
        written: The files or commits.
        undecoded: How many of the exported records could not be decoded.
        first_undecoded: The error of the first one.
    """

    partitions: list[ExportedPartition] = field(default_factory=list)
    errors: list[StreamLogError] = field(default_factory=list)
    written: ExportSteps = field(default_factory=ExportSteps)
    undecoded: int = 0
    first_undecoded: CorruptRecordError | None = None

    def note_undecoded(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        """Count the records of a batch that could not be decoded."""
        place = batch.schema.get_field_index(ERROR)
        if place < 0 or batch.column(place).null_count == batch.num_rows:
            return
        errors = batch.column(place)
        self.undecoded += batch.num_rows - errors.null_count
        if self.first_undecoded is None:
            row = errors.is_valid().index(True).as_py()
            self.first_undecoded = CorruptRecordError(
                f"a record of {partition} cannot be decoded",
                offset=int(offsets_of(batch)[row]),
                got=errors[row]["message"].as_py(),
                hint="the column _error (error in ndjson) has the reason and the bytes of each",
            )

    def findings(self) -> list[StreamLogError]:
        """Return all that was not exported as it should be."""
        first = self.first_undecoded
        if first is not None and self.undecoded > 1:
            first.what = f"{self.undecoded} records cannot be decoded, the first one"
        return [*self.errors, *([] if first is None else [first])]


class Exporter:
    """Exports from a source to a target.

    Args:
        source: Where from.
        target: Where to.
        columns: What to read, and how to decode it.
        span: Where partitions begin that the target has nothing of, and where all end.
    """

    def __init__(
        self,
        source: ExportSource,
        target: ExportTarget,
        columns: ExportColumns,
        span: Span | None = None,
    ) -> None:
        self._source, self._target = source, target
        self._columns, self._span = columns, span or Span()

    def plan(self) -> list[OffsetRange]:
        """Return what `run` would export, without changing anything.

        Raises:
            StreamLogError: As `run`.
        """
        there = self._target.look(self._topic_ids())
        return self._source.ranges(self._span, there.topic_ids, there.positions)

    def run(
        self,
        *,
        on_size: Callable[[int], None] = lambda size: None,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> ExportReport:
        """Export.

        Args:
            on_size: Called once with about how many bytes of the log there are to read.
            on_progress: Called with numbers of bytes of the log that were written.

        Returns:
            What was exported; its `errors` say what could not be read.

        Raises:
            InconsistentTopicIdError: A topic was created again since the last call.
            DataLossError: Records were deleted before they were exported.
            InvalidRequestError: The target was begun with another format or other columns.
            UnavailableError: The target cannot be written; the next call goes on.
        """
        report = ExportReport()
        there = self._target.begin(self._topic_ids(), self._source.epoch_before)
        ranges = self._source.ranges(self._span, there.topic_ids, there.positions)
        sizes = [self._source.size_of(part) for part in ranges]
        on_size(sum(sizes))
        for part, size in zip(ranges, sizes, strict=True):
            report.partitions.append(self._export(part, size, on_progress, report))
        report.written = self._target.finish()
        return report

    def _topic_ids(self) -> dict[str, str]:
        ids = self._source.topic_ids
        return {each.topic: ids.get(each.topic, "") for each in self._source.partitions}

    def _export(
        self,
        part: OffsetRange,
        size: int,
        on_progress: Callable[[int], None],
        report: ExportReport,
    ) -> ExportedPartition:
        partition, end = part.topic_partition, part.end_offset
        records, at, done = 0, part.start_offset, 0
        if part.length > 0:
            batches = self._columns.read(self._source, part)
            while True:
                try:
                    batch = next(batches, None)
                except StreamLogError as error:
                    report.errors.append(error)
                    end = at
                    break
                if batch is None:
                    break
                if batch.num_rows == 0:
                    continue
                self._target.write(partition, batch)
                report.note_undecoded(partition, batch)
                records += batch.num_rows
                at = last_offset(batch) + 1
                share = size * (at - part.start_offset) // part.length
                on_progress(share - done)
                done = share
            self._target.end(partition, end)
        return ExportedPartition(
            topic_partition=partition,
            start_offset=part.start_offset,
            end_offset=end,
            records=records,
        )
