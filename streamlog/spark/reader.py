"""Reading with `format("streamlog")`: batch queries and streaming queries.

A batch reads everything between two places, planned once, on the driver.

Of a streaming query Spark keeps one reader in a process of its own for as long as the query runs,
and calls:

    initialOffset            for a new query only, twice: the second answer is the start of
                             batch 0, so the first one is kept
    latestOffset(start)      repeatedly; returning `start` itself means that nothing is new
    partitions(start, end)   for the tasks of a batch; after a restart also for the unfinished
                             batch, before any other call
    commit(end)              when a batch is done and the next one is already planned: too late

A start that depends on the moment (`latest`) would change after a crash in batch 0. In that case
batch 0 is empty: the first call of `latestOffset` returns the start, so that Spark records it
before any record is read. If even that batch is repeated, its new start lies after its end, which
is not a loss.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from streamlog.arrow.log_view import OffsetRange, OpenLogView
from streamlog.arrow.losses import LossReporter
from streamlog.clock import Clock, SystemClock
from streamlog.errors import OffsetOutOfRangeError
from streamlog.query.offsets import (
    SourceOffset,
    is_reserved,
    parse_source_offset,
)
from streamlog.spark.options import Use
from streamlog.spark.planning import (
    begin_of,
    describe_offsets,
    limit_bytes,
    limit_offsets,
    plan_ranges,
    plan_tasks,
    resolve_rule,
    start_losses,
)
from streamlog.spark.source_options import SourceOptions
from streamlog.spark.tasks import read_task
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.arrow.decoded_columns import Decoding
    from streamlog.spark.group_progress import GroupProgress

__all__ = ["StreamLogReader", "StreamLogStreamReader"]

_log = logging.getLogger(__name__)


class StreamLogReader(DataSourceReader):
    """Plans and reads a batch query.

    Args:
        options: The options as Spark passes them.
        decoding: How keys and values are decoded; None: they are bytes.

    Raises:
        InvalidOptionError: An option is unknown, does not apply, or is invalid.
    """

    def __init__(self, options: Mapping[str, str], decoding: "Decoding | None" = None) -> None:
        self._options = SourceOptions.parse(options, Use.BATCH_READ)
        self._decoding = decoding

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; called on the driver."""
        from streamlog.arrow.views import open_read_roots, open_view

        options = self._options
        view = open_view(
            open_read_roots(options.paths),
            options.choice,
            options.isolation,
            max_decompressed_bytes=options.max_decompressed_bytes,
        )
        try:
            return _pack_tasks(view, _plan_batch(view, options), options)
        finally:
            view.close()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one task; called in a worker."""
        return read_task(partition, self._options, self._decoding)


def _plan_batch(view: OpenLogView, options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges of a batch query, according to the state of the log at this time.

    Raises:
        InvalidOptionError: Options by partition do not name exactly the partitions to read.
        OffsetOutOfRangeError: An offset outside the log, or an end before the start.
    """
    fail = options.fail_on_data_loss
    start, start_losses = resolve_rule(view, options.starting, fail_on_data_loss=fail)
    end, end_losses = resolve_rule(view, options.ending, fail_on_data_loss=fail)
    LossReporter(fail=fail).report(start_losses + end_losses)
    held_back = view.describe_held_back()
    if held_back is not None:
        _log.warning("%s", held_back)
    ranges = []
    for partition, begin in start.offsets.items():
        stop = end.offsets[partition]
        if begin > stop and partition in options.ending.partitions and fail:
            raise OffsetOutOfRangeError(
                f"{options.ending.option} of {partition} is before its start",
                offset=stop,
                expected=f"{begin} or more",
            )
        if begin < stop:
            ranges.append(OffsetRange(*partition, begin, stop))
    return ranges


class StreamLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads a streaming query.

    Options are parsed and the log is opened on first use: Spark would replace an error raised in
    the constructor by one of its own.

    Args:
        options: The options as Spark passes them.
        decoding: How keys and values are decoded; None: they are bytes.
        clock: Measures waits for `minOffsetsPerTrigger`.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        decoding: "Decoding | None" = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._given = dict(options)
        self._decoding = decoding
        self._clock = clock or SystemClock()
        self._parsed: SourceOptions | None = None
        self._view: OpenLogView | None = None
        self._losses = LossReporter(fail=True)
        self._progress: GroupProgress | None = None
        self._initial: dict[str, Any] | None = None
        self._initial_is_settled = True
        self._must_record_initial = False
        self._target: dict[TopicPartition, int] | None = None
        self._seen: tuple[object, object] = (None, None)  # start and bounds of the last idle call
        self._answered: dict[str, Any] = {}
        self._reported: tuple[object, object, dict[str, Any]] = (None, None, {})
        self._triggered_ms: float | None = None
        self._held_back: str | None = None

    # ---- start of a new query -----------------------------------------------------------------
    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query; repeated calls return the same."""
        if self._initial is None:
            view, options = self._open(), self._options
            resolved, losses = resolve_rule(
                view, options.starting, fail_on_data_loss=options.fail_on_data_loss
            )
            self._losses.report(losses)
            self._initial = describe_offsets(view, resolved.offsets).to_json()
            self._initial_is_settled = resolved.is_settled
            self._must_record_initial = not resolved.is_settled
            self._record(self._initial)
        return self._initial

    # ---- end of the next batch ----------------------------------------------------------------
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit that Spark passes back at each trigger.

        Spark has no combined limit. All of ours apply whenever it passes back anything but
        `ReadAllAvailable`.
        """
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the current end of the log."""
        self._target = {
            partition: bounds.end_offset for partition, bounds in self._open().bounds.items()
        }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, or `start` itself if there is nothing to read.

        Raises:
            DataLossError: Records before or after `start` no longer exist.
        """
        self._answered = self._find_end(start, limit)
        return self._answered

    def _find_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        view = self._open()
        self._record(start)  # no batch is under way: all up to here is in the checkpoint
        was_idle = self._is_idle(view, start)
        view.refresh(is_idle=was_idle)
        if was_idle and self._is_idle(view, start):
            return start
        if self._must_record_initial and start == self._initial:
            self._must_record_initial = False
            return start
        position = parse_source_offset(start)
        self._losses.report(start_losses(view, position))
        self._report_held_back(view)
        if self._progress is not None:
            known, bounds = position.offsets, view.bounds
            unread = {each: bounds[each].log_start_offset for each in bounds if each not in known}
            self._progress.add_unread(unread)
        begin, end = self._reach(view, position)
        backlog = sum(max(0, end[partition] - begin[partition]) for partition in end)
        if backlog == 0 and end == position.offsets:
            self._seen = (start, view.bounds)
            return start
        if not isinstance(limit, ReadAllAvailable):
            if self._waits_for_more(backlog):
                return start
            end = self._limit(view, begin, end)
        return describe_offsets(view, end).to_json()

    def _is_idle(self, view: OpenLogView, start: dict[str, Any]) -> bool:
        """Return whether the last call found nothing new; comparing bounds by value is slow."""
        return self._seen[1] is view.bounds and self._seen[0] == start

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the log, which Spark shows in the query's progress.

        The reserved keys of the last batch's end are included, so that scripts can subtract one
        JSON document from the other.
        """
        if self._view is None:
            return None
        bounds, answered = self._view.bounds, self._answered
        if self._reported[0] is not bounds or self._reported[1] is not answered:
            ends = {partition: each.end_offset for partition, each in bounds.items()}
            reserved = {key: part for key, part in answered.items() if is_reserved(key)}
            report = {**reserved, **SourceOffset(offsets=ends).to_json()}
            self._reported = (bounds, answered, report)
        return self._reported[2]

    def _reach(
        self, view: OpenLogView, position: SourceOffset
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the start and end of the readable records of each partition."""
        begin: dict[TopicPartition, int] = {}
        end: dict[TopicPartition, int] = {}
        for partition, bounds in view.bounds.items():
            is_late = self._target is not None and partition not in self._target
            if is_late and partition not in position.offsets:
                continue  # created after the target was set
            first = max(begin_of(view, partition, position), bounds.log_start_offset)
            last = bounds.end_offset
            if self._target is not None:
                last = min(last, self._target.get(partition, first))
            # An end beyond the isolation level or the target stays; one beyond the log does not.
            begin[partition] = first
            end[partition] = max(last, min(first, bounds.log_end_offset))
        return begin, end

    def _waits_for_more(self, backlog: int) -> bool:
        """Return whether to wait for `minOffsetsPerTrigger`.

        Source: KafkaMicroBatchStream.delayBatch.
        """
        limits = self._options.limits
        now = self._clock.monotonic_ms()
        if (
            limits.min_offsets is not None
            and self._target is None
            and backlog < limits.min_offsets
            and self._triggered_ms is not None
            and now - self._triggered_ms < limits.max_delay_ms
        ):
            return True
        self._triggered_ms = now
        return False

    def _limit(
        self,
        view: OpenLogView,
        begin: dict[TopicPartition, int],
        end: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        limits = self._options.limits
        if limits.max_offsets is not None:
            end = limit_offsets(limits.max_offsets, begin, end)
        if limits.max_bytes is not None:
            end = limit_bytes(view, limits.max_bytes, begin, end)
        return end

    def _report_held_back(self, view: OpenLogView) -> None:
        held_back = view.describe_held_back()
        if held_back is not None and self._held_back is None:
            _log.warning("%s", held_back)
        self._held_back = held_back

    # ---- the tasks of a batch -----------------------------------------------------------------
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks between two offsets, which may come from a previous run.

        Raises:
            DataLossError: Records between them no longer exist.
        """
        view, options = self._open(), self._options
        if self._progress is not None and not self._progress.is_recorded:
            self._record(start)  # a restart repeats a batch before it plans the next one
        first, last = parse_source_offset(start), parse_source_offset(end)
        self._must_record_initial = False  # Spark has recorded the offsets it passes here
        if self._repeats_empty_batch(start, first, last):
            return []
        ranges, losses = plan_ranges(view, first, last)
        self._losses.report(losses)
        return _pack_tasks(view, ranges, options)

    def _repeats_empty_batch(
        self, start: dict[str, Any], first: SourceOffset, last: SourceOffset
    ) -> bool:
        """Return whether this repeats the empty batch 0 that only recorded the start."""
        return (
            not self._initial_is_settled
            and start == self._initial
            and all(
                offset <= first.offsets.get(partition, -1)
                for partition, offset in last.offsets.items()
            )
        )

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one task; called in a worker, which has only the options."""
        return read_task(partition, self._options, self._decoding)

    # ---- finished batches ---------------------------------------------------------------------
    def _record(self, finished: Mapping[str, object]) -> None:
        """Record the position of a query with `kafka.group.id`."""
        if self._progress is not None:
            self._progress.record(finished)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: `latestOffset` recorded the position before Spark planned the next batch."""

    def stop(self) -> None:
        """Close the files; Spark calls this only after a failure."""
        if self._view is not None:
            self._view.close()

    # ---- opening ------------------------------------------------------------------------------
    @property
    def _options(self) -> SourceOptions:
        if self._parsed is None:
            self._parsed = SourceOptions.parse(self._given, Use.STREAM_READ)
            self._losses = LossReporter(fail=self._parsed.fail_on_data_loss)
        return self._parsed

    def _open(self) -> OpenLogView:
        if self._view is None:
            from streamlog.arrow.views import open_read_roots, open_view

            options = self._options
            roots = open_read_roots(options.paths, clock=self._clock)
            if options.group_id is not None and self._progress is None:
                from streamlog.spark.group_progress import GroupProgress

                self._progress = GroupProgress(roots, options.group_id, self._clock)
            self._view = open_view(
                roots,
                options.choice,
                options.isolation,
                clock=self._clock,
                max_decompressed_bytes=options.max_decompressed_bytes,
            )
        return self._view


def _pack_tasks(
    view: OpenLogView, ranges: Sequence[OffsetRange], options: SourceOptions
) -> list[InputPartition]:
    """Return the tasks that read `ranges`, each as tuples of text and numbers."""
    tasks = plan_tasks(
        view,
        ranges,
        parallelism=options.parallelism,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [InputPartition(tuple(view.planned(part).pack() for part in task)) for task in tasks]
