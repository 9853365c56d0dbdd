"""`format("streamlog")` on roots in object stores: the same guarantees as with a directory."""

import json

import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.bucket.places import shared_store
from streamlog.bucket.root import BucketRoot
from streamlog.errors import InvalidOptionError, UnknownTopicError
from streamlog.spark.foreach_batch import append_batch
from streamlog.spark.options import Use
from streamlog.spark.sink_options import SinkOptions
from streamlog.topic import TopicPartition
from tests.support.object_root import root_at
from tests.support.sink import Checkpoint, run_available, stream_of

pytestmark = pytest.mark.spark


@pytest.fixture
def url(request, tmp_path):
    """The URL of a root with two topics; `s3` as parameter puts it on a server."""
    if getattr(request, "param", "file") == "s3":
        place = request.getfixturevalue("s3").new_bucket()
    else:
        place = f"file://{tmp_path}/bucket"
    BucketRoot(shared_store(place)).create()
    root_at(place).create_topic("in")
    root_at(place).create_topic("out", partitions=2)
    return place


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "cp")


def numbered(first, last):
    return [f"row {number:03d}" for number in range(first, last)]


def put(place, values, topic="in"):
    import pyarrow as pa

    write_table(pa.table({"value": values}), place, topic)


def values(place, topic="out"):
    return sorted(value.decode() for value in read_table(place, topic)["value"].to_pylist())


@pytest.fixture
def copying(spark, url, checkpoint):
    """A query that copies topic `in` to topic `out` (two partitions), two rows a batch."""

    def copy(at=checkpoint, **options):
        stream = stream_of(spark, url, "in", maxOffsetsPerTrigger="2")
        writer = stream.select("key", "value", "timestamp").writeStream.format("streamlog")
        given = {"path": url, "topic": "out", "checkpointLocation": str(at)}
        return run_available(writer.options(**given | options))

    return copy


@pytest.mark.parametrize("url", ["s3"], indirect=True)
def test_each_row_arrives_once_over_restarts_and_replays(url, copying, checkpoint):
    put(url, numbered(0, 5))
    assert copying() is None
    checkpoint.forget_commit(2)
    assert copying() is None
    put(url, numbered(5, 8))
    assert copying() is None
    assert values(url) == numbered(0, 8)
    assert checkpoint.batches() == [0, 1, 2, 3, 4]
    offsets = json.loads((checkpoint.path / "offsets" / "4").read_text().splitlines()[-1])
    assert offsets["in"] == {"0": 8}
    ledger = root_at(url).state.apps[f"{checkpoint.query_id}/out"]
    assert ledger.standing.last_version == 4


def test_a_root_that_was_made_again_does_not_continue_the_query(url, copying, checkpoint):
    put(url, numbered(0, 2))
    copying()
    store = shared_store(url)
    store.delete([each.key for each in store.list("")])
    BucketRoot(store).create()
    root_at(url).create_topic("in")
    root_at(url).create_topic("out", partitions=2)
    put(url, numbered(0, 4))
    assert "CommitMismatchError" in copying(failOnDataLoss="false") or "DataLoss" in copying()


@pytest.mark.parametrize("url", ["s3"], indirect=True)
def test_batches_are_written_and_read_with_all_columns(spark, url):
    frame = spark.createDataFrame(
        [("k1", "a", 0), ("k2", "b", 1), (None, None, 1)],
        "key string, value string, partition int",
    ).selectExpr("*", "array(struct('h' AS key, cast('x' AS binary) AS value)) AS headers")
    writer = frame.write.format("streamlog").mode("append").option("path", url)
    for _ in range(2):
        options = {"topic": "out", "txnAppId": "load", "txnVersion": "7"}
        writer.options(**options).save()
    read = spark.read.format("streamlog").option("path", url).option("includeHeaders", "true")
    rows = read.option("subscribePattern", "o.*").load().orderBy("partition", "offset").collect()
    assert [(row.key, row.value, row.partition, row.offset) for row in rows] == [
        (b"k1", b"a", 0, 0),
        (b"k2", b"b", 1, 0),
        (None, None, 1, 1),
    ]
    assert rows[0].headers[0].key == "h"
    time = int(rows[0].timestamp.timestamp() * 1000)
    read = spark.read.format("streamlog").option("path", url)
    late = read.option("assign", '{"out": [1]}').option("startingTimestamp", str(time + 10**7))
    assert late.option("startingOffsetsByTimestampStrategy", "latest").load().count() == 0
    some = spark.read.format("streamlog").option("path", url).option("subscribe", "out")
    some = some.option("startingOffsets", '{"out": {"0": 0, "1": 1}}')
    assert some.option("endingOffsets", '{"out": {"0": 1, "1": 2}}').load().count() == 2


@pytest.mark.parametrize("url", ["s3"], indirect=True)
def test_foreach_batch_appends_each_batch_once_small_or_large(spark, url, checkpoint):
    put(url, numbered(0, 6))
    stream = stream_of(spark, url, "in", maxOffsetsPerTrigger="2").select("value")
    append = append_batch(url, topic="out")
    query = stream.writeStream.foreachBatch(append).option("checkpointLocation", str(checkpoint))
    assert run_available(query) is None  # the first batch in tasks, the others on the driver
    checkpoint.forget_commit(2)
    assert run_available(query) is None
    assert values(url) == numbered(0, 6)


def test_lost_records_stop_a_query_unless_it_says_otherwise(spark, url, copying, checkpoint):
    put(url, numbered(0, 2))
    copying()
    put(url, numbered(2, 6))
    root_at(url).delete_records(TopicPartition("in", 0), 4)
    stream = stream_of(spark, url, "in", failOnDataLoss="false").select("value")
    assert "START_OFFSET_RESET" in copying()
    writer = stream.writeStream.format("streamlog").options(
        path=url, topic="out", checkpointLocation=str(checkpoint)
    )
    assert run_available(writer) is None
    assert values(url) == [*numbered(0, 2), *numbered(4, 6)]


def test_rows_name_their_topic(spark, url):
    frame = spark.createDataFrame([("in", "a"), ("out", "b")], "topic string, value string")
    frame.write.format("streamlog").mode("append").option("path", url).save()
    assert (values(url, "in"), values(url, "out")) == (["a"], ["b"])
    wrong = spark.createDataFrame([("nothing", "a")], "topic string, value string")
    with pytest.raises(Exception, match="there is no topic nothing"):
        wrong.write.format("streamlog").mode("append").option("path", url).save()


# ---- what is refused -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"flush.ms": "5"}, "flush.ms has no meaning in an object store"),
        ({"flush.messages": "5"}, "flush.messages has no meaning"),
        ({"path": "s3://a/b,s3://a/c"}, "no replicas in other roots"),
    ],
)
def test_options_without_a_meaning_are_refused(options, said):
    with pytest.raises(InvalidOptionError, match=said):
        SinkOptions.of({"path": "s3://a/b", **options}, Use.BATCH_WRITE)


def test_a_missing_root_is_an_error_with_a_command(spark, tmp_path, s3):
    missing = s3.new_bucket()
    with pytest.raises(Exception, match="no log root") as caught:
        spark.read.format("streamlog").option("path", missing).option("subscribe", "x").load()
    assert "topics create" in str(caught.value)
    with pytest.raises(UnknownTopicError, match="no log root"):
        append_batch(missing, topic="x")._options.placed() and root_at(missing)
