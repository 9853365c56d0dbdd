"""The life of a topic under running queries: maintenance, more partitions, another topic."""

import time
from pathlib import Path

import pytest

import streamlog.spark
from streamlog.fs.log_root import LogRoot
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.maintenance.runner import Maintenance
from streamlog.root.deeds import read_deeds
from streamlog.root.readers import list_readers
from streamlog.topic import TopicPartition
from tests.support.log_root import ObjectRoot
from tests.support.object_root import root_at
from tests.support.sink import run_available, sorted_values, stream_of
from tests.support.spark_session import Collected

pytestmark = pytest.mark.spark

SMALL = {"internal.segment.bytes": 300, "retention.bytes": 300, "retention.ms": -1}
PATIENCE_S = 60


@pytest.fixture
def eager(root):
    """A root whose maintenance is always due, with topic `in`, and `out` with tiny segments."""
    server = Path(root.path, ".streamlog", "server.properties")
    with server.open("a") as file:
        file.write("log.retention.check.interval.ms=1\n")
    root.create("in", **{"retention.ms": -1})  # its records are years old
    root.manager.create_topic("out", 1, SMALL)
    return root


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def start_of(root, topic):
    return root.manager.describe(topic).partitions[0].log_start_offset


def copying(spark, root, checkpoint, **options):
    stream = stream_of(spark, root.path, "in", maxOffsetsPerTrigger="10").select("key", "value")
    given = {"path": root.path, "topic": "out", "checkpointLocation": str(checkpoint)}
    return stream.writeStream.format("streamlog").options(**given | options)


def numbered(first, last):
    return [f"row {number:03d}" for number in range(first, last)]


# ---- between triggers -----------------------------------------------------------------------
def test_a_sink_with_maintenance_keeps_its_topic_in_bounds(spark, eager, tmp_path):
    eager.append("in", 0, numbered(0, 40))
    assert run_available(copying(spark, eager, tmp_path / "cp", maintenance="auto")) is None
    wait_until(lambda: read_deeds(LogRoot.at(eager.path), topic="out"))
    kept = sorted_values(eager.path, "out")
    assert kept == numbered(40 - len(kept), 40)
    assert 0 < start_of(eager, "out") < 40


def test_a_sink_without_maintenance_deletes_nothing(spark, eager, tmp_path):
    eager.append("in", 0, numbered(0, 40))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    assert sorted_values(eager.path, "out") == numbered(0, 40)


def test_a_listener_maintains_a_root_until_it_is_stopped(spark, eager, tmp_path):
    eager.append("in", 0, numbered(0, 40))
    with streamlog.spark.maintain(spark, eager.path) as maintained:
        assert run_available(copying(spark, eager, tmp_path / "cp")) is None
        wait_until(lambda: maintained.reports)
        told = [deed for report in maintained.reports for deed in report.deeds]
        assert {(deed.topic, deed.reason) for deed in told} == {("out", "retention.bytes")}
    wait_until(lambda: start_of(eager, "out") > 0)
    maintained.stop()
    before = len(maintained.reports)
    eager.append("in", 0, numbered(40, 60))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    assert len(maintained.reports) == before


def test_maintenance_that_cannot_work_does_not_stop_the_query(spark, eager, tmp_path):
    Path(eager.path, ".streamlog", "readers", "broken.json").write_text("not JSON")
    eager.append("in", 0, numbered(0, 40))
    with streamlog.spark.maintain(spark, eager.path):
        writer = copying(spark, eager, tmp_path / "cp", maintenance="auto")
        assert run_available(writer) is None
    assert sorted_values(eager.path, "out") == numbered(0, 40)


# ---- readers --------------------------------------------------------------------------------
def test_what_a_query_with_a_group_has_not_finished_is_kept(spark, eager, tmp_path):
    for first in range(0, 40, 5):
        eager.append("out", 0, numbered(first, first + 5))
    read = Collected()

    def run(**options):
        stream = stream_of(
            spark, eager.path, "out", **{"kafka.group.id": "billing", **options}
        ).writeStream.foreachBatch(read.add)
        return run_available(stream.option("checkpointLocation", str(tmp_path / "cp")))

    def fail_at_five(batch_id):
        if batch_id == 3:
            raise RuntimeError("stop here")

    read.before = fail_at_five
    assert "stop here" in (run(maxOffsetsPerTrigger="5") or "")
    (reader,) = list_readers(LogRoot.at(eager.path))
    (offset,) = reader.position.offsets.values()
    assert 0 < offset < 20
    with Maintenance(eager.path) as maintenance:
        maintenance.run()
    assert 0 < start_of(eager, "out") <= offset
    read.before = lambda batch_id: None
    assert run() is None
    assert sorted(row.value.decode() for row in read.rows) == numbered(0, 40)


def test_maintenance_keeps_what_comes_after_the_last_run_of_a_query(spark, eager, tmp_path):
    def read():
        collected = Collected()
        stream = stream_of(spark, eager.path, "out", **{"kafka.group.id": "billing"})
        writer = stream.writeStream.foreachBatch(collected.add)
        assert run_available(writer.option("checkpointLocation", str(tmp_path / "cp"))) is None
        return sorted(row.value.decode() for row in collected.rows)

    for first in range(0, 20, 5):
        eager.append("out", 0, numbered(first, first + 5))
    assert read() == numbered(0, 20)
    for first in range(20, 60, 5):
        eager.append("out", 0, numbered(first, first + 5))
    with Maintenance(eager.path) as maintenance:
        maintenance.run()
    assert 0 < start_of(eager, "out") <= 20
    assert read() == numbered(20, 60)


# ---- in an object store ---------------------------------------------------------------------
@pytest.fixture
def eager_store(tmp_path):
    """The same as `eager` in an object store."""
    settings = {"log.retention.check.interval.ms": "1"}
    opened = ObjectRoot(f"file://{tmp_path}/bucket", **settings)
    opened.create("in", **{"retention.ms": -1})
    opened.manager.create_topic("out", 1, SMALL)
    return opened


def start_in(store):
    return root_at(store.path).state.partitions[TopicPartition("out", 0)].log_start_offset


def test_an_object_store_is_maintained_between_triggers(spark, eager_store, tmp_path):
    """By the sink, and by a listener; a listener's reports are those of the root."""
    eager_store.append("in", 0, numbered(0, 40))
    writer = copying(spark, eager_store, tmp_path / "cp", maintenance="auto")
    assert run_available(writer) is None
    wait_until(lambda: start_in(eager_store) > 0)
    before = start_in(eager_store)
    eager_store.append("in", 0, numbered(40, 80))
    with streamlog.spark.maintain(spark, eager_store.path) as maintained:
        assert run_available(copying(spark, eager_store, tmp_path / "cp")) is None
        wait_until(lambda: start_in(eager_store) > before)
        wait_until(lambda: maintained.reports)
    told = {deed.action for report in maintained.reports for deed in report.deeds}
    assert "build" in told
    assert not [error for report in maintained.reports for error in report.errors]
    kept = sorted_values(eager_store.path, "out")
    assert kept == numbered(80 - len(kept), 80)


def test_an_object_store_keeps_what_a_group_has_not_finished(spark, eager_store, tmp_path):
    def read():
        collected = Collected()
        stream = stream_of(spark, eager_store.path, "out", **{"kafka.group.id": "billing"})
        writer = stream.writeStream.foreachBatch(collected.add)
        assert run_available(writer.option("checkpointLocation", str(tmp_path / "cp"))) is None
        return sorted(row.value.decode() for row in collected.rows)

    for first in range(0, 20, 5):
        eager_store.append("out", 0, numbered(first, first + 5))
    assert read() == numbered(0, 20)
    for first in range(20, 60, 5):
        eager_store.append("out", 0, numbered(first, first + 5))
    with BucketMaintenance(root_at(eager_store.path)) as maintenance:
        maintenance.run()
        maintenance.run()
    assert 0 < start_in(eager_store) <= 20
    assert read() == numbered(20, 60)


# ---- another shape --------------------------------------------------------------------------
def test_a_query_goes_on_with_partitions_that_are_added(spark, eager, tmp_path):
    eager.append("in", 0, numbered(0, 10))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    for topic in ("in", "out"):
        eager.manager.alter_topic(topic, partitions=3)
    eager.append("in", 2, numbered(10, 30))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    assert sorted_values(eager.path, "out") == numbered(0, 30)


def test_a_query_stops_where_its_source_was_deleted_and_made_again(spark, eager, tmp_path):
    eager.append("in", 0, numbered(0, 10))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    eager.manager.delete_topic("in")
    eager.create("in")
    eager.append("in", 0, numbered(50, 70))
    failure = run_available(copying(spark, eager, tmp_path / "cp"))
    assert failure is not None
    assert "TOPIC_RECREATED" in failure
    assert sorted_values(eager.path, "out") == numbered(0, 10)


def test_a_sink_whose_topic_was_made_again_goes_on_in_the_new_one(spark, eager, tmp_path):
    eager.append("in", 0, numbered(0, 10))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    eager.manager.delete_topic("out")
    eager.manager.create_topic("out", 1, SMALL)
    eager.append("in", 0, numbered(10, 20))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    assert sorted_values(eager.path, "out") == numbered(10, 20)


def test_deleted_records_are_a_loss_to_a_query_that_had_not_read_them(spark, eager, tmp_path):
    eager.append("in", 0, numbered(0, 10))
    assert run_available(copying(spark, eager, tmp_path / "cp")) is None
    eager.append("in", 0, numbered(10, 20))
    eager.manager.delete_records("in", 0, 15)
    failure = run_available(copying(spark, eager, tmp_path / "cp"))
    assert failure is not None
    assert "START_OFFSET_RESET" in failure
    lenient = stream_of(
        spark, eager.path, "in", failOnDataLoss="false", maxOffsetsPerTrigger="10"
    ).select("key", "value")
    given = {"path": eager.path, "topic": "out", "checkpointLocation": str(tmp_path / "cp")}
    assert run_available(lenient.writeStream.format("streamlog").options(**given)) is None
    assert sorted_values(eager.path, "out") == [*numbered(0, 10), *numbered(15, 20)]
