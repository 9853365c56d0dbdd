"""`Checkpoint` on the files that Spark writes, which these tests create themselves."""

import pytest

from streamlog.errors import CorruptCheckpointError, InvalidRequestError, UnavailableError
from streamlog.testing import Checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "cp"
    for kind, batches in (("offsets", (0, 1, 10)), ("commits", (0, 1))):
        (path / kind).mkdir(parents=True)
        for batch in batches:
            (path / kind / str(batch)).write_text(f'v1\n{{}}\n{{"in": {{"0": {batch}}}}}\n-')
            (path / kind / f".{batch}.crc").write_bytes(b"crc")
    (path / "metadata").write_text('{"id":"some-query"}')
    (path / "state" / "0").mkdir(parents=True)
    return Checkpoint(path)


def test_batches_are_listed_in_the_order_of_numbers(checkpoint):
    assert checkpoint.planned() == [0, 1, 10]
    assert checkpoint.committed() == [0, 1]
    assert checkpoint.next_batch() == 2
    assert checkpoint.query_id() == "some-query"


def test_a_missing_checkpoint_is_empty(tmp_path):
    checkpoint = Checkpoint(tmp_path / "cp")

    assert checkpoint.planned() == checkpoint.committed() == []
    assert checkpoint.next_batch() == 0
    assert checkpoint.query_id() is None
    with pytest.raises(InvalidRequestError, match="no finished batch"):
        checkpoint.replay_last_batch()


def test_offsets_are_returned_for_each_source(checkpoint):
    assert checkpoint.offsets(1) == [{"in": {"0": 1}}, "-"]
    with pytest.raises(InvalidRequestError, match="batch 7 was not planned"):
        checkpoint.offsets(7)


def test_torn_offsets_are_reported(checkpoint, tmp_path):
    (tmp_path / "cp" / "offsets" / "1").write_text("v1\n")

    with pytest.raises(CorruptCheckpointError):
        checkpoint.offsets(1)


def test_the_last_batch_is_removed_with_its_checksum(checkpoint, tmp_path):
    assert checkpoint.replay_last_batch() == 1

    assert sorted(path.name for path in (tmp_path / "cp" / "commits").iterdir()) == [".0.crc", "0"]
    assert checkpoint.planned() == [0, 1, 10]


def test_an_older_copy_is_restored(checkpoint, tmp_path):
    def content():
        files = (path for path in (tmp_path / "cp").rglob("*"))
        return {path: path.read_bytes() if path.is_file() else None for path in files}

    before = content()
    saved = checkpoint.save()
    (tmp_path / "cp" / "commits" / "2").write_text("v1\n{}")
    checkpoint.replay_last_batch()
    checkpoint.replay_last_batch()

    checkpoint.restore(saved)

    assert content() == before
    assert str(saved) != str(checkpoint.save())


def test_an_obstacle_is_removed_and_sparks_file_stays(checkpoint):
    checkpoint.obstruct("commits", 2)
    assert checkpoint.committed() == [0, 1, 2]
    checkpoint.clear("commits", 2)
    checkpoint.clear("commits", 2)

    with pytest.raises(UnavailableError, match="passed commits/1"):
        checkpoint.obstruct("commits", 1)
    checkpoint.clear("commits", 1)

    assert checkpoint.committed() == [0, 1]


def test_only_a_local_directory_is_accepted():
    assert str(Checkpoint("file:///a/b")) == "/a/b"
    with pytest.raises(InvalidRequestError, match="local disk"):
        Checkpoint("s3a://bucket/checkpoint")
