"""Shared by tests of the sink: records of a topic, altered checkpoints, and queries."""

import json
import os
import shutil
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from streamlog.bucket.read_roots import BucketReadRoots
from streamlog.fs.log_root import LogRoot
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.topics import partition_directories
from streamlog.store.urls import is_store_url


def records_of(root: str | os.PathLike[str], topic: str) -> dict[int, list[Record]]:
    """Return the records of a topic according to a fresh reader, by partition in offset order."""
    if is_store_url(str(root)):
        return _committed(str(root), topic)
    found = {}
    for partition, path in partition_directories(LogRoot.at(str(root)), topic).items():
        with LogReader.open(path) as reader:
            found[partition] = []
            offset = reader.log_start_offset
            while offset < reader.log_end_offset:
                info = reader.read(offset, 1 << 24)
                found[partition] += info.records()
                offset = info.next_offset
    return found


def _committed(url: str, topic: str) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    roots = BucketReadRoots(url)
    for partition in sorted(each for each in roots.state().partitions if each.topic == topic):
        reader = roots.open(partition)
        found[partition.partition] = []
        offset = reader.log_start_offset
        while offset < reader.log_end_offset:
            info = reader.read(offset)
            found[partition.partition] += info.records()
            offset = info.next_offset
    return found


def values_of(root: str | os.PathLike[str], topic: str) -> list[bytes | None]:
    """Return the values of a topic: partition by partition, in the order of offsets."""
    return [record.value for part in records_of(root, topic).values() for record in part]


def sorted_values(root: str | os.PathLike[str], topic: str) -> list[str]:
    """Return the values of a topic as sorted text."""
    return sorted((value or b"").decode() for value in values_of(root, topic))


def stream_of(spark: SparkSession, root: str, topic: str, **options: str) -> DataFrame:
    """Return the stream of a topic from its beginning."""
    reader = spark.readStream.format("streamlog").option("path", root).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def run_available(writer: DataStreamWriter) -> str | None:
    """Run a query over the available data; return the text of its error, None for success."""
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    except StreamingQueryException as error:
        return str(error)
    finally:
        query.stop()
    return None


class Checkpoint:
    """A query's checkpoint directory, to alter while the query is stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def query_id(self) -> str:
        """The id that the query keeps across restarts."""
        found: str = json.loads((self.path / "metadata").read_text())["id"]
        return found

    def batches(self, kind: str = "commits") -> list[int]:
        """Return the numbers of the planned (`offsets`) or completed (`commits`) batches."""
        names = (self.path / kind).iterdir() if (self.path / kind).exists() else ()
        return sorted(int(each.name) for each in names if each.name.isdigit())

    def forget_commit(self, batch: int) -> None:
        """Leave the state of a crash between the sink's commit and Spark's."""
        self._remove("commits", batch)

    def forget_batch(self, batch: int) -> None:
        """Leave a state as if a batch had never been planned, which a power cut may cause."""
        self._remove("commits", batch)
        self._remove("offsets", batch)

    def save(self, target: Path) -> "Checkpoint":
        """Return a copy."""
        return Checkpoint(Path(shutil.copytree(self.path, target)))

    def _remove(self, kind: str, batch: int) -> None:
        for name in (str(batch), f".{batch}.crc"):
            (self.path / kind / name).unlink(missing_ok=True)
