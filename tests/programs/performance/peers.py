"""Data sources that do only what Spark requires of every Python source and sink.

They give the upper bounds: a source that returns the same prebuilt Arrow batches, and a sink that
drops its rows. Their workers start as cheaply as ours (`streamlog.spark.tasks`).
"""

import os
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.schema import COLUMN_NAMES, spark_schema
from streamlog.records.columns import BinaryColumn, RecordColumns
from streamlog.spark.tasks import settle
from streamlog.topic import TopicPartition

COLUMNS = COLUMN_NAMES[:-1]
KEY_SIZE = 10
TIMESTAMP = 1_700_000_000_000


def fixed_width(count: int, size: int) -> BinaryColumn:
    """Return `count` values of `size` bytes each."""
    return BinaryColumn(
        offsets=np.arange(count + 1, dtype=np.int32) * np.int32(size),
        data=np.resize(np.arange(251, dtype=np.uint8), count * size),
    )


def records(count: int, value_size: int) -> RecordColumns:
    """Return the records that every benchmark of the source reads."""
    return RecordColumns(
        count=count,
        offset=np.arange(count),
        timestamp=np.full(count, TIMESTAMP, np.int64),
        timestamp_type=np.zeros(count, np.int32),
        key=fixed_width(count, KEY_SIZE),
        value=fixed_width(count, value_size),
    )


class PrebuiltReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Returns the same batch until the requested number of rows is reached.

    Options: `rows` per trigger, `tasks` that share them, `batch` rows per Arrow batch, `triggers`
    in total.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.rows = int(options["rows"])
        self.tasks = int(options.get("tasks", "1"))
        self.batch = min(int(options.get("batch", "50000")), self.rows // self.tasks)
        self.value_size = int(options.get("value_size", "100"))
        self.end = self.rows * int(options.get("triggers", "1"))

    def initialOffset(self):
        return {"rows": 0}

    def getDefaultReadLimit(self):
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self):
        pass

    def latestOffset(self, start, limit):
        return {"rows": min(start["rows"] + self.rows, self.end)}

    def partitions(self, start, end):
        rows = end["rows"] - start["rows"]
        return [InputPartition(rows // self.tasks) for _ in range(self.tasks if rows else 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = ArrowDecoder(COLUMNS).to_arrow(
            records(self.batch, self.value_size), TopicPartition("prebuilt", 0)
        )
        for _ in range(partition.value // self.batch):
            yield batch
        settle(os.getpid())


class DroppingWriter(DataSourceStreamArrowWriter):
    """Reads all rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = WriterCommitMessage()
        message.rows = sum(batch.num_rows for batch in iterator)
        settle(os.getpid())
        return message

    def commit(self, messages, batchId):
        pass


class PrebuiltSource(DataSource):
    """`format("prebuilt")`."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return spark_schema(COLUMNS)

    def streamReader(self, schema):
        return PrebuiltReader(self.options)

    def streamWriter(self, schema, overwrite):
        settle(os.getpid())
        return DroppingWriter()
