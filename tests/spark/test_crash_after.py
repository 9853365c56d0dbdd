"""`crash_after`: what each point leaves, for sinks of all kinds, and what a start makes of it."""

import os

import pytest

from streamlog.errors import InvalidRequestError
from streamlog.spark import append_batch
from streamlog.testing import (
    CRASH_POINTS,
    Checkpoint,
    Topic,
    assert_exactly_once,
    assert_no_loss,
    crash_after,
)

pytestmark = pytest.mark.spark

ROWS = [f"row {number}" for number in range(6)]
# What is planned and what is done when batch 1 comes to a point.
STATES = {
    "offsets": ([0, 1], [0]),
    "staged": ([0, 1], [0]),
    "decided": ([0, 1], [0]),
    "applied": ([0, 1], [0]),
    "commits": ([0, 1], [0, 1]),
}
# How many rows the sink has by then.
WRITTEN = {"offsets": 2, "staged": 2, "decided": 2, "applied": 4, "commits": 4}
FOR_ALL = ("offsets", "applied", "commits")


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "cp")


@pytest.fixture
def files(tmp_path):
    """A directory of text files, two rows each: a source that is not ours, and starts fast."""
    directory = tmp_path / "files"
    directory.mkdir()

    def add(number, rows):
        path = directory / f"{number}.txt"
        path.write_text("\n".join(rows))
        os.utime(path, (number, number))  # Spark takes them in this order

    for number in range(3):
        add(number, ROWS[2 * number : 2 * number + 2])
    add.path = str(directory)
    return add


@pytest.fixture
def start(spark, files, checkpoint):
    """Starts a query over the files, one a batch; the rest is up to the caller."""

    def start(sink):
        stream = spark.readStream.option("maxFilesPerTrigger", 1).text(files.path)
        writer = stream.writeStream.option("checkpointLocation", checkpoint)
        return sink(writer.trigger(availableNow=True)).start()

    return start


def to_topic(topic):
    return lambda writer: (
        writer.format("streamlog").option("path", topic.root).option("topic", topic.name)
    )


def to_append_batch(topic):
    return lambda writer: writer.foreachBatch(append_batch(topic.root, topic=topic.name))


def to_parquet(path):
    return lambda writer: writer.format("parquet").option("path", path)


@pytest.mark.parametrize(
    ("sink", "at"),
    [
        *((to_topic, at) for at in CRASH_POINTS),
        *((to_append_batch, at) for at in ("staged", "decided", "applied")),
    ],
)
def test_streamlog_sinks_survive_every_point(checkpoint, start, tmp_path, sink, at):
    out = Topic(tmp_path / "root", "out")

    with crash_after(checkpoint, batch=1, at=at):
        start(sink(out)).awaitTermination()

    assert (checkpoint.planned(), checkpoint.committed()) == STATES[at]
    assert len(out.records()) == WRITTEN[at]
    start(sink(out)).awaitTermination()
    assert_exactly_once(ROWS, out, key="value")


@pytest.mark.parametrize("at", FOR_ALL)
def test_a_parquet_sink_survives_every_point(spark, checkpoint, start, tmp_path, at):
    table = str(tmp_path / "table")

    with crash_after(checkpoint, batch=1, at=at):
        start(to_parquet(table)).awaitTermination()

    assert (checkpoint.planned(), checkpoint.committed()) == STATES[at]
    assert spark.read.parquet(table).count() == WRITTEN[at]
    start(to_parquet(table)).awaitTermination()
    assert_exactly_once(ROWS, spark.read.parquet(table), key="value")


def test_a_partitioned_sink_may_be_planned_only(checkpoint, start, tmp_path):
    def sink(writer):
        return to_parquet(str(tmp_path / "table"))(writer).partitionBy("value")

    with crash_after(checkpoint, batch=0, at="offsets"):
        start(sink).awaitTermination()

    assert (checkpoint.planned(), checkpoint.committed()) == ([0], [])
    assert not (tmp_path / "table").exists()


def test_a_streamlog_source_tells_the_batch_of_what_is_lost(spark, checkpoint, tmp_path):
    source = Topic(tmp_path / "root", "in", ROWS)
    written = []

    def forget_batch_1(rows, batch):
        written.extend(rows.collect() if batch != 1 else ())

    stream = source.stream(spark, maxOffsetsPerTrigger=2)
    writer = stream.writeStream.option("checkpointLocation", checkpoint)
    with crash_after(checkpoint, batch=2, at="commits"):
        writer.trigger(availableNow=True).foreachBatch(forget_batch_1).start()

    with pytest.raises(AssertionError, match=r"source row 3 \(in-0 offset 3, batch 1\)"):
        assert_exactly_once(source, written, key="value", checkpoint=checkpoint)


def test_a_function_that_appends_is_caught(spark, checkpoint, start, tmp_path):
    table = str(tmp_path / "table")

    def sink(writer):
        return writer.foreachBatch(lambda rows, _: rows.write.mode("append").parquet(table))

    with crash_after(checkpoint, batch=1, at="applied"):
        start(sink).awaitTermination()
    start(sink).awaitTermination()

    with pytest.raises(AssertionError) as caught:
        assert_exactly_once(ROWS, spark.read.parquet(table), key="value")
    lines = str(caught.value).splitlines()
    assert lines[0] == "not exactly once by value: 6 rows in the source, 8 in the sink"
    assert [line.split("    ")[0] for line in lines[1:]] == [
        "  twice  value='row 2'",
        "  twice  value='row 3'",
    ]


def test_a_function_that_trusts_the_number_alone_is_caught(files, checkpoint, start):
    """It skips batches it has seen; after a backup is restored, Spark plans another batch 3."""
    seen = {}

    def sink(writer):
        return writer.foreachBatch(lambda rows, batch: seen.setdefault(batch, rows.collect()))

    start(sink).awaitTermination()
    backup = checkpoint.save()
    files(3, ["row 6"])
    start(sink).awaitTermination()
    checkpoint.restore(backup)
    files(2.5, ["row 7"])  # comes before the other one
    start(sink).awaitTermination()

    written = [row for rows in seen.values() for row in rows]
    with pytest.raises(AssertionError, match=r"lost   value='row 7'"):
        assert_no_loss([*ROWS, "row 6", "row 7"], written, key="value")


def test_the_last_batch_runs_again(checkpoint, start):
    batches = []

    def sink(writer):
        return writer.foreachBatch(lambda rows, batch: batches.append(batch))

    start(sink).awaitTermination()
    assert checkpoint.replay_last_batch() == 2
    start(sink).awaitTermination()

    assert batches == [0, 1, 2, 2]


def test_the_same_point_may_be_met_twice(checkpoint, start):
    batches = []

    def sink(writer):
        return writer.foreachBatch(lambda rows, batch: batches.append(batch))

    for _ in range(2):
        with crash_after(checkpoint, batch=0, at="applied"):
            start(sink).awaitTermination()
        assert (checkpoint.planned(), checkpoint.committed()) == ([0], [])

    assert batches == [0, 0]


def test_a_job_need_not_wait_for_its_query(checkpoint, start):
    with crash_after(checkpoint, batch=1, at="applied"):
        query = start(lambda writer: writer.format("noop"))

    assert not query.isActive
    assert checkpoint.committed() == [0]


def test_other_errors_go_through_and_leave_no_file_of_ours(checkpoint, start):
    def fail(rows, batch):
        raise ValueError("of the job itself")

    with (
        pytest.raises(Exception, match="of the job itself"),
        crash_after(checkpoint, batch=0, at="applied"),
    ):
        start(lambda writer: writer.foreachBatch(fail)).awaitTermination()

    assert checkpoint.committed() == []


def test_a_batch_that_never_comes_is_told(checkpoint, start):
    with (
        pytest.raises(AssertionError, match=r"batch 7 did not reach 'applied'.*batch 2 last"),
        crash_after(checkpoint, batch=7, at="applied"),
    ):
        start(lambda writer: writer.format("noop")).awaitTermination()

    assert checkpoint.committed() == [0, 1, 2]


def test_a_batch_that_is_done_is_refused(checkpoint, start):
    start(lambda writer: writer.format("noop")).awaitTermination()

    with (
        pytest.raises(InvalidRequestError, match="batch 2 is already finished"),
        crash_after(checkpoint, batch=2),
    ):
        pass


def test_a_query_with_another_checkpoint_is_refused(tmp_path, start):
    with (
        pytest.raises(InvalidRequestError, match="another checkpoint"),
        crash_after(tmp_path / "other", batch=0),
    ):
        start(lambda writer: writer.format("noop"))


def test_a_block_without_a_query_is_told(checkpoint):
    with (
        pytest.raises(AssertionError, match="no streaming query was started"),
        crash_after(checkpoint, batch=0),
    ):
        pass


def test_a_point_that_is_none_is_refused(checkpoint):
    with (
        pytest.raises(InvalidRequestError, match="no such crash point"),
        crash_after(checkpoint, batch=0, at="nowhere"),
    ):
        pass
