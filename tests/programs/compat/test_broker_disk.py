"""Spark follows the disk of a running broker while producers write and the broker deletes.

One broker serves all tests, each with its own topics; retention and the cleaner check very often. A
real consumer gives the expected records.
"""

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamlog import read_table
from streamlog.partition.reader import LogReader
from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.compat.kafka import Kafka
from tests.programs.compat.make_broker_directory import CODECS, ISOLATIONS, make
from tests.support.cli import ok
from tests.support.fingerprints import digest
from tests.support.spark_session import Collected
from tests.support.untouched import facts

pytestmark = [pytest.mark.compat, pytest.mark.spark]

RESTLESS = {
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "log.segment.delete.delay.ms": 100,
}
SMALL = {"internal.segment.bytes": "20000", "index.interval.bytes": "1000"}
PATIENCE_S = 60

Each = dict[int, list[tuple[int, int]]]  # offset and digest of each record, by partition


@dataclass
class Live:
    """The running broker and its clients."""

    disk: Path
    kafka: Kafka
    broker: Broker

    def ask(self, ask: str, **fields: Any) -> dict[str, Any]:
        answer = self.kafka.ask(ask, bootstrap=self.broker.bootstrap, **fields)
        assert "error" not in answer, answer
        return answer

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; the settings are spelled with `_` for `.`."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.ask("create", topic=topic, partitions=partitions, configs={**SMALL, **named})
        deadline = time.monotonic() + PATIENCE_S
        # The answer comes from the controller; the broker makes the logs when it hears of them.
        files = [self.disk / f"{topic}-{number}/partition.metadata" for number in range(partitions)]
        while not all(file.exists() for file in files):
            assert time.monotonic() < deadline, f"{topic} has no directory"
            time.sleep(0.01)

    def send(self, topic: str, count: int, **fields: Any) -> None:
        defaults = {"partitions": 1, "size": 100, "codec": "lz4", "seed": count, "batch": 4000}
        assert self.ask("send", topic=topic, count=count, **{**defaults, **fields})["sent"] == count

    def consumed(self, topic: str, isolation: str = "read_committed") -> Each:
        """Return the records of a real consumer."""
        told = self.ask("fingerprint", topic=topic, isolation=isolation, each=True)
        return {
            int(number): [(offset, int(one)) for offset, one in found["each"]]
            for number, found in told["partitions"].items()
        }


@pytest.fixture(scope="module")
def live(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    scratch = tmp_path_factory.mktemp("live")
    format_log_dir(scratch / "log.dir", scratch)
    with Broker.start(scratch / "log.dir", scratch / "broker", RESTLESS) as broker:
        yield Live(scratch / "log.dir", kafka, broker)
        kafka.ask("forget")


def read(spark: SparkSession, live: Live, topic: str, **options: str) -> DataFrame:
    options = {"subscribe": topic, "includeHeaders": "true", **options}
    return spark.read.format("streamlog").option("path", str(live.disk)).options(**options).load()


class Following:
    """A query that follows topics from their beginning; a context manager."""

    def __init__(
        self, spark: SparkSession, live: Live, topics: str, checkpoint: Path, **options: str
    ) -> None:
        self.collected = Collected()
        frame = (
            spark.readStream.format("streamlog")
            .option("path", str(live.disk))
            .option("subscribe", topics)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .options(**options)
            .load()
        )
        self.query: StreamingQuery = (
            with_milliseconds(frame)
            .writeStream.foreachBatch(self.collected.add)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def each(self, topic: str) -> Each:
        """Return what it has read from a topic."""
        return each_of(row for row in self.collected.rows if row.topic == topic)

    def until(self, is_done: Callable[[], bool]) -> None:
        """Wait until a condition holds while the query runs; fail after a time limit."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < deadline
            self.query.processAllAvailable()

    def __enter__(self) -> "Following":
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()


def with_milliseconds(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "unix_millis(timestamp) AS ms").drop("timestamp")


def each_of(rows: Iterator[Row] | list[Row]) -> Each:
    """Return offset and digest of each row, sorted, by partition."""
    found: Each = {}
    for row in rows:
        pairs = [(header.key, header.value) for header in row.headers or ()]
        one = digest(
            row.offset, row.ms, row.timestampType, key=row.key, value=row.value, headers=pairs
        )
        found.setdefault(row.partition, []).append((row.offset, one))
    return {partition: sorted(each) for partition, each in sorted(found.items())}


def read_each(spark: SparkSession, live: Live, topic: str, **options: str) -> Each:
    return each_of(with_milliseconds(read(spark, live, topic, **options)).collect())


# ---- the tail ------------------------------------------------------------------------------------
def test_a_stream_follows_plain_and_transactional_producers(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    live.create("orders", 2)
    live.create("stamped", message_timestamp_type="LogAppendTime")
    live.create("txn")
    with Following(spark, live, "orders,stamped,txn", tmp_path / "checkpoint") as following:
        for turn, codec in enumerate(CODECS):
            is_random = turn % 2 == 1
            live.send("orders", 60, partitions=2, codec=codec, seed=turn, random=is_random)
            live.send("stamped", 20, codec=codec, seed=turn, idempotent=True)
            end = ("commit", "abort")[turn % 2]
            live.send("txn", 15, codec=codec, seed=turn, id="one", end=end)
            live.send("txn", 5, codec=codec, seed=turn)
            following.query.processAllAvailable()
        live.send("txn", 10, id="two", end="leave")
        live.send("txn", 7)
        for topic in ("orders", "stamped", "txn"):
            following.until(lambda topic=topic: following.each(topic) == live.consumed(topic))
        assert len(following.each("txn")[0]) == 3 * 15 + 5 * 5
        uncommitted = {"kafka.isolation.level": "read_uncommitted"}
        seen = read_each(spark, live, "txn", **uncommitted)
        assert seen == live.consumed("txn", "read_uncommitted")
        assert len(seen[0]) == 5 * 15 + 5 * 5 + 10 + 7
        live.send("txn", 3, id="two", end="commit")
        following.until(lambda: following.each("txn") == live.consumed("txn"))
        assert len(following.each("txn")[0]) == 3 * 15 + 5 * 5 + 10 + 7 + 3
    assert len(following.collected.batches) > 5


def test_reading_changes_no_partition(spark: SparkSession, live: Live) -> None:
    live.create("still")
    live.send("still", 300)
    partition = live.disk / "still-0"
    before = facts(partition)
    assert read_each(spark, live, "still") == live.consumed("still")
    assert len(ok("cat", partition, "--format", "ndjson").rows) == 300
    assert ok("verify", partition).out == b""
    assert facts(partition) == before


# ---- what the broker deletes ---------------------------------------------------------------------
def test_a_stream_continues_while_segments_are_deleted(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    live.create("aged", retention_bytes="50000")
    sent: dict[int, int] = {}
    options = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "300"}
    with Following(spark, live, "aged", tmp_path / "checkpoint", **options) as following:
        for turn in range(8):
            live.send("aged", 200, seed=turn, random=True)
            sent.update(live.consumed("aged")[0])
        following.until(lambda: (last := following.each("aged")) and last[0][-1][0] == 1599)
        rows = following.each("aged")[0]
    # The broker may delete records after the stream and before the consumer here has read them.
    both = {offset: value for offset, value in rows if offset in sent}
    assert both.items() <= sent.items() and len(both) > 300
    assert len(dict(rows)) == len(rows)
    with LogReader.open(live.disk / "aged-0") as reader:
        assert reader.log_start_offset > 0
    wait_until_same(lambda: read_each(spark, live, "aged"), lambda: live.consumed("aged"))


def test_a_stream_continues_while_the_cleaner_compacts(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    cleaner = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "1000"}
    live.create("latest", cleanup_policy="compact", **cleaner)
    with Following(
        spark, live, "latest", tmp_path / "checkpoint", maxOffsetsPerTrigger="150"
    ) as following:
        for turn in range(8):
            live.send("latest", 250, seed=turn, keys=20)
            following.query.processAllAvailable()
        following.until(lambda: following.each("latest")[0][-1][0] >= 1999)
        rows = following.each("latest")[0]
    kept = live.consumed("latest")[0]
    assert len(kept) < 1500, "the cleaner removed nothing"
    assert set(kept) <= set(rows)
    assert len(dict(rows)) == len(rows)
    wait_until_same(lambda: read_each(spark, live, "latest"), lambda: live.consumed("latest"))


def wait_until_same(ours: Callable[[], Each], theirs: Callable[[], Each]) -> None:
    """Compare again until the broker changed nothing between the two reads."""
    deadline = time.monotonic() + PATIENCE_S
    while ours() != theirs():
        assert time.monotonic() < deadline


def test_a_recreated_topic_fails_the_stream_that_read_its_predecessor(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    live.create("again")
    live.send("again", 50)
    checkpoint = tmp_path / "checkpoint"
    with Following(spark, live, "again", checkpoint) as following:
        following.until(lambda: following.each("again") == live.consumed("again"))
    live.ask("delete", topic="again")
    live.create("again")
    live.send("again", 80, seed=5)
    failing = Following(spark, live, "again", checkpoint)
    with pytest.raises(StreamingQueryException, match="TOPIC_RECREATED"):
        failing.query.processAllAvailable()
    with Following(spark, live, "again", checkpoint, failOnDataLoss="false") as following:
        following.until(lambda: following.each("again") == live.consumed("again"))
    assert len(following.each("again")[0]) == 80


# ---- after a kill --------------------------------------------------------------------------------
def test_acknowledged_records_are_read_after_a_kill(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    format_log_dir(tmp_path / "log.dir", tmp_path)
    with Broker.start(tmp_path / "log.dir", tmp_path / "broker") as broker:
        killed = Live(tmp_path / "log.dir", kafka, broker)
        killed.create("orders", 2)
        for turn, codec in enumerate(CODECS):
            killed.send("orders", 100, partitions=2, codec=codec, seed=turn)
        killed.send("orders", 40, partitions=2, id="never-ended", end="leave")
        expected = {level: killed.consumed("orders", level) for level in ISOLATIONS}
        broker.kill()
        kafka.ask("forget")
    for level, each in expected.items():
        assert read_each(spark, killed, "orders", **{"kafka.isolation.level": level}) == each
    assert ok("verify", killed.disk).out == b""


def test_spark_and_three_clients_agree_on_a_disk_of_every_codec(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    comparison = make(tmp_path, 20, kafka=kafka, spark=spark)
    assert comparison.size > 20 << 20
    assert [look for look in comparison.looks if not comparison.agrees(look)] == []
    committed, uncommitted = (comparison.looks[each].total.count for each in (0, 1))
    assert 0 < committed < uncommitted
    assert len(comparison.looks) == 8


# ---- between a marker and its index entry --------------------------------------------------------
@contextlib.contextmanager
def slow_writes(pid: int, path: Path, delay_us: int) -> Iterator[None]:
    """Delay each write of a process to one file."""
    if shutil.which("strace") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("strace is not installed")
    options = [f"--inject=write,pwrite64:delay_enter={delay_us}", "--trace=write,pwrite64"]
    command = ["strace", "-f", "-qq", "-o", "/dev/null", *options, "-P", str(path)]
    tracer = subprocess.Popen([*command, "-p", str(pid)])
    try:
        wait_until(lambda: f"TracerPid:\t{tracer.pid}" in Path(f"/proc/{pid}/status").read_text())
        yield
    finally:
        tracer.terminate()
        tracer.wait(PATIENCE_S)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_no_aborted_record_is_read_while_a_broker_writes_its_transaction_index(
    spark: SparkSession, live: Live
) -> None:
    """Slow writes to the index make reads fall between a marker and its entry."""
    live.create("gap", internal_segment_bytes="1000000")
    live.send("gap", 5, id="gap", end="abort")
    partition = live.disk / "gap-0"
    unindexed: list[int] = []
    seen: set[int] = set()
    is_done = threading.Event()

    def follow() -> None:
        with LogReader.open(partition) as reader:
            while not is_done.is_set():
                reader.refresh()
                unindexed.append(len(reader.unindexed_aborts))
                for start in range(0, reader.last_stable_offset, 20):
                    info = reader.read(start, isolation="read_committed")
                    seen.update(info.columns().offset.tolist())

    index = partition / "00000000000000000000.txnindex"
    with slow_writes(live.broker.pid, index, 300_000), ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow)
        try:
            for turn in range(10):
                live.send("gap", 15, seed=turn, id="gap", end=("abort", "commit")[turn % 5 == 4])
                table = read_table(live.disk, "gap", isolation="read_committed")
                seen.update(table["offset"].to_pylist())
        finally:
            is_done.set()
        following.result()
    committed = {offset for offset, _ in live.consumed("gap")[0]}
    assert len(committed) == 30
    assert any(unindexed), "no read happened between a marker and its entry"
    assert seen == committed
    rows = read(spark, live, "gap").select("offset").collect()
    assert {row.offset for row in rows} == committed
