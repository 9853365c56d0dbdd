"""`writeStream.format("streamlog")`: each row once, whatever is killed, lost or taken back."""

import pytest

from tests.support.cli import ok, streamlog
from tests.support.log_root import BOTH_KINDS
from tests.support.sink import (
    Checkpoint,
    run_available,
    sorted_values,
    stream_of,
    values_of,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "cp")


@pytest.fixture
def copying(spark, root, checkpoint):
    """A query that copies topic `in` (one partition) to topic `out` (two), two rows a batch."""
    root.create("in").create("out", partitions=2)

    def copy(at=checkpoint, **options):
        stream = stream_of(spark, root.path, "in", maxOffsetsPerTrigger="2")
        writer = stream.select("key", "value", "timestamp").writeStream.format("streamlog")
        given = {"path": root.path, "topic": "out", "checkpointLocation": str(at)}
        return run_available(writer.options(**given | options))

    return copy


def numbered(first, last):
    return [f"row {number:03d}" for number in range(first, last)]


@BOTH_KINDS
def test_each_row_arrives_once_over_restarts(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 5))
    assert copying() is None
    root.append("in", 0, numbered(5, 8))
    assert copying() is None

    assert sorted_values(root.path, "out") == numbered(0, 8)
    assert checkpoint.batches() == [0, 1, 2, 3, 4]


@BOTH_KINDS
def test_the_last_batch_again_is_a_replay(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 6))
    copying()
    before = values_of(root.path, "out")

    checkpoint.forget_commit(2)
    assert copying() is None

    assert values_of(root.path, "out") == before
    assert checkpoint.batches() == [0, 1, 2]
    root.append("in", 0, numbered(6, 7))
    assert copying() is None
    assert sorted_values(root.path, "out") == numbered(0, 7)


@BOTH_KINDS
def test_a_checkpoint_taken_back_to_the_same_ranges_is_a_replay(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 6))
    copying()

    checkpoint.forget_batch(2)
    checkpoint.forget_batch(1)
    assert copying() is None

    assert sorted_values(root.path, "out") == numbered(0, 6)


@BOTH_KINDS
def test_a_batch_lost_by_spark_and_planned_larger_stops_loudly(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 5))
    copying()
    checkpoint.forget_batch(2)
    root.append("in", 0, numbered(5, 6))

    text = copying()

    assert "CommitMismatchError" in text
    assert '{"0": 5}' in text
    assert '{"0": 6}' in text
    assert sorted_values(root.path, "out") == numbered(0, 5)


@BOTH_KINDS
@pytest.mark.parametrize(
    ("rule", "expected"),
    [("skip", numbered(0, 5)), ("append", [*numbered(0, 4), "row 004", "row 004", "row 005"])],
)
def test_the_user_may_say_what_to_do_about_another_batch(root, copying, checkpoint, rule, expected):
    root.append("in", 0, numbered(0, 5))
    copying()
    checkpoint.forget_batch(2)
    root.append("in", 0, numbered(5, 6))

    assert copying(onReplayMismatch=rule) is None

    assert sorted_values(root.path, "out") == sorted(expected)


def test_an_old_copy_of_the_checkpoint_goes_on_where_its_ranges_are_the_same(
    root, copying, checkpoint, tmp_path
):
    root.append("in", 0, numbered(0, 2))
    copying()
    old = checkpoint.save(tmp_path / "old")
    root.append("in", 0, numbered(2, 4))
    copying()

    assert copying(old) is None

    assert sorted_values(root.path, "out") == numbered(0, 4)


def test_a_new_checkpoint_is_a_new_query(root, copying, tmp_path):
    root.append("in", 0, numbered(0, 2))
    copying()

    assert copying(Checkpoint(tmp_path / "other")) is None

    assert sorted_values(root.path, "out") == sorted(numbered(0, 2) * 2)


@BOTH_KINDS
def test_two_queries_of_one_txn_app_id_write_to_two_topics(root, copying, tmp_path):
    root.create("copy").append("in", 0, numbered(0, 3))

    assert copying(txnAppId="etl") is None
    assert copying(Checkpoint(tmp_path / "other"), topic="copy", txnAppId="etl") is None

    assert sorted_values(root.path, "out") == numbered(0, 3)
    assert sorted_values(root.path, "copy") == numbered(0, 3)


def test_a_checkpoint_without_its_batches_stops_rather_than_skips(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 4))
    copying()
    root.append("in", 0, numbered(4, 6))
    copying()
    for batch in (2, 1, 0):
        checkpoint.forget_batch(batch)
    (checkpoint.path / "offsets" / "0").unlink(missing_ok=True)

    assert copying() is None  # the same ranges from the start: every batch is a replay

    assert sorted_values(root.path, "out") == numbered(0, 6)


@BOTH_KINDS
def test_a_lost_batch_in_between_stops_loudly(root, copying, checkpoint, tmp_path):
    """Another run of the same query id went ahead: its batch 2 is not known to the log."""
    root.append("in", 0, numbered(0, 2))
    copying()
    ahead = checkpoint.save(tmp_path / "ahead")
    for batch in (1, 2):
        for kind in ("offsets", "commits"):
            text = (ahead.path / kind / "0").read_text()
            (ahead.path / kind / str(batch)).write_text(text)
    root.append("in", 0, numbered(2, 3))

    text = copying(ahead)

    assert "CommitMismatchError" in text
    assert sorted_values(root.path, "out") == numbered(0, 2)


def test_a_query_goes_on_from_the_offset_it_was_reset_to(root, copying, checkpoint):
    root.append("in", 0, numbered(0, 6))
    copying()
    (row,) = reset(root, checkpoint, '{"in":{"0":3}}')
    assert (row["currentOffset"], row["newOffset"]) == (6, 3)
    assert copying() is None
    assert sorted_values(root.path, "out") == sorted(numbered(0, 6) + numbered(3, 6))
    assert checkpoint.batches() == [0, 1, 2, 3, 4]

    root.append("in", 0, numbered(6, 9))
    reset(root, checkpoint, "latest")
    root.append("in", 0, numbered(9, 10))
    assert copying() is None
    assert sorted_values(root.path, "out") == sorted(
        numbered(0, 6) + numbered(3, 6) + numbered(9, 10)
    )
    checkpoint.forget_commit(5)  # the batch after a reset is repeated like any other
    before = values_of(root.path, "out")
    assert copying() is None
    assert values_of(root.path, "out") == before


def test_a_reset_of_a_running_query_is_refused_and_forced_has_no_effect(spark, root, checkpoint):
    root.create("in").create("out")
    root.append("in", 0, numbered(0, 4))
    stream = stream_of(spark, root.path, "in").select("value")
    given = {"path": root.path, "topic": "out", "checkpointLocation": str(checkpoint)}
    query = stream.writeStream.format("streamlog").options(**given).start()
    try:
        query.processAllAvailable()
        arguments = ("readers", "reset", checkpoint.path, "--to", "earliest")
        refused = streamlog("--path", root.path, *arguments)
        assert (refused.code, "its checkpoint changed" in refused.error) == (2, True)
        reset(root, checkpoint, "earliest")
        root.append("in", 0, numbered(4, 6))
        for _ in range(2):  # the first may end with a trigger that had looked before the append
            query.processAllAvailable()
    finally:
        query.stop()
    assert sorted_values(root.path, "out") == numbered(0, 6)


def reset(root, checkpoint, to):
    arguments = ("readers", "reset", checkpoint.path, "--to", to, "--stopped")
    return ok("--path", root.path, *arguments).rows
