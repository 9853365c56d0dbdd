"""What counts as a replay of a real query: by what its checkpoint names, by its rows, by its id."""

import shutil

import pytest

from streamlog.spark.foreach_batch import append_batch
from tests.support.log_root import BOTH_KINDS
from tests.support.sink import Checkpoint, run_available, sorted_values

pytestmark = pytest.mark.spark


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "cp")


@pytest.fixture
def files(tmp_path):
    """A directory of text files, and how to add to it."""
    directory = tmp_path / "files"
    directory.mkdir()

    def add(*names):
        for name in names:
            (directory / name).write_text(f"{name}\n")

    add.path = str(directory)
    return add


@pytest.fixture(params=["writeStream", "foreachBatch"])
def copying(request, spark, root, checkpoint, files):
    """A query that copies text files to topic `out`, by both ways into the log."""
    root.create("out")

    def copy(at=checkpoint, files_per_trigger=1, columns=("value",), txn_app_id=None):
        stream = spark.readStream.option("maxFilesPerTrigger", files_per_trigger).text(files.path)
        writer = stream.selectExpr(*columns).writeStream.option("checkpointLocation", str(at))
        if request.param == "foreachBatch":
            append = append_batch(root.path, topic="out", txn_app_id=txn_app_id)
            return run_available(writer.foreachBatch(append))
        options = {"path": root.path, "topic": "out"}
        if txn_app_id is not None:
            options["txnAppId"] = txn_app_id
        return run_available(writer.format("streamlog").options(**options))

    return copy


@pytest.fixture
def session_location(spark, tmp_path):
    """The session's location for the checkpoints of queries that have none of their own."""
    name = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(name, str(tmp_path / "checkpoints"))
    yield tmp_path / "checkpoints"
    spark.conf.unset(name)


@pytest.mark.parametrize("query_name", ["copy", None])
def test_the_sessions_checkpoint_location_is_known(
    spark, root, files, session_location, query_name
):
    """With random rows, a crash before Spark noted the batch is a replay, as with the option."""
    root.create("out")
    files("a")

    def copy(location=None):
        stream = spark.readStream.text(files.path).selectExpr(*RANDOM)
        writer = stream.writeStream.format("streamlog").options(path=root.path, topic="out")
        if location is not None:
            writer = writer.option("checkpointLocation", str(location))
        return run_available(writer if query_name is None else writer.queryName(query_name))

    assert copy() is None
    (made,) = session_location.iterdir()
    checkpoint = Checkpoint(made)
    assert (made / "streamlog").is_dir(), "the sink found it"
    checkpoint.forget_commit(0)
    assert copy(None if query_name else made) is None
    assert len(sorted_values(root.path, "out")) == 1


def test_a_root_put_back_from_an_older_copy_stops_the_query(root, copying, files, tmp_path):
    files("a")
    empty = shutil.copytree(root.path, tmp_path / "empty")
    assert copying() is None
    first = shutil.copytree(root.path, tmp_path / "first")
    files("b")
    assert copying() is None
    files("c")

    for copy, expected in ((empty, []), (first, ["a"])):
        shutil.rmtree(root.path)
        shutil.copytree(copy, root.path)
        assert "missing from this log" in copying()
        assert sorted_values(root.path, "out") == expected


RANDOM = ("concat(value, ' ', uuid()) value",)


@BOTH_KINDS
def test_a_file_source_is_known_by_the_files_it_read(root, copying, checkpoint, files, tmp_path):
    """Its offset is a running number, which a checkpoint put back gives to other files."""
    files("a")
    assert copying() is None
    old = checkpoint.save(tmp_path / "old")
    files("b")
    assert copying(columns=RANDOM) is None
    checkpoint.forget_commit(1)
    assert copying(columns=RANDOM) is None, "the same files: a replay, whatever the rows are"
    files("c", "d")

    text = copying(old, files_per_trigger=3)

    assert "CommitMismatchError" in text
    assert "1, sha256" in text and "3, sha256" in text
    assert len(sorted_values(root.path, "out")) == 2


@BOTH_KINDS
def test_a_new_checkpoint_under_an_old_txn_app_id_stops(root, copying, files, tmp_path):
    files("a")
    assert copying(txn_app_id="etl") is None
    files("b")

    text = copying(Checkpoint(tmp_path / "new"), files_per_trigger=9, txn_app_id="etl")

    assert "is already committed by another query" in text
    assert "another txnAppId" in text
    assert sorted_values(root.path, "out") == ["a"]
