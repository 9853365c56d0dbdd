"""A topic for tests: real files in Kafka's format, written and read without Spark or Java.

Every call opens and closes the root, like a separate process, and holds nothing between calls. A
job can therefore write to the same topic, and `streamlog.testing.disk` can inject faults for the
duration of a call.
"""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from streamlog.config.log_config import ConfigValue
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import refuse_url
from streamlog.partition.append import AppendInfo
from streamlog.records.partitioner import murmur2
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.testing.disk import current_disk
from streamlog.testing.frames import hides_helper
from streamlog.testing.rows import PlacedRecord, to_record

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Topic"]
__tracebackhide__ = hides_helper

_READ_SIZE: Final = 1 << 22


class Topic:
    """A topic of a log root, created if it does not exist.

        orders = Topic("root", "orders", partitions=2)
        orders.append(["first", {"key": "ann", "value": {"item": 7}}])
        assert orders.values() == ["first", '{"item": 7}']

    Args:
        root: The log root.
        name: The topic name.
        rows: Rows to append initially; see `append`.
        partitions: Number of partitions.
        configs: Topic settings with Kafka's keys: `{"cleanup.policy": "compact"}`.

    Raises:
        InvalidRequestError: Invalid root, topic or settings.
        StorageError: The disk failed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        name: str,
        rows: Iterable[object] = (),
        *,
        partitions: int = 1,
        configs: Mapping[str, ConfigValue] | None = None,
    ) -> None:
        refuse_url(root)
        self.root: Final = os.path.abspath(root)
        self.name: Final = name
        with LogManager.open(self.root, create=True) as manager:
            manager.create_topic(name, partitions, configs, if_not_exists=True)
        self.append(rows)

    # ---- write -------------------------------------------------------------------------------
    def append(self, rows: Iterable[object]) -> dict[int, AppendInfo]:
        """Append rows, one batch per partition; durable on return.

            orders.append([{"key": "ann", "value": "7", "timestamp": 1_700_000_000_000}])

        Args:
            rows: Strings, bytes, `Record`s, dicts or Spark rows with any of key, value, headers,
                timestamp and partition. Other values become JSON text.

        Returns:
            The result of the append per partition.

        Raises:
            InvalidRequestError: A row has an invalid form, or the topic rejects it.
            UnavailableError: A lock timed out or the disk failed.
        """
        return self.append_over(current_disk(), [to_record(row) for row in rows])

    def append_late(self, rows: Iterable[object], *, by_ms: int) -> dict[int, AppendInfo]:
        """Append late rows: older than the newest record of the topic.

            orders.append_late(["an hour behind"], by_ms=3_600_000)

        Args:
            rows: As for `append`; their timestamps are replaced.
            by_ms: Their lateness in milliseconds.
        """
        newest = max((record.timestamp or 0 for record in self.records()), default=0)
        late = [to_record(row) for row in rows]
        return self.append_over(
            current_disk(),
            [
                PlacedRecord(row.record._replace(timestamp=max(newest - by_ms, 0)), row.partition)
                for row in late
            ],
        )

    def append_over(self, fs: FileSystem, rows: Iterable[PlacedRecord]) -> dict[int, AppendInfo]:
        """Append records through a file system with faults; see `append`."""
        by_partition: dict[int, list[Record]] = {}
        with LogManager.open(self.root, fs=fs) as manager:
            count = len(manager.partitions(self.name))
            for turn, (record, partition) in enumerate(rows):
                if partition is None:
                    partition = _partition_of(record.key, count, turn)
                by_partition.setdefault(partition, []).append(record)
            appended = {}
            for partition, records in sorted(by_partition.items()):
                log = manager.log(self.name, partition)
                appended[partition] = log.append(records)
                log.flush()
            return appended

    # ---- read --------------------------------------------------------------------------------
    def records(self, partition: int | None = None) -> list[Record]:
        """Return the records, partition by partition, in offset order.

        Args:
            partition: Only this partition.

        Raises:
            CorruptDataError: A batch is damaged.
        """
        found: list[Record] = []
        with LogManager.open(self.root, fs=current_disk()) as manager:
            numbers = manager.partitions(self.name) if partition is None else [partition]
            for number in numbers:
                reader = manager.reader(self.name, number)
                offset = reader.log_start_offset
                while offset < reader.high_watermark:
                    fetched = reader.read(offset, _READ_SIZE)
                    found += fetched.records()
                    offset = fetched.next_offset
        return found

    def values(self, partition: int | None = None) -> list[str | None]:
        """Return the values as strings, in the order of `records`; None for tombstones."""
        return [
            None if record.value is None else record.value.decode(errors="backslashreplace")
            for record in self.records(partition)
        ]

    def arrow(self) -> "pa.Table":
        """Return the records as an Arrow table with the columns of the Spark source."""
        from streamlog.arrow.tables import read_table

        return read_table(self.root, self.name)

    def pandas(self) -> "pd.DataFrame":
        """Return the records as a pandas DataFrame with the columns of the Spark source."""
        return self.arrow().to_pandas()

    def stream(self, spark: "SparkSession", **options: Any) -> "DataFrame":
        """Return the topic as a stream from its beginning.

            rows = orders.stream(spark, maxOffsetsPerTrigger=2)

        Args:
            spark: The Spark session.
            options: Options of the source.
        """
        reader = spark.readStream.format("streamlog").option("path", self.root)
        reader = reader.option("subscribe", self.name).option("startingOffsets", "earliest")
        return reader.options(**options).load()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Topic({self.root!r}, {self.name!r})"


def _partition_of(key: bytes | None, partitions: int, turn: int) -> int:
    """Return the default partition of a record: by key as in Kafka, else round robin."""
    if partitions == 1:
        return 0
    return turn % partitions if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions
