"""Dead letters: each record that cannot be decoded is in their topic once, and no query ends."""

import pytest
from pyspark.sql import functions as F  # noqa: N812

from streamlog.errors import InvalidRequestError, InvalidTopicError
from streamlog.records.record import Header, Record
from streamlog.spark import dead_letters, route_dead_letters, with_dead_letters
from streamlog.testing import Checkpoint, crash_after
from tests.support.sink import records_of, run_available, sorted_values, stream_of

pytestmark = pytest.mark.spark

DDL = "id BIGINT"
VALUES = ['{"id":0}', "bad 1", "bad 2", '{"id":3}', '{"id":4}', "bad 5", '{"id":6}']
GOOD = ['{"id":0}', '{"id":3}', '{"id":4}', '{"id":6}']
BAD = ["bad 1", "bad 2", "bad 5"]


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "cp")


@pytest.fixture
def orders(spark, root):
    """The decoded stream of seven records, three of them bad, two a batch."""
    root.create("orders").create("clean").create("dead")
    for value in VALUES:
        root.append("orders", 0, [value], key=b"k")
    return stream_of(
        spark,
        root.path,
        "orders",
        maxOffsetsPerTrigger="2",
        valueFormat="json",
        valueSchema=DDL,
        includeHeaders="true",
    )


def texts(record):
    return {header.key: header.value.decode() for header in record.headers}


def test_a_dead_letter_is_the_record_and_says_where_it_was(spark, root):
    root.create("orders", partitions=2).create("dead")
    root.log("orders", 1).append(
        [
            Record(b"k", b'{"id":1}', ()),
            Record(None, b"\xff", (Header("trace", b"t"), Header("trace", None))),
        ]
    )
    frame = spark.read.format("streamlog").option("path", root.path).option("subscribe", "orders")
    frame = frame.options(valueFormat="json", valueSchema=DDL, includeHeaders="true").load()

    letters = dead_letters(frame, "dead")
    letters.write.format("streamlog").mode("append").option("path", root.path).save()

    assert letters.columns == ["key", "value", "headers", "topic"]
    (record,) = records_of(root.path, "dead")[0]
    assert (record.key, record.value) == (None, b"\xff")
    assert record.headers[:2] == (Header("trace", b"t"), Header("trace", None))
    assert [header.key.removeprefix("__connect.errors.") for header in record.headers[2:]] == [
        "topic",
        "partition",
        "offset",
        "stage",
        "exception.message",
    ]
    *place, message = [header.value.decode() for header in record.headers[2:]]
    assert place == ["orders", "1", "1", "VALUE_CONVERTER"]
    assert "UTF-8" in message or "JSON" in message


def test_one_commit_has_the_good_rows_and_the_dead_letters(root, orders, checkpoint):
    routed = route_dead_letters(
        orders.withColumn("value", F.to_json("value")), topic="clean", dead_letter_topic="dead"
    )

    def start():
        sink = routed.writeStream.format("streamlog").option("path", root.path)
        return run_available(sink.option("checkpointLocation", str(checkpoint)))

    with crash_after(checkpoint, batch=1, at="decided"):
        start()
    assert start() is None

    assert sorted_values(root.path, "clean") == GOOD
    (clean,), (dead,) = (
        records_of(root.path, "clean").values(),
        records_of(root.path, "dead").values(),
    )
    assert {record.timestamp for record in clean} == {1_700_000_000_000}
    assert min(record.timestamp for record in dead) > 1_700_000_000_000
    assert sorted_values(root.path, "dead") == BAD
    assert [
        texts(each)["__connect.errors.offset"] for each in records_of(root.path, "dead")[0]
    ] == [
        "1",
        "2",
        "5",
    ]


def test_any_sink_gets_the_good_rows_and_each_dead_letter_is_written_once(root, orders, checkpoint):
    seen, failures = {}, [ValueError("in process"), None]

    def process(good, batch_id):
        assert "_error" not in good.columns
        seen[batch_id] = [row.value.id for row in good.collect()]
        if batch_id == 1 and (failure := failures.pop(0)):
            raise failure

    def start():
        function = with_dead_letters(process, root.path, "dead")
        query = orders.writeStream.foreachBatch(function)
        return run_available(query.option("checkpointLocation", str(checkpoint)))

    with crash_after(checkpoint, batch=0, at="decided"):
        start()
    assert "in process" in start()  # batch 1, after its dead letters
    assert start() is None

    assert seen == {0: [0], 1: [3], 2: [4], 3: [6]}  # batch 3 has no dead letters
    assert sorted_values(root.path, "dead") == BAD


def test_what_dead_letters_need_is_checked_first(spark, root, orders):
    with pytest.raises(InvalidRequestError, match="column partition, offset is missing"):
        dead_letters(orders.drop("partition", "offset"), "dead")
    with pytest.raises(InvalidRequestError, match="value attribute unsupported type"):
        route_dead_letters(orders, topic="clean", dead_letter_topic="dead")
    with pytest.raises(InvalidTopicError):
        with_dead_letters(print, root.path, "a/b")
