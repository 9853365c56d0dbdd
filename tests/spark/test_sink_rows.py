"""What becomes of a row: columns, types, codecs, timestamps, and what is refused."""

from datetime import datetime, timezone

import pytest

from streamlog.partition.reader import LogReader
from streamlog.records.partitioner import murmur2
from streamlog.records.record import CompressionType, Header, TimestampType
from tests.support.sink import records_of, run_available, sorted_values, values_of

pytestmark = pytest.mark.spark

ROWS = """key binary, value binary, headers array<struct<key:string,value:binary>>, topic string,
          partition int, timestamp timestamp"""
NOON = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=timezone.utc)
NOON_MS = int(NOON.timestamp() * 1000)


def write(frame, root, **options):
    writer = frame.write.format("streamlog").mode("append").option("path", root.path)
    writer.options(**{name.replace("__", "."): value for name, value in options.items()}).save()


def refused(frame, root, **options):
    with pytest.raises(Exception) as caught:
        write(frame, root, **options)
    return str(caught.value)


def test_every_column_arrives_as_it_was(spark, root):
    root.create("orders", 4)
    rows = [
        (b"k1", b"v1", [("h", b"1"), ("h", None), ("", b"")], None, None, NOON),
        (None, None, None, None, 3, NOON),
        (b"", b"", [], None, 0, NOON),
    ]

    write(spark.createDataFrame(rows, ROWS), root, topic="orders")

    found = records_of(root.path, "orders")
    (first,) = found[(murmur2(b"k1") & 0x7FFFFFFF) % 4]
    assert (first.key, first.value, first.timestamp) == (b"k1", b"v1", NOON_MS)
    assert first.headers == (Header("h", b"1"), Header("h", None), Header("", b""))
    (third,) = [r for r in found[0] if r.key == b""]
    assert (third.value, third.headers) == (b"", ())
    (second,) = [r for r in found[3] if r.key is None]
    assert (second.value, second.headers) == (None, ())
    assert sum(map(len, found.values())) == 3


def test_strings_are_written_as_utf8(spark, root):
    root.create("orders")

    write(
        spark.createDataFrame([("ключ", "wärt")], "key string, value string"), root, topic="orders"
    )

    (record,) = records_of(root.path, "orders")[0]
    assert (record.key, record.value) == ("ключ".encode(), "wärt".encode())


def test_rows_without_a_timestamp_get_one_time_a_task(spark, root):
    root.create("orders")
    before = int(datetime.now(timezone.utc).timestamp() * 1000)

    write(spark.range(100).selectExpr("cast(id as string) value").coalesce(1), root, topic="orders")

    times = {record.timestamp for record in records_of(root.path, "orders")[0]}
    assert len(times) == 1
    assert before <= times.pop() <= int(datetime.now(timezone.utc).timestamp() * 1000)


def test_a_session_in_another_time_zone_changes_no_timestamp(spark, root):
    root.create("orders")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(f"select 'v' value, timestamp_millis({NOON_MS}) timestamp")
        write(frame, root, topic="orders")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert [record.timestamp for record in records_of(root.path, "orders")[0]] == [NOON_MS]


def test_a_topic_with_log_append_time_stamps_all_rows_of_a_commit(spark, root):
    root.create("orders", 2, **{"message.timestamp.type": "LogAppendTime"})
    frame = spark.createDataFrame(
        [(b"%d" % n, NOON) for n in range(10)], "value binary, timestamp timestamp"
    )

    write(frame, root, topic="orders")

    records = [record for part in records_of(root.path, "orders").values() for record in part]
    assert {record.timestamp_type for record in records} == {TimestampType.LOG_APPEND_TIME}
    (time,) = {record.timestamp for record in records}
    assert time != NOON_MS


def test_a_topic_column_spreads_rows_over_topics(spark, root):
    root.create("orders").create("payments")
    frame = spark.createDataFrame(
        [("orders", "a"), ("payments", "b"), ("orders", "c")], "topic string, value string"
    ).coalesce(1)

    write(frame, root)

    assert values_of(root.path, "orders") == [b"a", b"c"]
    assert values_of(root.path, "payments") == [b"b"]


def test_the_option_overrules_the_topic_column(spark, root):
    root.create("orders")

    write(spark.sql("select 'nowhere' topic, 'v' value"), root, topic="orders")

    assert values_of(root.path, "orders") == [b"v"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read_back(spark, root, codec):
    root.create("orders")
    frame = spark.range(1000).selectExpr("concat('row ', id) value").coalesce(1)

    write(frame, root, topic="orders", kafka__compression__type=codec)

    assert values_of(root.path, "orders") == [b"row %d" % n for n in range(1000)]
    with LogReader.open(f"{root.path}/orders-0") as reader:
        (batch,) = reader.read(0).batches()
    assert batch.compression_type is CompressionType.of(codec)


def test_columns_that_the_sink_does_not_know_are_left_out(spark, root):
    root.create("orders")

    write(spark.sql("select 7 offset, map('a', 1) extra, 'v' value"), root, topic="orders")

    assert values_of(root.path, "orders") == [b"v"]


def test_no_rows_are_no_error(spark, root):
    root.create("orders")

    write(spark.sql("select 'v' value where false"), root, topic="orders")

    assert values_of(root.path, "orders") == []


# ---- refusals: nothing of the batch may arrive -------------------------------------------------
@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select 1 value", "value attribute unsupported type: got int, expected string or binary"),
        ("select 'v' value, 1.5 key", "key attribute unsupported type: got decimal(2,1)"),
        ("select 'v' value, 1L partition", "partition attribute unsupported type: got bigint"),
        ("select 'v' value, 'x' headers", "headers attribute unsupported type: got string"),
        ("select 'v' value, current_date() timestamp", "timestamp attribute unsupported type"),
        ("select 'v' wert", "Required attribute 'value' not found"),
    ],
)
def test_a_wrong_column_is_named(spark, root, sql, text):
    root.create("orders")

    assert text in refused(spark.sql(sql), root, topic="orders")
    assert values_of(root.path, "orders") == []


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select 'v' value", "topic option required when no 'topic' attribute is present"),
        ("select null topic, 'v' value where 1 = 1", "topic attribute unsupported type: got void"),
        ("select if(id = 3, null, 'orders') topic, 'v' value from range(5)", "null topic present"),
        ("select if(id = 3, 'nowhere', 'orders') topic, 'v' value from range(5)", "nowhere"),
        ("select 'orders' topic, 'v' value, cast(id as int) partition from range(3)", "0 to 1"),
        ("select 'orders' topic, 'v' value, -1 partition", "partition is negative: got -1"),
        (
            "select 'orders' topic, 'v' value, timestamp_millis(-2) timestamp",
            "timestamp before 1970",
        ),
        (
            "select 'orders' topic, if(id = 3, repeat('x', 2000), 'v') value from range(5)",
            "too large for topic 'orders'",
        ),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_all_others(spark, root, sql, text):
    root.create("orders", 2, **{"max.message.bytes": 1000})

    assert text in refused(spark.sql(sql), root)
    assert values_of(root.path, "orders") == []


def test_a_compacted_topic_refuses_rows_without_a_key(spark, root):
    root.create("states", 1, **{"cleanup.policy": "compact"})
    frame = spark.sql("select if(id = 3, null, string(id)) key, null value from range(5)")

    text = refused(frame.selectExpr("key", "cast(value as string) value"), root, topic="states")

    assert "has no key, but its topic 'states' is compacted" in text
    assert values_of(root.path, "states") == []


def test_an_unknown_topic_says_what_to_type(spark, root):
    text = refused(spark.sql("select 'v' value"), root, topic="orders")

    assert "there is no topic orders" in text


def test_an_unknown_topic_stops_a_stream_before_its_first_batch_runs(spark, root, tmp_path):
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = stream.selectExpr("string(value) value").writeStream.format("streamlog")
    options = {"path": root.path, "topic": "nowhere", "checkpointLocation": str(tmp_path / "cp")}

    text = run_available(writer.options(**options))

    assert "there is no topic nowhere" in text


def test_complete_mode_appends_each_result_and_update_is_spark_s_to_refuse(spark, root, tmp_path):
    root.create("in").create("out")
    root.append("in", 0, ["a", "b", "a"])
    from tests.support.sink import stream_of

    counted = (
        stream_of(spark, root.path, "in")
        .groupBy("value")
        .count()
        .selectExpr("value key", "string(count) value")
    )
    options = {"path": root.path, "topic": "out", "checkpointLocation": str(tmp_path / "cp")}
    writer = counted.writeStream.format("streamlog").outputMode("complete").options(**options)

    assert run_available(writer) is None
    root.append("in", 0, ["b"])
    assert run_available(writer) is None

    assert sorted_values(root.path, "out") == ["1", "2", "2", "2"]
