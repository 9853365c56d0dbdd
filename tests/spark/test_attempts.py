"""Duplicate and zombie attempts, and broken disks, under sinks in a real Spark."""

import os

import pytest

from streamlog.errors import InvalidRequestError
from streamlog.testing import (
    Checkpoint,
    Topic,
    assert_exactly_once,
    duplicate_attempt,
    failed_fsync,
    full_disk,
    slow_disk,
    zombie_attempt,
)

pytestmark = pytest.mark.spark

ROWS = ["row 0", "row 1", "row 2"]


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "cp")


@pytest.fixture
def stream(spark, tmp_path):
    """One row a batch, from files."""
    for number, row in enumerate(ROWS):
        path = tmp_path / "files" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(row)
        os.utime(path, (number, number))
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "files"))


@pytest.fixture
def run(stream, checkpoint):
    def run(sink):
        writer = stream.writeStream.option("checkpointLocation", checkpoint)
        sink(writer.trigger(availableNow=True)).start().awaitTermination()

    return run


@pytest.fixture
def topic(tmp_path):
    return Topic(tmp_path / "root", "out")


def to_topic(topic):
    return lambda writer: (
        writer.format("streamlog").option("path", topic.root).option("topic", topic.name)
    )


@pytest.mark.parametrize("attempt", [duplicate_attempt, zombie_attempt])
def test_a_streamlog_sink_does_not_see_the_other_attempt(run, topic, checkpoint, attempt):
    with attempt(checkpoint, batch=1):
        run(to_topic(topic))

    assert_exactly_once(ROWS, topic, key="value")
    assert not [name for name in os.listdir(checkpoint) if name.startswith(".attempted")]


def test_a_function_is_called_twice_in_a_row(run, checkpoint):
    calls = []

    with duplicate_attempt(checkpoint, batch=1):
        run(lambda writer: writer.foreachBatch(lambda rows, batch: calls.append(batch)))

    assert calls == [0, 1, 1, 2]


def test_a_zombie_comes_when_the_next_batch_begins(run, checkpoint):
    table = {}

    with zombie_attempt(checkpoint, batch=1):
        run(lambda writer: writer.foreachBatch(lambda rows, batch: _keep_latest(table, rows)))

    assert table == {"latest": "row 2"}
    with pytest.raises(AssertionError, match="lost   value='row 0'"):
        assert_exactly_once(ROWS, list(table.values()), key="value")


def _keep_latest(table, rows):
    table["latest"] = rows.collect()[0].value


def test_an_attempt_that_never_came_is_told(run, checkpoint):
    with (
        pytest.raises(AssertionError, match="no sink that can be repeated reached batch 1"),
        duplicate_attempt(checkpoint, batch=1),
    ):
        run(lambda writer: writer.format("noop"))


@pytest.mark.parametrize(
    ("disk", "text"), [(full_disk, "no space left"), (failed_fsync, "the device reported an error")]
)
def test_a_broken_disk_stops_the_query_and_costs_no_row(run, topic, disk, text):
    with pytest.raises(Exception, match=text), disk():
        run(to_topic(topic))
    run(to_topic(topic))

    assert_exactly_once(ROWS, topic, key="value")


def test_a_slow_disk_only_takes_longer(run, topic):
    with slow_disk(delay_ms=20):
        run(to_topic(topic))

    assert_exactly_once(ROWS, topic, key="value")


def test_two_changes_of_the_same_sinks_are_refused(checkpoint):
    with (
        pytest.raises(InvalidRequestError, match="cannot be nested"),
        slow_disk(),
        duplicate_attempt(checkpoint, batch=0),
    ):
        pass
