"""A log as Arrow, for pandas, Polars, DuckDB and the like: no Spark, no Java, nothing written.

Any partition directory, log root or segment file in Kafka's format will do, whoever wrote it;
nothing there is created, locked, repaired or touched. The columns are those of the Spark source.
"""

import os
from collections.abc import Collection, Iterator

import pyarrow as pa

from streamlog.errors import InvalidOptionError, UnknownTopicError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.log.topics import find_partitions
from streamlog.records.record import IsolationLevel
from streamlog.spark.arrow import ArrowDecoder
from streamlog.spark.planning import OffsetRange
from streamlog.spark.reading import PlannedRange, read_ranges
from streamlog.spark.schema import choose_columns
from streamlog.spark.source_options import TopicChoice
from streamlog.spark.subscription import Subscription
from streamlog.topic import TopicPartition, check_topic_name

__all__ = ["read_arrow", "read_table"]


def read_table(
    path: str | os.PathLike[str],
    topic: str | None = None,
    *,
    partitions: Collection[int] | None = None,
    columns: Collection[str] | None = None,
    include_headers: bool = False,
    isolation: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
    invalid_timestamps: str = "error",
) -> pa.Table:
    """Return records as one Arrow table, in memory; see `read_arrow`."""
    return read_arrow(
        path,
        topic,
        partitions=partitions,
        columns=columns,
        include_headers=include_headers,
        isolation=isolation,
        invalid_timestamps=invalid_timestamps,
    ).read_all()


def read_arrow(
    path: str | os.PathLike[str],
    topic: str | None = None,
    *,
    partitions: Collection[int] | None = None,
    columns: Collection[str] | None = None,
    include_headers: bool = False,
    isolation: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
    invalid_timestamps: str = "error",
) -> pa.RecordBatchReader:
    """Return records as a stream of Arrow record batches, up to the end as it is now.

    Args:
        path: A log root, a partition's directory, or one segment file.
        topic: The topic; all of them by default, but for Kafka's internal ones.
        partitions: Which of its partitions; all by default.
        columns: Names of the columns wanted; all by default.
        include_headers: Whether all columns means the headers too.
        isolation: `read_committed`, or `read_uncommitted` to see open and aborted transactions.
        invalid_timestamps: For times that microseconds cannot hold: `error`, or `null`.

    Returns:
        A reader with the schema of the Spark source, partition by partition in order of offsets.
        Iterate over it, or hand it to whoever takes an Arrow stream.

    Raises:
        UnknownTopicError: No such path, topic or partition.
        InvalidOptionError: An unknown column, or an impossible setting.
        CorruptDataError: While iterating: a batch is damaged.
    """
    chosen = choose_columns(
        None if columns is None else ",".join(columns), include_headers=include_headers
    )
    if invalid_timestamps not in ("error", "null"):
        raise InvalidOptionError(
            "invalid_timestamps has an impossible value",
            got=repr(invalid_timestamps),
            expected="error or null",
        )
    fs, level = LocalFileSystem(), _level(isolation)
    root = os.path.abspath(path)
    decoder = ArrowDecoder(chosen, invalid_timestamps=invalid_timestamps)
    view = Subscription(root, _choose(fs, root, topic, partitions), level, fs=fs)
    try:
        ranges = [
            PlannedRange(
                view.directories[partition],
                view.topic_ids.get(partition.topic, ""),
                *OffsetRange(*partition, bounds.log_start_offset, bounds.end_offset),
            )
            for partition, bounds in sorted(view.bounds.items())
        ]
    finally:
        view.close()
    batches: Iterator[pa.RecordBatch] = read_ranges(
        ranges, decoder=decoder, isolation=level, fail_on_data_loss=True, fs=fs
    )
    return pa.RecordBatchReader.from_batches(decoder.schema, batches)


def _level(isolation: IsolationLevel | str) -> IsolationLevel:
    try:
        return IsolationLevel(isolation)
    except ValueError:
        raise InvalidOptionError(
            "isolation has an impossible value",
            got=repr(isolation),
            expected=" or ".join(level.value for level in IsolationLevel),
        ) from None


def _choose(
    fs: FileSystem, root: str, topic: str | None, partitions: Collection[int] | None
) -> TopicChoice:
    found = find_partitions(fs, root)
    if topic is None:
        # A partition's own path names its topic, an internal one too.
        topic = next((each for each, paths in found.items() if root in paths.values()), None)
    if topic is None and partitions is None:
        return TopicChoice(pattern=".*")
    if topic is None:
        if len(found) != 1:
            raise UnknownTopicError(
                "partitions were named, but not of which topic",
                path=root,
                expected=f"topic=, one of {', '.join(found)}" if found else None,
            )
        topic = next(iter(found))
    check_topic_name(topic)
    if partitions is None:
        return TopicChoice(topics=(topic,))
    return TopicChoice(partitions=tuple(TopicPartition(topic, each) for each in partitions))
