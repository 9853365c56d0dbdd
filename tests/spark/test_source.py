"""The source in a real Spark session: what a user types, and what comes back."""

import json
import shutil
import time
import urllib.request
from datetime import datetime, timezone

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

import streamlog.spark
from streamlog.errors import InvalidOptionError, InvalidRequestError
from streamlog.records.record import Header, Record
from tests.support.log_root import BOTH_KINDS
from tests.support.spark_session import Collected
from tests.watch.test_metrics import parsed

pytestmark = pytest.mark.spark

TEN = [f"v{n}" for n in range(10)]


def encoded(values):
    return sorted(value.encode() for value in values)


@pytest.fixture
def orders(root):
    root.create("orders", 2)
    root.append("orders", 0, TEN[:6])
    root.append("orders", 1, TEN[6:])
    return root


def batch(spark, root, **options):
    options = {"path": root.path, "subscribe": "orders"} | options
    if {"subscribePattern", "assign"} & options.keys():
        del options["subscribe"]
    return spark.read.format("streamlog").options(**options).load()


def stream(spark, root, **options):
    options = {"path": root.path, "subscribe": "orders", "startingOffsets": "earliest"} | options
    if "subscribePattern" in options:
        del options["subscribe"]
    return spark.readStream.format("streamlog").options(**options).load()


def run(frame, checkpoint, collected=None, name=None):
    """Run a query until it has read what is there now."""
    collected = collected or Collected()
    query = (
        frame.writeStream.foreachBatch(collected.add)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(queryName=name)
    )
    query.awaitTermination(120)
    return collected, query


def wait_until(is_done):
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


# ---- batch --------------------------------------------------------------------------------------
def test_batch_has_the_columns_of_kafkas_source(spark, root):
    root.create("orders", 1)
    headers = (Header("trace", b"\x00\xff"), Header("trace", None))
    root.log().append(
        [
            Record(b"k", b"v", headers, 1_700_000_000_123),
            Record(None, None, (), -1),
        ]
    )
    frame = batch(spark, root, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = frame.orderBy("offset").collect()
    assert first.asDict(recursive=True) == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": first.timestamp,
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"\x00\xff"}, {"key": "trace", "value": None}],
    }
    assert (second.key, second.value, second.headers) == (None, None, None)
    times = frame.selectExpr("unix_micros(timestamp) t").orderBy("t").collect()
    assert [row.t for row in times] == [-1000, 1_700_000_000_123_000]


def test_batch_reads_all_partitions_and_only_wanted_columns(spark, orders):
    frame = batch(spark, orders, columns="offset,value")
    assert frame.columns == ["value", "offset"]
    assert sorted(row.value for row in frame.collect()) == encoded(TEN)


@BOTH_KINDS
def test_batch_between_offsets(spark, orders):
    frame = batch(
        spark,
        orders,
        startingOffsets='{"orders": {"0": 2, "1": -2}}',
        endingOffsets='{"orders": {"0": 4, "1": -1}}',
    )
    assert sorted(row.value for row in frame.collect()) == encoded(TEN[2:4] + TEN[6:])


@BOTH_KINDS
def test_batch_between_times(spark, root):
    root.create("orders", 1)
    for number, value in enumerate(TEN):
        root.append("orders", 0, [value], timestamp=1000 * number)
    frame = batch(spark, root, startingTimestamp="2500", endingTimestamp="6000")
    assert sorted(row.value for row in frame.collect()) == encoded(TEN[3:6])
    row = frame.agg({"timestamp": "min"}).collect()[0]
    assert row[0].replace(tzinfo=timezone.utc) == datetime(1970, 1, 1, 0, 0, 3, tzinfo=timezone.utc)


@BOTH_KINDS
def test_batch_of_an_empty_topic_has_no_rows(spark, root):
    root.create("orders", 1)
    assert batch(spark, root).collect() == []


@BOTH_KINDS
def test_batch_is_cut_into_the_tasks_that_were_asked_for(spark, orders):
    frame = batch(spark, orders, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 10
    assert batch(spark, orders).rdd.getNumPartitions() == 1


@BOTH_KINDS
def test_batch_by_assignment_pattern_and_sql_view(spark, orders):
    orders.create("other", 1).append("other", 0, ["x"])
    assert batch(spark, orders, assign='{"orders": [1]}').count() == 4
    assert batch(spark, orders, subscribePattern="o.*").count() == 11
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW log USING streamlog "
        f"OPTIONS (path '{orders.path}', subscribe 'orders,other')"
    )
    assert spark.sql("SELECT count(*) FROM log WHERE topic = 'orders'").collect()[0][0] == 10


def test_table_of_sql_is_read_with_the_options_it_was_created_with(spark, orders, tmp_path):
    orders.create("other", 1).append("other", 0, ["x"])
    options = f"OPTIONS (path '{orders.path}', subscribe 'orders', includeHeaders 'true')"
    spark.sql(f"CREATE TABLE orders_table USING streamlog {options}")
    try:
        assert spark.sql("SELECT count(*), max(offset) FROM orders_table").collect()[0] == (10, 5)
        assert spark.table("orders_table").columns[-1] == "headers"
        assert spark.read.option("subscribe", "other").table("orders_table").count() == 1
        frame = spark.readStream.option("startingOffsets", "earliest").table("orders_table")
        collected, _ = run(frame, tmp_path / "cp")
        assert collected.values == encoded(TEN)
        with pytest.raises(PySparkException, match="no options for INSERT INTO"):
            spark.sql("INSERT INTO orders_table SELECT * FROM orders_table")
    finally:
        spark.sql("DROP TABLE orders_table")
    assert len(orders.manager.topics()) == 2


def test_table_of_sql_by_location_and_one_with_a_list_of_columns(spark, orders):
    where = f"LOCATION '{orders.path}'"
    spark.sql(f"CREATE TABLE located USING streamlog OPTIONS (subscribe 'orders') {where}")
    spark.sql(f"CREATE TABLE listed (value binary) USING streamlog {where}")
    try:
        assert spark.table("located").count() == 10
        with pytest.raises(PySparkException, match="without a list of columns"):
            spark.table("listed").count()
    finally:
        spark.sql("DROP TABLE located")
        spark.sql("DROP TABLE listed")


def test_batch_of_another_writers_directory_leaves_it_as_it_was(spark, orders, tmp_path):
    foreign = tmp_path / "foreign"
    shutil.copytree(f"{orders.path}/orders-0", foreign / "orders-0")
    names = sorted(path.name for path in foreign.rglob("*"))
    assert batch(spark, orders, path=str(foreign)).count() == 6
    assert batch(spark, orders, path=str(foreign / "orders-0")).count() == 6
    assert batch(spark, orders, path=str(foreign / "orders-0" / f"{0:020}.log")).count() == 6
    assert sorted(path.name for path in foreign.rglob("*")) == names


# ---- streaming ----------------------------------------------------------------------------------
@BOTH_KINDS
def test_stream_goes_on_from_its_checkpoint(spark, orders, tmp_path):
    first, _ = run(stream(spark, orders), tmp_path / "cp")
    assert first.values == encoded(TEN)
    orders.append("orders", 1, ["more"])
    second, query = run(stream(spark, orders), tmp_path / "cp")
    assert second.values == [b"more"]
    assert [batch_id for batch_id, _ in second.batches] == [1]
    progress = query.lastProgress["sources"][0]
    assert json.loads(progress["latestOffset"])["orders"] == {"0": 6, "1": 5}
    assert query.lastProgress["numInputRows"] == 1


def test_available_now_runs_limited_batches_to_the_end(spark, orders, tmp_path):
    collected, _ = run(stream(spark, orders, maxOffsetsPerTrigger="4"), tmp_path / "cp")
    assert collected.values == encoded(TEN)
    assert [len(rows) for _, rows in collected.batches] == [3, 3, 4]


@BOTH_KINDS
def test_latest_with_a_batch_that_fails_loses_and_repeats_nothing(spark, orders, tmp_path):
    def write_and_fail(batch_id):
        orders.append("orders", 0, ["during"])
        raise RuntimeError("this batch fails")

    failing = Collected()
    failing.before = write_and_fail
    with pytest.raises(StreamingQueryException, match="this batch fails"):
        run(stream(spark, orders, startingOffsets="latest"), tmp_path / "cp", failing)
    collected, _ = run(stream(spark, orders, startingOffsets="latest"), tmp_path / "cp")
    assert collected.values == [b"during"]


@BOTH_KINDS
def test_checkpoint_of_kafkas_source_resumes_at_its_offsets(spark, orders, tmp_path):
    checkpoint = tmp_path / "cp"
    run(stream(spark, orders), checkpoint)
    rewrite_last_offset(checkpoint, '{"orders":{"0":4,"1":2}}')
    collected, _ = run(stream(spark, orders), checkpoint)
    assert collected.values == encoded([*TEN[4:6], *TEN[8:]])


def rewrite_last_offset(checkpoint, text):
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = last.read_text().split("\n")
    last.write_text("\n".join([*lines[:2], text]))
    last.with_name(f".{last.name}.crc").unlink()


def test_partition_that_appears_while_running_is_read(spark, orders, tmp_path):
    collected = Collected()
    query = (
        stream(spark, orders, subscribePattern="o.*")
        .writeStream.foreachBatch(collected.add)
        .option("checkpointLocation", str(tmp_path / "cp"))
        .start()
    )
    try:
        query.processAllAvailable()
        orders.create("other", 1).append("other", 0, ["x"])
        while len(collected.rows) < 11 and query.isActive:
            query.processAllAvailable()
    finally:
        query.stop()
    assert collected.values == encoded([*TEN, "x"])


@BOTH_KINDS
def test_loss_fails_the_query_with_its_reason_or_is_passed_over(spark, orders, tmp_path):
    checkpoint = tmp_path / "cp"
    run(stream(spark, orders), checkpoint)
    orders.manager.delete_topic("orders")
    orders.create("orders", 2).append("orders", 0, ["again"])
    with pytest.raises(StreamingQueryException, match="TOPIC_RECREATED") as caught:
        run(stream(spark, orders), checkpoint)
    assert "DataLossError" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    collected, _ = run(stream(spark, orders, failOnDataLoss="false"), checkpoint)
    assert collected.values == [b"again"]


def test_group_of_a_query_that_ended_stands_at_its_end(spark, orders, tmp_path):
    frame = stream(spark, orders, maxOffsetsPerTrigger="4", **{"kafka.group.id": "billing"})
    run(frame, tmp_path / "cp")
    with open(f"{orders.path}/.streamlog/readers/billing.json") as file:
        finished = json.load(file)["offsets"]["orders"]
    assert sum(finished.values()) == len(TEN)


def test_lag_of_a_progress_is_what_kafkas_source_calls_its_metrics(spark, orders, tmp_path):
    _, query = run(stream(spark, orders, maxOffsetsPerTrigger="5"), tmp_path / "cp")
    for progress in (query.recentProgress[0], query.recentProgress[0].json):
        (behind,) = streamlog.spark.lag(progress)
        assert behind.partitions == {"orders-0": 3, "orders-1": 2}
        assert behind[:3] == (2, 3, 2.5)
    assert streamlog.spark.lag(query.lastProgress)[0].max_offsets_behind_latest == 0
    assert streamlog.spark.lag(None) == []
    rate = {"startOffset": 0, "endOffset": "7", "latestOffset": None}
    assert streamlog.spark.lag({"sources": [rate]}) == [None]
    with pytest.raises(InvalidRequestError, match="not the progress of a query"):
        streamlog.spark.lag({})


def test_metrics_of_queries_are_what_prometheus_parses(spark, orders, tmp_path):
    def value(name, **labels):
        found = scraped().get(name, ())
        return next((each for given, each in found if given.items() >= labels.items()), None)

    def scraped():
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/", timeout=30) as answer:
            return parsed(answer.read())

    file = tmp_path / "streamlog.prom"
    exported = streamlog.spark.export_metrics(spark, port=0, textfile=file, path=orders.path)
    with exported as metrics:
        frame = stream(spark, orders, maxOffsetsPerTrigger="5")
        run(frame, tmp_path / "cp", name="audit")
        orders.append("orders", 0, ["late"])
        wait_until(lambda: value("streamlog_query_active", query="audit") == 0)
        assert value("streamlog_query_input_rows_total", query="audit") == len(TEN)
        assert value("streamlog_query_input_bytes_total", query="audit") > 100
        assert value("streamlog_query_batch_id", query="audit") == 1
        assert value("streamlog_query_duration_seconds", query="audit", phase="addBatch") > 0
        assert value("kafka_consumergroup_current_offset", partition="1") == 4
        assert value("kafka_consumergroup_lag", consumergroup="audit", partition="0") == 1
        assert value("streamlog_consumergroup_lag_seconds", partition="0") >= 0
        failing = frame.selectExpr("raise_error('no')").writeStream.format("noop")
        failing = failing.option("checkpointLocation", str(tmp_path / "fails")).queryName("fails")
        with pytest.raises(StreamingQueryException):
            failing.start().awaitTermination(120)
        wait_until(lambda: value("streamlog_query_failures_total", query="fails") == 1)
    assert parsed(file.read_bytes())["streamlog_up"] == [({}, 1)]

    with streamlog.spark.export_metrics(spark, port=0) as metrics:  # without the log
        run(stream(spark, orders), tmp_path / "cp", name="audit")
        wait_until(lambda: value("streamlog_query_active", query="audit") == 0)
        assert value("kafka_consumergroup_lag_sum", consumergroup="audit") == 0
        assert value("kafka_topic_partition_current_offset", partition="0") == 7
    with pytest.raises(InvalidOptionError, match="nowhere to publish"):
        streamlog.spark.export_metrics(spark)


# ---- errors -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribePatern": "x"}, "unknown option: got subscribepatern"),
        ({"path": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"subscribe": "absent"}, "there is no topic absent"),
        ({"failOnDataLoss": "perhaps"}, "invalid value for option failOnDataLoss"),
        ({"columns": "price"}, "option columns: unknown column"),
        ({"assign": "{}"}, "more than one option selects topics"),
    ],
)
def test_wrong_options_are_refused_at_load(spark, orders, options, text):
    with pytest.raises(AnalysisException, match=text):
        stream(spark, orders, **options)


def test_file_in_place_of_a_directory_is_refused_at_load(spark, orders, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("no log")
    with pytest.raises(AnalysisException, match=r"notes\.txt"):
        stream(spark, orders, path=str(file))


def test_schema_of_the_users_is_refused(spark, orders):
    reader = spark.read.format("streamlog").schema("value string")
    frame = reader.options(path=orders.path, subscribe="orders").load()
    with pytest.raises(PySparkException, match="schema of this source is fixed"):
        frame.collect()


def test_ending_offsets_are_refused_in_a_stream(spark, orders, tmp_path):
    with pytest.raises(StreamingQueryException, match="not valid in streaming queries"):
        run(stream(spark, orders, endingOffsets="latest"), tmp_path / "cp")


@BOTH_KINDS
def test_impossible_offsets_of_a_batch_name_what_there_is(spark, orders):
    frame = batch(spark, orders, startingOffsets='{"orders": {"0": 99, "1": 0}}')
    with pytest.raises(PySparkException, match=r"OffsetOutOfRangeError.*expected 0 to 6"):
        frame.collect()


def test_damaged_batch_fails_with_file_and_offset(spark, orders):
    orders.append("orders", 0, ["a whole batch behind the damaged one"])
    path = f"{orders.path}/orders-0/{0:020}.log"
    with open(path, "r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff\xff")
    with pytest.raises(PySparkException, match=r"CorruptRecordError|CorruptDataError") as caught:
        batch(spark, orders).collect()
    assert f"{0:020}.log" in str(caught.value)
