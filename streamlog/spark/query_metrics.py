"""Metrics of streaming queries for Prometheus: a listener that publishes what Spark reports.

Spark offers a Python source or sink no way to fill `metrics` of a `StreamingQueryProgress`, and
knows no listener of theirs. So everything is taken from the progress itself, which has the offsets
of each batch, and from the log, if its path is given.

Not available: what the sink staged, and the time of its commit alone. It runs in processes of its
own that nothing passes values from; `addBatch` is the time of the tasks and the commit together.
"""

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from streamlog.arrow.views import open_read_roots
from streamlog.bucket.places import root_paths
from streamlog.clock import SystemClock
from streamlog.errors import InvalidOptionError, StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.query.offsets import SourceOffset
from streamlog.root.readers import Reader
from streamlog.spark.progress import offsets_of
from streamlog.topic import TopicPartition
from streamlog.watch.lag import LagMeter, PartitionLag
from streamlog.watch.metrics import LogMetrics, Publisher, Sample, lag_samples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamlog.arrow.views import AnyReadRoots

__all__ = ["ExportedMetrics", "export_metrics"]

_log = logging.getLogger(__name__)
_LOOPBACK: Final = "127.0.0.1"
_WRITE_EVERY_MS: Final = 1_000  # triggers may take milliseconds; an idle query reports every 10 s


def export_metrics(
    spark: "SparkSession",
    *,
    textfile: str | os.PathLike[str] | None = None,
    port: int | None = None,
    path: str | os.PathLike[str] | None = None,
) -> "ExportedMetrics":
    """Publish metrics of all streaming queries of a session for Prometheus.

    Args:
        spark: The session, a classic one; all of its queries count, whatever they read or write.
        textfile: A file for the textfile collector of node_exporter, replaced after triggers, at
            most once a second, and when a query idles or ends.
        port: A port of the loopback interface to answer scrapes on; 0 takes a free one.
        path: The log root that the queries read: adds lag in time, bytes, and all partitions,
            measured at each scrape.

    Returns:
        A handle, which also stops it.

    Raises:
        InvalidOptionError: Neither a file nor a port is given.
        UnavailableError: The extra `metrics` is not installed, the port is taken, or the file
            cannot be written.
        UnknownTopicError: There is no log at the path.
    """
    if textfile is None and port is None:
        raise InvalidOptionError("nowhere to publish metrics", expected="textfile, port or both")
    roots = None
    if path is not None:
        roots = open_read_roots(root_paths(os.fspath(path), LocalFileSystem()))
    listen = None if port is None else (_LOOPBACK, port)
    exported = ExportedMetrics(spark, roots, textfile=textfile, listen=listen)
    spark.streams.addListener(exported.listener)
    return exported


class ExportedMetrics:
    """Metrics of the queries of a session; see `export_metrics`. A context manager.

    Args:
        spark: The session.
        roots: The log that the queries read, None if unknown.
        textfile: A file to replace after each trigger.
        listen: Host and port to answer scrapes on.

    Attributes:
        listener: The listener of the session.
        port: The port, None without one.
    """

    def __init__(
        self,
        spark: "SparkSession",
        roots: "AnyReadRoots | None",
        *,
        textfile: str | os.PathLike[str] | None,
        listen: tuple[str, int] | None,
    ) -> None:
        self._spark = spark
        self._guard = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._log = None if roots is None else LogMetrics(roots, self._readers)
        self._sizes = None if roots is None else LagMeter(roots)
        self._publisher = Publisher(self, textfile=textfile, listen=listen)
        self._publisher.write()
        self._written_ms = SystemClock().monotonic_ms()
        self.port = self._publisher.port
        self.listener = _Reports(self)

    # ---- events ------------------------------------------------------------------------------
    def started(self, query_id: str, name: str | None) -> None:
        """Note that a query runs."""
        with self._guard:
            self._query(query_id, name).is_active = True
        self.write()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Note the progress of a query, as Spark's JSON."""
        with self._guard:
            query = self._query(progress["id"], progress.get("name"))
            query.take(progress, SystemClock().now_ms())
            try:
                query.input_bytes += self._bytes_of(progress)
            except StreamLogError as error:
                _log.warning("bytes of a batch are not counted: %s", error)
        if SystemClock().monotonic_ms() - self._written_ms >= _WRITE_EVERY_MS:
            self.write()

    def write(self) -> None:
        """Write the file; a failure is logged, since nothing may stop a query."""
        self._written_ms = SystemClock().monotonic_ms()
        try:
            self._publisher.write()
        except StreamLogError as error:
            _log.warning("metrics not written: %s", error)

    def terminated(self, query_id: str, *, has_failed: bool) -> None:
        """Note that a query has ended."""
        with self._guard:
            query = self._query(query_id, None)
            query.is_active = False
            query.failures += has_failed
        self.write()

    def _query(self, query_id: str, name: str | None) -> "_Query":
        query = self._queries.setdefault(query_id, _Query(name or query_id))
        if name is not None:
            query.name = name
        return query

    def _bytes_of(self, progress: Mapping[str, Any]) -> int:
        if self._sizes is None:
            return 0
        self._sizes.refresh()
        total = 0
        for source in progress["sources"]:
            start, end = offsets_of(source.get("startOffset")), offsets_of(source.get("endOffset"))
            if start is not None and end is not None:
                total += sum(
                    self._sizes.size_between(each, start.offsets[each], offset)
                    for each, offset in end.offsets.items()
                    if each in start.offsets
                )
        return total

    # ---- values ------------------------------------------------------------------------------
    def samples(self) -> list[Sample]:
        """Return the present values."""
        with self._guard:
            queries = list(self._queries.values())
            found = [sample for query in queries for sample in query.samples()]
            found += [] if self._sizes is None else _bytes_samples(queries)
            if self._log is None:
                found += _reported(queries)
        return found if self._log is None else [*found, *self._log.samples()]

    def _readers(self) -> list[Reader]:
        with self._guard:
            return [
                Reader(name=query.name, position=query.end, committed_ms=query.reported_ms)
                for query in self._queries.values()
                if query.end.offsets
            ]

    def stop(self) -> None:
        """Stop publishing; a file stays as it is. Idempotent."""
        self._spark.streams.removeListener(self.listener)
        self._publisher.close()
        if self._log is not None:
            self._log.close()
        if self._sizes is not None:
            self._sizes.close()

    def __enter__(self) -> "ExportedMetrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass
class _Query:
    """What is known of one query."""

    name: str
    is_active: bool = True
    failures: int = 0
    input_rows: int = 0
    input_bytes: int = 0
    output_rows: int | None = None
    reported_ms: int = 0
    progress: Mapping[str, Any] = field(default_factory=dict)
    end: SourceOffset = field(default_factory=lambda: SourceOffset(offsets={}))
    latest: dict[TopicPartition, int] = field(default_factory=dict)

    def take(self, progress: Mapping[str, Any], now_ms: int) -> None:
        """Take in a progress."""
        self.progress, self.reported_ms, self.is_active = progress, now_ms, True
        self.input_rows += max(0, progress.get("numInputRows", 0))
        written = progress.get("sink", {}).get("numOutputRows", -1)
        if written >= 0:  # Spark's -1: the sink does not report it
            self.output_rows = (self.output_rows or 0) + written
        offsets: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}
        for source in progress.get("sources", ()):
            end, latest = (
                offsets_of(source.get("endOffset")),
                offsets_of(source.get("latestOffset")),
            )
            for partition, offset in (end.offsets if end else {}).items():
                offsets[partition] = min(offset, offsets.get(partition, offset))
            topic_ids.update(end.topic_ids if end else {})
            self.latest.update(latest.offsets if latest else {})
        self.end = SourceOffset(offsets=offsets, topic_ids=topic_ids)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the query."""
        label = (self.name,)
        yield Sample("streamlog_query_active", label, int(self.is_active))
        yield Sample("streamlog_query_failures_total", label, self.failures)
        yield Sample("streamlog_query_input_rows_total", label, self.input_rows)
        if self.output_rows is not None:
            yield Sample("streamlog_query_output_rows_total", label, self.output_rows)
        for name, value in (
            ("batch_id", self.progress.get("batchId")),
            ("progress_timestamp_seconds", _seconds(self.progress.get("timestamp"))),
            ("input_rows_per_second", self.progress.get("inputRowsPerSecond")),
            ("processed_rows_per_second", self.progress.get("processedRowsPerSecond")),
            (
                "watermark_timestamp_seconds",
                _seconds(self.progress.get("eventTime", {}).get("watermark")),
            ),
        ):
            if isinstance(value, int | float):
                yield Sample(f"streamlog_query_{name}", label, value)
        for phase, duration_ms in self.progress.get("durationMs", {}).items():
            yield Sample("streamlog_query_duration_seconds", (*label, phase), duration_ms / 1000)
        for number, operator in enumerate(self.progress.get("stateOperators", ())):
            name = f"{number} {operator.get('operatorName', '')}".strip()
            rows = operator.get("numRowsTotal", 0)
            yield Sample("streamlog_query_state_rows", (*label, name), rows)


def _bytes_samples(queries: list[_Query]) -> Iterator[Sample]:
    for query in queries:
        yield Sample("streamlog_query_input_bytes_total", (query.name,), query.input_bytes)


def _reported(queries: list[_Query]) -> Iterator[Sample]:
    """Yield lag and ends of logs as the last progress has them."""
    latest: dict[TopicPartition, int] = {}
    rows = []
    for query in queries:
        for partition, end in sorted(query.latest.items()):
            latest[partition] = max(end, latest.get(partition, 0))
            current = query.end.offsets.get(partition)
            lag = max(0, end - (current or 0))
            row = PartitionLag(query.name, partition, current, end, lag, None, query.reported_ms)
            rows.append(row)
    for (topic, number), end in sorted(latest.items()):
        yield Sample("kafka_topic_partition_current_offset", (topic, str(number)), end)
    yield from lag_samples(rows)


def _seconds(text: object) -> float | None:
    """Return a time of Spark, ISO 8601 in UTC, in seconds since 1970."""
    if not isinstance(text, str):
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class _Reports(StreamingQueryListener):
    """Passes events on. Spark calls it in one thread, after the commit of a trigger."""

    def __init__(self, exported: ExportedMetrics) -> None:
        self._exported = exported

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note the query."""
        self._exported.started(str(event.id), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note the progress."""
        self._exported.progressed(json.loads(event.progress.json))

    def onQueryIdle(self, event: object) -> None:  # noqa: N802 - Spark's name
        """Write the file: a trigger may have been too soon after another one for that."""
        self._exported.write()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Note the end."""
        self._exported.terminated(str(event.id), has_failed=event.exception is not None)
