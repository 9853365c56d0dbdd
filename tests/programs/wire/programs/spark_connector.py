"""Spark's Kafka connector on a gateway, beside `format("streamlog")` on the same root's files."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamlog import LogManager, Record
from streamlog.gateway import serve
from streamlog.records.record import Header
from tests.programs.wire.programs.jars import jars
from tests.support.cli import ok

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PROGRAMS"]

_COUNT: Final = 500
_TOPIC: Final = "orders"


class _Place:
    """A root and its gateway, with a session that reads both ways."""

    def __init__(self, spark: "SparkSession", root: Path, bootstrap: str) -> None:
        self.spark, self.root = spark, root
        self.options: Final[Mapping[str, Mapping[str, str]]] = {
            "kafka": {"kafka.bootstrap.servers": bootstrap},
            "streamlog": {"path": str(root)},
        }
        self._next = 0

    def append(self) -> None:
        """Append rows with and without key, value and headers to both partitions."""
        with LogManager.open(str(self.root)) as manager:
            now = manager.clock.now_ms()
            for partition in range(2):
                manager.log(_TOPIC, partition).append([self._row(now) for _ in range(_COUNT // 2)])

    def _row(self, now: int) -> Record:
        number, self._next = self._next, self._next + 1
        return Record(
            None if number % 3 == 0 else b"key %d" % number,
            None if number % 5 == 0 else b"value %d" % number,
            timestamp=now + number,
            headers=[Header("h", b"%d" % number), Header("empty", None)][: number % 3],
        )

    def batch(self, kind: str, topic: str) -> list[Any]:
        """Return all rows of a topic in order, read by one of the two sources."""
        reader = self.spark.read.format(kind).options(**self.options[kind])
        frame = reader.option("subscribe", topic).option("includeHeaders", "true").load()
        return [frame.schema, *frame.orderBy("partition", "offset").collect()]

    def stream(self, kind: str, checkpoint: Path, starting: str) -> list[Any]:
        """Run a query until it has read everything; return its rows in order."""
        rows: list[Any] = []
        reader = self.spark.readStream.format(kind).options(**self.options[kind])
        reader = reader.option("subscribe", _TOPIC).option("includeHeaders", "true")
        frame = reader.option("startingOffsets", starting).load()
        _run(
            frame.writeStream.foreachBatch(lambda each, _: rows.extend(each.collect())), checkpoint
        )
        return sorted(rows, key=lambda row: (row.partition, row.offset))


def _run(writer: Any, checkpoint: Path) -> None:
    started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    started.start().awaitTermination()


@contextmanager
def _on_a_gateway(scratch: Path) -> Iterator[_Place]:
    from tests.support.spark_session import open_session

    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--jars {','.join(map(str, jars('spark-kafka')))} pyspark-shell"
    )
    spark = open_session(scratch)
    root = scratch / "root"
    with LogManager.open(root, create=True) as manager:
        for topic in (_TOPIC, "copies", "streamed"):
            manager.create_topic(topic, 2)
    try:
        with serve(root) as gateway:
            place = _Place(spark, root, gateway.bootstrap_servers)
            place.append()
            yield place
    finally:
        spark.stop()
        del os.environ["PYSPARK_SUBMIT_ARGS"]


def connector(scratch: Path) -> str:
    """Read the same rows both ways, write through the gateway, move a job to and fro."""
    with _on_a_gateway(scratch) as place:
        theirs, ours = (place.batch(kind, _TOPIC) for kind in ("kafka", "streamlog"))
        assert theirs == ours
        assert len(ours) == 1 + _COUNT
        theirs, ours = (
            place.stream(kind, scratch / f"all-{kind}", "earliest")
            for kind in ("kafka", "streamlog")
        )
        assert theirs == ours
        assert len(ours) == _COUNT
        _written(place, scratch)
        moves = _moved(place, scratch)
    return f"{_COUNT} rows equal in batch and stream, written in both ways, {moves}"


def _written(place: _Place, scratch: Path) -> None:
    """Write a topic's rows through the gateway, as a batch and as a stream."""
    settings = place.options["kafka"] | {"subscribe": _TOPIC, "includeHeaders": "true"}
    table = place.spark.read.format("kafka").options(**settings).load()
    columns = ("key", "value", "headers", "partition")

    def sink(writer: Any, topic: str) -> Any:
        return writer.format("kafka").options(**place.options["kafka"]).option("topic", topic)

    sink(table.select(*columns).write, "copies").save()
    stream = place.spark.readStream.format("kafka").options(**settings)
    frame: DataFrame = stream.option("startingOffsets", "earliest").load().select(*columns)
    _run(sink(frame.writeStream, "streamed"), scratch / "written")
    expected = _contents(place.batch("streamlog", _TOPIC))
    assert len(expected) == _COUNT
    for topic in ("copies", "streamed"):
        assert _contents(place.batch("streamlog", topic)) == expected


def _contents(rows: list[Any]) -> list[str]:
    """Return what the rows of a batch say, less where and when they were written."""
    return sorted(repr((row.partition, row.key, row.value, row.headers)) for row in rows[1:])


def _moved(place: _Place, scratch: Path) -> str:
    """Move a job from one source to the other and back, with its checkpoint."""
    seen: list[Any] = []
    checkpoint = scratch / "moved"
    for number, kind in enumerate(("kafka", "streamlog", "kafka", "streamlog")):
        if number:
            place.append()
            move = ("readers", "move", checkpoint, "--to", kind, "--stopped")
            ok("--path", place.root, *move)
        seen += place.stream(kind, checkpoint, "earliest")
    rows = place.batch("streamlog", _TOPIC)[1:]
    assert sorted(seen, key=lambda row: (row.partition, row.offset)) == rows
    assert len(rows) == 4 * _COUNT
    ok("--path", place.root, "readers", "move", checkpoint, "--to", "kafka", "--stopped")
    reset = ("readers", "reset", checkpoint, "--to", f'{{"{_TOPIC}":{{"0":9}}}}', "--stopped")
    ok("--path", place.root, *reset)
    again = place.stream("kafka", checkpoint, "earliest")
    assert again == [row for row in rows if row.partition == 0 and row.offset >= 9]
    return "a job moved three times with its checkpoint, and was reset"


PROGRAMS: Final[dict[str, Callable[[Path], str]]] = {"spark-kafka-connector": connector}
