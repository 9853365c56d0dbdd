"""The driver's part of the sink, without Spark: a root that stays open from commit to commit."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.stage import stage_rows
from streamlog.clock import SystemClock
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule
from streamlog.errors import (
    CommitMismatchError,
    CorruptCheckpointError,
    InconsistentTopicIdError,
    UnknownTopicError,
)
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import QueryCheckpoint
from streamlog.root.manager import LogManager
from streamlog.spark.sink_commit import commit_staged, discard_staged, plan_topics
from streamlog.spark.sink_options import SinkOptions
from streamlog.spark.tasks import stage_plan
from streamlog.spark.writer import StagedRows, StreamWriter
from tests.support.child import run_in_child
from tests.support.log_root import BOTH_KINDS
from tests.support.sink import values_of

SCHEMA = SinkSchema(value=0, key=None, headers=None, topic=None, partition=None, timestamp=None)


class Sink:
    """Stages and commits values for one topic."""

    def __init__(self, root, app="app", topic="orders"):
        self.options = SinkOptions(roots=(root,), topic=topic)
        self.app = app
        self.planned = []

    def stage(self, version, *values, task=0):
        topics = plan_topics(self.options)
        self.planned = [topics] if topics is not None else []
        rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
        return stage_rows(
            LocalFileSystem(),
            SystemClock(),
            stage_plan(self.options, SCHEMA, has_checksum=True, topics=topics),
            [rows],
            app=self.app,
            version=version,
            task=task,
        )

    def commit(self, version, *staged, checkpoint=None):
        return commit_staged(
            self.options,
            CommitIdentity(self.app, version),
            staged,
            rule=ReplayRule.NEXT,
            checkpoint=checkpoint,
            planned=self.planned,
        )

    def write(self, version, *values):
        return self.commit(version, self.stage(version, *values))


@pytest.fixture
def sink(root):
    root.create("orders")
    return Sink(root.path)


def staged_names(root):
    return {
        path.name for path in Path(root.path, ".streamlog/staging").rglob("*") if path.is_file()
    }


@BOTH_KINDS
def test_tasks_stand_in_their_order_whatever_order_they_report_in(root, sink):
    sink.commit(
        0, sink.stage(0, b"c", task=2), sink.stage(0, b"a", task=0), sink.stage(0, b"b", task=1)
    )

    assert values_of(root.path, "orders") == [b"a", b"b", b"c"]


@BOTH_KINDS
def test_one_version_of_one_writer_goes_to_two_topics(root):
    """Delta's idempotent pattern: one DataFrame, two targets, one `txnAppId`."""
    for topic in ("a", "b"):
        root.create(topic)
        options = SinkOptions(roots=(root.path,), topic=topic, app_id="etl")
        sink = Sink(root.path, app=options.identity(None, 5).app, topic=topic)
        for _ in range(2):
            sink.write(5, b"row")

    assert [values_of(root.path, topic) for topic in ("a", "b")] == [[b"row"]] * 2


@BOTH_KINDS
def test_what_others_appended_between_two_commits_is_not_written_over(root, sink):
    sink.write(0, b"ours 0")
    root.append("orders", 0, ["theirs"])
    sink.write(1, b"ours 1")

    assert values_of(root.path, "orders") == [b"ours 0", b"theirs", b"ours 1"]


@BOTH_KINDS
def test_a_batch_without_rows_is_a_batch(root, sink):
    sink.commit(0, sink.stage(0), sink.stage(0, task=1))
    sink.write(1, b"a")

    assert values_of(root.path, "orders") == [b"a"]


def test_a_topic_made_anew_between_two_commits_gets_the_second(root, sink):
    sink.write(0, b"old")
    root.manager.delete_topic("orders")
    root.create("orders")

    sink.write(1, b"new")

    assert values_of(root.path, "orders") == [b"new"]


@BOTH_KINDS
def test_a_topic_made_anew_after_staging_is_not_the_one_meant(root, sink):
    sink.write(0, b"old")
    staged = sink.stage(1, b"meant for the old one")
    root.manager.delete_topic("orders")
    root.create("orders")

    with pytest.raises(InconsistentTopicIdError):
        sink.commit(1, staged)

    assert values_of(root.path, "orders") == []


def test_a_topic_deleted_after_staging_is_refused_and_nothing_is_in_the_way_later(root, sink):
    sink.write(0, b"old")
    staged = sink.stage(1, b"a")
    root.manager.delete_topic("orders")

    with pytest.raises(UnknownTopicError):
        sink.commit(1, staged)

    root.create("orders")
    sink.write(1, b"b")
    assert values_of(root.path, "orders") == [b"b"]


@BOTH_KINDS
def test_a_mismatch_leaves_the_root_fit_for_the_next_commit(root, sink):
    sink.write(0, b"a")

    with pytest.raises(CommitMismatchError):
        sink.write(0, b"b")
    sink.write(1, b"c")

    assert values_of(root.path, "orders") == [b"a", b"c"]


@BOTH_KINDS
def test_threads_commit_to_one_root_one_after_the_other(root):
    root.create("orders")

    def write(name):
        sink = Sink(root.path, app=name)
        for version in range(10):
            sink.write(version, b"%s %d" % (name.encode(), version))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))

    values = values_of(root.path, "orders")
    for name in b"a", b"b", b"c", b"d":
        own = [value for value in values if value.startswith(name)]
        assert own == [b"%s %d" % (name, version) for version in range(10)]


def test_a_forked_child_opens_the_root_for_itself(root, sink):
    sink.write(0, b"parent")

    answer = run_in_child(lambda: sink.write(1, b"child").rows)

    assert answer == "1"
    sink.write(2, b"parent again")
    assert values_of(root.path, "orders") == [b"parent", b"child", b"parent again"]


# ---- the checkpoint ---------------------------------------------------------------------------
@pytest.fixture
def checkpoint(tmp_path):
    top = tmp_path / "cp"
    for name in ("offsets", "commits"):
        (top / name).mkdir(parents=True)
    (top / "metadata").write_text(json.dumps({"id": "query-1"}))
    (top / "offsets/0").write_text('v1\n{}\n{"in":{"0":1}}')
    found = QueryCheckpoint.find(LocalFileSystem(), str(top))
    assert found is not None
    return found


@BOTH_KINDS
def test_the_checkpoints_ranges_tell_a_replay_whatever_the_rows_are(root, sink, checkpoint):
    sink.commit(0, sink.stage(0, b"a"), checkpoint=checkpoint)

    again = sink.commit(0, sink.stage(0, b"another"), checkpoint=checkpoint)

    assert again.is_replay
    assert values_of(root.path, "orders") == [b"a"]


@BOTH_KINDS
def test_another_range_stops_and_names_both(root, sink, checkpoint):
    sink.commit(0, sink.stage(0, b"a"), checkpoint=checkpoint)
    Path(checkpoint.path, "offsets/0").write_text('v1\n{}\n{"in":{"0":2}}')

    with pytest.raises(CommitMismatchError) as caught:
        sink.commit(0, sink.stage(0, b"a"), checkpoint=checkpoint)

    assert '{"in":{"0":1}}' in str(caught.value)
    assert '{"in":{"0":2}}' in str(caught.value)


@BOTH_KINDS
def test_a_batch_of_another_query_stops_and_writes_nothing(root, sink, checkpoint):
    """The checkpoint was thrown away, the txnAppId kept: the source's first line is alike."""
    sink.commit(0, sink.stage(0, b"a", b"b"), checkpoint=checkpoint)
    Path(checkpoint.path, "metadata").write_text(json.dumps({"id": "query-2"}))

    for values in ([b"a", b"b"], [b"c", b"d", b"e", b"f"]):
        with pytest.raises(CommitMismatchError, match="by another query") as caught:
            sink.commit(0, sink.stage(0, *values), checkpoint=checkpoint)
        assert "query-1" in str(caught.value)
        assert "query-2" in str(caught.value)
    assert values_of(root.path, "orders") == [b"a", b"b"]


@BOTH_KINDS
def test_other_rows_from_a_line_that_names_nothing_stop(root, sink, checkpoint):
    Path(checkpoint.path, "offsets/0").write_text('v1\n{}\n{"logOffset":0}')
    sink.commit(0, sink.stage(0, b"a", b"b"), checkpoint=checkpoint)

    assert sink.commit(0, sink.stage(0, b"b", b"a"), checkpoint=checkpoint).is_replay
    for values in ([b"a", b"c"], [b"a"]):
        with pytest.raises(CommitMismatchError, match="already committed with other rows"):
            sink.commit(0, sink.stage(0, *values), checkpoint=checkpoint)
    assert values_of(root.path, "orders") == [b"a", b"b"]


@BOTH_KINDS
def test_a_batch_that_the_checkpoint_does_not_know_is_refused(root, sink, checkpoint):
    with pytest.raises(CorruptCheckpointError, match="does not contain batch 1"):
        sink.commit(1, sink.stage(1, b"a"), checkpoint=checkpoint)

    assert values_of(root.path, "orders") == []


@pytest.mark.parametrize("query_name", [None, "copy"])
def test_the_writer_finds_the_checkpoint_below_the_sessions_location(
    root, checkpoint, tmp_path, query_name
):
    """Rows that come out otherwise each time are a replay all the same: the line names them."""
    root.create("orders")
    made = Path(checkpoint.path).rename(Path(checkpoint.path).parent / "copy")
    other = tmp_path / "other"
    other.mkdir()
    (other / "metadata").write_text(json.dumps({"id": "query-2"}))
    options = SinkOptions(roots=(root.path,), topic="orders", query_name=query_name)
    writer = StreamWriter(options, StructType([StructField("value", BinaryType())]))
    for value in (b"a", b"b"):
        staged = Sink(root.path, app="query-1/orders").stage(0, value)
        writer.commit([None, StagedRows(staged, "query-1", str(tmp_path))], 0)

    assert values_of(root.path, "orders") == [b"a"]
    assert (made / "streamlog").is_dir()


def test_a_root_put_back_from_an_older_copy_stops_the_query(root, sink, checkpoint, tmp_path):
    copy = shutil.copytree(root.path, tmp_path / "copy")
    for version in (0, 1):
        Path(checkpoint.path, f"offsets/{version}").write_text(f"v1\n{{}}\n{version}")
        sink.commit(version, sink.stage(version, b"%d" % version), checkpoint=checkpoint)
    put_back = Sink(str(copy))
    Path(checkpoint.path, "offsets/2").write_text('v1\n{}\n{"in":{"0":2}}')
    staged = put_back.stage(2, b"2")

    with pytest.raises(CommitMismatchError, match="missing from this log"):
        put_back.commit(2, staged, checkpoint=checkpoint)

    assert values_of(copy, "orders") == []
    shutil.rmtree(Path(checkpoint.path, "streamlog"))
    put_back.commit(2, staged, checkpoint=checkpoint)
    assert values_of(copy, "orders") == [b"2"]


# ---- discarding -------------------------------------------------------------------------------
def test_discarding_removes_what_was_never_committed(root, sink):
    staged = sink.stage(0, b"a")
    assert staged_names(root) == {staged.name}

    discard_staged(sink.options, CommitIdentity("app", 0), [staged])

    assert staged_names(root) == set()


def test_discarding_after_a_commit_that_stands_removes_nothing(root, sink):
    """Spark aborts after a commit that raised, with all messages; it may have decided."""
    staged = sink.stage(0, b"a")
    sink.commit(0, staged)

    discard_staged(sink.options, CommitIdentity("app", 0), [staged])

    assert staged.name in staged_names(root)
    assert values_of(root.path, "orders") == [b"a"]


def test_discarding_never_raises(tmp_path, sink, caplog):
    staged = sink.stage(0, b"a")
    nowhere = SinkOptions(roots=(str(tmp_path / "nowhere"),))

    discard_staged(nowhere, CommitIdentity("app", 0), [staged])

    assert "remain until they expire" in caplog.text


def test_a_closed_manager_of_another_process_does_not_matter(root, sink):
    sink.write(0, b"a")
    with LogManager.open(root.path) as other:
        other.log("orders", 0).roll()
    sink.write(1, b"b")

    assert values_of(root.path, "orders") == [b"a", b"b"]
