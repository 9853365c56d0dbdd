"""A broker that keeps closed segments in Kafka's LocalTieredStorage, read beside its disk.

Most of the topic lies only in the remote storage, the end only on the disk. Both are read in place,
while the broker runs and after it was killed. Its own consumer gives the expected records.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from streamlog import read_table
from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.compat.kafka import tiered_storage_jar
from tests.support.cli import ok

pytestmark = [pytest.mark.compat, pytest.mark.spark]

PATIENCE_S = 60
TIERED = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": (
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
    ),
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "remote.log.manager.task.interval.ms": 200,
    "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
    "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.segment.delete.delay.ms": 100,
}
SMALL = {"segment.bytes": str(1 << 20), "local.retention.bytes": "1", "retention.ms": "-1"}
BATCH = 500
VALUE = 400

Rows = list[tuple[int, int, bytes, bytes]]  # partition, offset, key, value


class Tiers(NamedTuple):
    """A broker's disk, its remote storage, and the records that its consumer sees."""

    disk: Path
    storage: Path
    rows: Rows

    @property
    def path(self) -> str:
        """Both, as a path to read."""
        return f"{self.disk},{self.storage}"


def produce(bootstrap: str) -> None:
    """Write about 5 MB to each partition: plain, committed and aborted."""
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for end in ("plain", "commit", "abort", "commit", "plain"):
        producer = plain
        if end != "plain":
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": end})
            producer.init_transactions()
            producer.begin_transaction()
        for number in range(8 * BATCH):
            value = f"{end}{number}".ljust(VALUE, "x")
            producer.produce("orders", value, str(number), partition=number % 2)
            if number % BATCH == 0:
                producer.flush()
        if end == "commit":
            producer.commit_transaction()
        elif end == "abort":
            producer.abort_transaction()
        producer.flush()


def consume(bootstrap: str) -> Rows:
    """Return what a consumer reads from the beginning to the end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("orders", number, 0) for number in (0, 1)])
    rows, at_end = [], set()
    while len(at_end) < 2:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            at_end.add(message.partition())
        else:
            where = (message.partition(), message.offset())
            rows.append((*where, message.key(), message.value()))
    consumer.close()
    return sorted(rows)


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiers]:
    folder = tmp_path_factory.mktemp("tiers")
    disk, storage = folder / "disk", folder / "remote" / "kafka-tiered-storage"
    (folder / "format").mkdir()
    format_log_dir(disk, folder / "format")
    settings = TIERED | {"rsm.config.dir": storage.parent}
    plugins = [tiered_storage_jar()]
    with Broker.start(disk, folder / "run", settings, plugins=plugins) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic("orders", 2, 1, config=SMALL | {"remote.storage.enable": "true"})
        admin.create_topics([topic])["orders"].result(PATIENCE_S)
        produce(broker.bootstrap)
        deadline = time.monotonic() + PATIENCE_S
        while not all(_is_moved(disk / f"orders-{number}") for number in (0, 1)):
            assert time.monotonic() < deadline, "nothing left the disk"
            time.sleep(0.2)
        rows = consume(broker.bootstrap)
        assert rows_of(f"{disk},{storage}") == rows  # while the broker runs
        broker.kill()
    yield Tiers(disk, storage, rows)


def _is_moved(directory: Path) -> bool:
    return len(list(directory.glob("*.log"))) < 3 and not (directory / f"{0:020}.log").exists()


def rows_of(path: str) -> Rows:
    table = read_table(path, "orders").select(["partition", "offset", "key", "value"])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_the_disk_alone_lacks_most(tiers: Tiers) -> None:
    assert len(rows_of(str(tiers.disk))) < len(tiers.rows) / 2


def test_both_are_one_topic(tiers: Tiers) -> None:
    assert len(tiers.rows) == 4 * 8 * BATCH
    assert rows_of(tiers.path) == tiers.rows
    alone = rows_of(str(tiers.storage))
    assert 0 < len(alone) < len(tiers.rows)
    assert set(alone) <= set(tiers.rows)


def test_spark_reads_both(tiers: Tiers, spark: SparkSession, tmp_path: Path) -> None:
    read = spark.read.format("streamlog").option("subscribe", "orders")
    rows = read.load(tiers.path).select("partition", "offset", "key", "value").collect()
    assert sorted((p, o, bytes(k), bytes(v)) for p, o, k, v in rows) == tiers.rows
    stream = spark.readStream.format("streamlog").option("subscribe", "orders")
    query = (
        stream.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 7_000)
        .load(tiers.path)
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(PATIENCE_S)
    copied = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(tuple, copied)) == [row[:2] for row in tiers.rows]


def test_the_command_line_reads_both(tiers: Tiers) -> None:
    assert "sound" in ok("verify", str(tiers.storage)).error
    path = ("--path", tiers.path)
    first = ok(*path, "cat", "orders", "-p", "0", "-c", "1", "--output-format", "%o %k").out
    assert first.split() == [b"0", b"0"]
    ends = ok(*path, "offsets", "orders", "--format", "ndjson").out
    assert ends.count(b"orders") == 2
    assert ok("dump", str(next(tiers.storage.glob("orders-0-*/*.log")))).out.count(b"\n") > 0


def test_a_copy_takes_both(tiers: Tiers, tmp_path: Path) -> None:
    ok("copy", tiers.path, tmp_path / "there", "--topic", "orders")
    assert rows_of(str(tmp_path / "there")) == tiers.rows
    assert "sound" in ok("verify", tmp_path / "there", "--deep").error
