"""Metrics for Prometheus: every name in one table, and ways to publish them.

Names are those of kafka_exporter where it has one, so its boards and alerts work unchanged. What it
does not have begins with `streamlog_`.

`LogMetrics` measures a log and its readers when it is asked: at each scrape of a port, or once for
each file. `Publisher` publishes any collector as a file that is replaced as a whole, for the
textfile collector of node_exporter, or on a port.

The library is that of the extra `metrics`; this module loads it on first use.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streamlog.errors import StreamLogError, UnavailableError
from streamlog.root.readers import Reader
from streamlog.watch.lag import LagMeter, PartitionLag

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from streamlog.arrow.views import AnyReadRoots

__all__ = [
    "METRICS",
    "LogMetrics",
    "MetricRow",
    "MetricSource",
    "Publisher",
    "Sample",
    "lag_samples",
    "registry_of",
    "text_of",
]

_logger = logging.getLogger(__name__)


class MetricRow(NamedTuple):
    """One metric: its kind (`gauge` or `counter`), its labels and its help."""

    kind: str
    labels: tuple[str, ...]
    help: str


class Sample(NamedTuple):
    """A value of a metric, with its labels in their order."""

    name: str
    labels: tuple[str, ...]
    value: float


class MetricSource(Protocol):
    """What is published; may be asked by several threads at once."""

    def samples(self) -> Iterable[Sample]:
        """Return the present values."""
        ...


_PARTITION: Final = ("topic", "partition")
_GROUP: Final = ("consumergroup", "topic")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")
_QUERY: Final = ("query",)

METRICS: Final[Mapping[str, MetricRow]] = {
    "kafka_topic_partitions": MetricRow("gauge", ("topic",), "Number of partitions."),
    "kafka_topic_partition_current_offset": MetricRow("gauge", _PARTITION, "The high watermark."),
    "kafka_topic_partition_oldest_offset": MetricRow(
        "gauge", _PARTITION, "The first offset that may be read."
    ),
    "kafka_consumergroup_current_offset": MetricRow(
        "gauge", _GROUP_PARTITION, "The first offset that the reader has not finished."
    ),
    "kafka_consumergroup_current_offset_sum": MetricRow(
        "gauge", _GROUP, "The sum of these offsets over the partitions."
    ),
    "kafka_consumergroup_lag": MetricRow(
        "gauge", _GROUP_PARTITION, "Offsets that the reader has not finished."
    ),
    "kafka_consumergroup_lag_sum": MetricRow("gauge", _GROUP, "The sum over the partitions."),
    "streamlog_consumergroup_lag_seconds": MetricRow(
        "gauge",
        _GROUP_PARTITION,
        "Timestamp of the last record less that of the last one that the reader has finished.",
    ),
    "streamlog_consumergroup_position_timestamp_seconds": MetricRow(
        "gauge", ("consumergroup",), "Time of the reader's position, in seconds since 1970."
    ),
    "streamlog_up": MetricRow("gauge", (), "Whether the log and its readers could be read: 1, 0."),
    "streamlog_query_active": MetricRow("gauge", _QUERY, "Whether the query runs: 1 or 0."),
    "streamlog_query_failures_total": MetricRow(
        "counter", _QUERY, "How often the query has ended with an error."
    ),
    "streamlog_query_batch_id": MetricRow("gauge", _QUERY, "Number of the last finished batch."),
    "streamlog_query_progress_timestamp_seconds": MetricRow(
        "gauge", _QUERY, "Start of the last trigger that Spark reported, in seconds since 1970."
    ),
    "streamlog_query_input_rows_total": MetricRow("counter", _QUERY, "Rows read from all sources."),
    "streamlog_query_input_bytes_total": MetricRow(
        "counter", _QUERY, "Bytes of the log that were read, as stored; needs the log's path."
    ),
    "streamlog_query_output_rows_total": MetricRow(
        "counter", _QUERY, "Rows written, if the sink reports them."
    ),
    "streamlog_query_input_rows_per_second": MetricRow(
        "gauge", _QUERY, "Rate at which rows arrived before the last trigger."
    ),
    "streamlog_query_processed_rows_per_second": MetricRow(
        "gauge", _QUERY, "Rate at which the last trigger processed rows."
    ),
    "streamlog_query_duration_seconds": MetricRow(
        "gauge",
        ("query", "phase"),
        "Time that a part of the last trigger took, by Spark's names: addBatch has the tasks and "
        "the commit of the sink, triggerExecution everything.",
    ),
    "streamlog_query_state_rows": MetricRow(
        "gauge", ("query", "operator"), "Rows that a stateful operator keeps."
    ),
    "streamlog_query_watermark_timestamp_seconds": MetricRow(
        "gauge", _QUERY, "The event time watermark, in seconds since 1970."
    ),
}


def lag_samples(rows: Sequence[PartitionLag]) -> Iterator[Sample]:
    """Yield the metrics of readers' lag."""
    sums: dict[tuple[str, str], list[int]] = {}
    committed: dict[str, int] = {}
    for row in rows:
        topic, number = row.partition
        labels = row.reader, topic, str(number)
        total = sums.setdefault((row.reader, topic), [0, 0])
        if row.current_offset is not None:
            yield Sample("kafka_consumergroup_current_offset", labels, row.current_offset)
            total[0] += row.current_offset
        yield Sample("kafka_consumergroup_lag", labels, row.lag)
        total[1] += row.lag
        if row.lag_ms is not None:
            yield Sample("streamlog_consumergroup_lag_seconds", labels, row.lag_ms / 1000)
        committed[row.reader] = row.committed_ms
    for key, (offsets, lag) in sums.items():
        yield Sample("kafka_consumergroup_current_offset_sum", key, offsets)
        yield Sample("kafka_consumergroup_lag_sum", key, lag)
    for reader, at_ms in committed.items():
        name = "streamlog_consumergroup_position_timestamp_seconds"
        yield Sample(name, (reader,), at_ms / 1000)


class LogMetrics:
    """The partitions of a log, and its readers.

    Args:
        roots: The log root, the log roots of a replica set, or a root in an object store.
        readers: Returns the readers, at their present positions.
    """

    def __init__(self, roots: "AnyReadRoots", readers: Callable[[], Iterable[Reader]]) -> None:
        self._roots, self._readers = roots, readers
        self._meter: LagMeter | None = None
        self._guard = threading.Lock()

    def samples(self) -> list[Sample]:
        """Measure; a log that cannot be read is a log that is not up."""
        with self._guard:
            try:
                found = self._measured()
            except StreamLogError as error:
                _logger.warning("no metrics: %s", error)
                self._close()
                return [Sample("streamlog_up", (), 0)]
            return [Sample("streamlog_up", (), 1), *found]

    def _measured(self) -> list[Sample]:
        if self._meter is None:
            self._meter = LagMeter(self._roots)
        else:
            self._meter.refresh()
        samples: list[Sample] = []
        counts: dict[str, int] = {}
        for (topic, number), start, end in self._meter.partitions():
            labels = topic, str(number)
            counts[topic] = counts.get(topic, 0) + 1
            samples.append(Sample("kafka_topic_partition_current_offset", labels, end))
            samples.append(Sample("kafka_topic_partition_oldest_offset", labels, start))
        samples += [
            Sample("kafka_topic_partitions", (topic,), count) for topic, count in counts.items()
        ]
        return [*samples, *lag_samples(self._meter.measure(self._readers()))]

    def _close(self) -> None:
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def close(self) -> None:
        """Close the partitions; idempotent."""
        with self._guard:
            self._close()


# ---- publishing ---------------------------------------------------------------------------------
def registry_of(source: MetricSource) -> "CollectorRegistry":
    """Return a registry of the library that asks a source at each scrape.

    Raises:
        UnavailableError: The extra `metrics` is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise UnavailableError(
            "metrics need the package prometheus-client",
            hint='install the extra: pip install "pyspark-streamlog[metrics]"',
        ) from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(source))
    return registry


def text_of(source: MetricSource) -> bytes:
    """Return the metrics as Prometheus' text format.

    Raises:
        UnavailableError: The extra `metrics` is not installed.
    """
    registry = registry_of(source)
    from prometheus_client import generate_latest

    return generate_latest(registry)


class Publisher:
    """Publishes metrics until it is closed.

    Args:
        source: The metrics.
        textfile: A file, replaced as a whole by each `write`.
        listen: Host and port to answer scrapes on; port 0 takes a free one.

    Attributes:
        port: The port, None without one.

    Raises:
        UnavailableError: The extra `metrics` is not installed, or the port is taken.
    """

    def __init__(
        self,
        source: MetricSource,
        *,
        textfile: "str | os.PathLike[str] | None" = None,
        listen: tuple[str, int] | None = None,
    ) -> None:
        self._registry = registry_of(source)
        self._textfile = None if textfile is None else os.fspath(textfile)
        self._guard = threading.Lock()
        self._server: WSGIServer | None = None
        self.port: int | None = None
        if listen is not None:
            self._serve(*listen)

    def _serve(self, host: str, port: int) -> None:
        from prometheus_client import start_http_server

        try:
            self._server, self._thread = start_http_server(port, host, self._registry)
        except OSError as error:
            raise UnavailableError(
                "cannot answer scrapes", got=f"{host}:{port}: {error.strerror}"
            ) from error
        self.port = self._server.server_port

    def write(self) -> None:
        """Write the file, if there is to be one.

        Raises:
            UnavailableError: It cannot be written.
        """
        if self._textfile is None:
            return
        from prometheus_client import write_to_textfile

        with self._guard:
            try:
                write_to_textfile(self._textfile, self._registry)
            except OSError as error:
                raise UnavailableError(
                    "cannot write the metrics", path=self._textfile, got=error.strerror
                ) from error

    def close(self) -> None:
        """Stop answering; the last file stays. Idempotent."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


class _Collector:
    """A source as the library asks for it."""

    def __init__(self, source: MetricSource) -> None:
        self._source = source

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, labels, value in self._source.samples():
            if name not in families:
                row = METRICS[name]
                family = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
                families[name] = family(name.removesuffix("_total"), row.help, labels=row.labels)
            families[name].add_metric(labels, value)
        yield from families.values()
