"""A query whose checkpoint lies on a file system of Hadoop's that nobody can sync from here."""

import secrets

import pytest

from tests.support.sink import Checkpoint, run_available, sorted_values, stream_of

pytestmark = pytest.mark.spark


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "cp").mkdir()
    return Checkpoint(tmp_path / "cp")


@pytest.fixture
def location(spark, checkpoint):
    """What Spark knows the checkpoint as; Hadoop caches file systems, so the name is new."""
    name = secrets.token_hex(4)
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set(f"fs.viewfs.mounttable.{name}.link./cp", checkpoint.path.as_uri())
    return f"viewfs://{name}/cp"


@pytest.fixture
def copying(spark, root, location):
    root.create("in").create("out", partitions=2)

    def copy(**options):
        stream = stream_of(spark, root.path, "in", maxOffsetsPerTrigger="2")
        writer = stream.select("key", "value", "timestamp").writeStream.format("streamlog")
        given = {"path": root.path, "topic": "out", "checkpointLocation": location}
        return run_available(writer.options(**given | options))

    return copy


def numbered(first, last):
    return [f"row {number:03d}" for number in range(first, last)]


def test_each_row_arrives_once_over_restarts_and_replays(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 5))
    assert copying() is None
    assert checkpoint.batches() == [0, 1, 2]
    checkpoint.forget_commit(2)
    root.append("in", 0, numbered(5, 8))
    assert copying() is None

    assert sorted_values(root.path, "out") == numbered(0, 8)


def test_a_batch_planned_anew_with_other_rows_is_told_by_its_rows(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 3))
    assert copying() is None
    checkpoint.forget_batch(1)
    root.append("in", 0, numbered(3, 4))
    stopped = copying()
    assert stopped is not None and "CommitMismatchError" in stopped
    assert sorted_values(root.path, "out") == numbered(0, 3)
