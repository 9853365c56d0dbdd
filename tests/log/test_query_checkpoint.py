import json
from pathlib import Path

import pytest

from streamlog.errors import CorruptCheckpointError, LimitExceededError
from streamlog.fs.local import LocalFileSystem
from streamlog.log.commits.query_checkpoint import QueryCheckpoint, local_path

FS = LocalFileSystem()
QUERY_ID = "1cb11013-a49a-4f97-ab90-fee2ddb690a9"
SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1795235304899,"conf":{}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint as Spark 4.2 leaves it while batch 1 runs."""
    top = tmp_path / "check point"
    for name in ("offsets", "commits", "sources/0"):
        (top / name).mkdir(parents=True)
    (top / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    (top / "offsets/0").write_text(f'v1\n{SETTINGS}\n{{"orders":{{"0":10}}}}')
    (top / "offsets/1").write_text(f'v1\n{SETTINGS}\n{{"orders":{{"0":20}}}}\n-')
    (top / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return top


def found(top: Path) -> QueryCheckpoint:
    checkpoint = QueryCheckpoint.find(FS, str(top))
    assert checkpoint is not None
    return checkpoint


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b/", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("/a/50%20percent", "/a/50%20percent"),
        ("/a/b:c", "/a/b:c"),
        ("hdfs://name/a/b", None),
        ("s3a://bucket/a", None),
        ("file://host/a", None),
        ("file:a", None),
    ],
)
def test_only_local_locations_have_a_path(location: str, path: str | None) -> None:
    assert local_path(location) == path


def test_a_relative_location_is_taken_from_the_working_directory(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)

    relative = QueryCheckpoint.find(FS, "check point")

    assert relative is not None
    assert relative.path == str(checkpoint)


@pytest.mark.parametrize("location", [None, "", "/nowhere/at/all", "hdfs://name/a"])
def test_an_unknown_or_remote_checkpoint_is_not_found(location: str | None) -> None:
    assert QueryCheckpoint.find(FS, location) is None


def test_of_a_checkpoint_that_cannot_be_synced_one_warning_is_given(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for _ in range(3):
        QueryCheckpoint.find(FS, "hdfs://name-node/warned-once")
        QueryCheckpoint.find(FS, str(tmp_path / "nothing"))
        QueryCheckpoint.find(FS, None)
    warned = [record.getMessage() for record in caplog.records]
    assert [text.split()[1] for text in warned] == [
        "hdfs://name-node/warned-once",
        str(tmp_path / "nothing"),
    ]


def test_the_query_id_is_read_from_the_metadata(checkpoint: Path) -> None:
    assert found(checkpoint).query_id() == QUERY_ID


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"id":7}', '{"id":"../.."}', "[" * 5000])
def test_metadata_without_a_query_id_is_corrupt(checkpoint: Path, content: str) -> None:
    (checkpoint / "metadata").write_text(content)

    with pytest.raises(CorruptCheckpointError, match="no query id"):
        found(checkpoint).query_id()


def test_huge_metadata_is_not_read(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_bytes(b" " * 100_000)

    with pytest.raises(LimitExceededError):
        found(checkpoint).query_id()


def test_the_source_lines_follow_the_settings(checkpoint: Path) -> None:
    assert found(checkpoint).source_lines(0) == '{"orders":{"0":10}}'
    assert found(checkpoint).source_lines(1) == '{"orders":{"0":20}}\n-'


def test_the_same_range_planned_at_another_time_has_the_same_source_lines(checkpoint: Path) -> None:
    before = found(checkpoint).source_lines(1)
    content = (checkpoint / "offsets/1").read_text()

    (checkpoint / "offsets/1").write_text(content.replace("1795235304899", "1795235309999"))

    assert found(checkpoint).source_lines(1) == before


def test_a_longer_range_has_other_source_lines(checkpoint: Path) -> None:
    before = found(checkpoint).source_lines(1)
    content = (checkpoint / "offsets/1").read_text()

    (checkpoint / "offsets/1").write_text(content.replace("20}", "21}"))

    assert found(checkpoint).source_lines(1) != before


def test_a_batch_without_offsets_has_no_source_lines(checkpoint: Path) -> None:
    assert found(checkpoint).source_lines(2) is None


@pytest.mark.parametrize("content", [b"", b"v1", b"v1\n{}", b"x\n{}\n{}", b"\xff\xfe\n{}\n{}"])
def test_torn_offsets_are_corrupt(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "offsets/1").write_bytes(content)

    with pytest.raises(CorruptCheckpointError, match="offsets of the batch"):
        found(checkpoint).source_lines(1)


def relative_paths(checkpoint: Path, batch_id: int) -> list[str]:
    top = checkpoint.parent
    return [
        str(Path(path).relative_to(top)).removeprefix("check point").lstrip("/")
        for path in found(checkpoint).paths_to_sync(batch_id)
    ]


def test_everything_a_restart_needs_is_synced_files_before_directories(checkpoint: Path) -> None:
    for name in ("8", "9.compact", "7", "10", "notes"):
        (checkpoint / "sources/0" / name).write_text("")

    assert relative_paths(checkpoint, 1) == [
        "metadata",
        "offsets/1",
        "commits/0",
        "sources/0/10",
        "",
        "offsets",
        "commits",
        "sources",
        "sources/0",
    ]


def test_the_first_batch_syncs_the_name_of_the_checkpoint_itself(checkpoint: Path) -> None:
    paths = found(checkpoint).paths_to_sync(0)

    assert str(checkpoint / "offsets/0") in paths
    assert paths[-3:][0] == str(checkpoint.parent)
    assert not any("commits/" in path for path in paths)


def test_a_checkpoint_behind_a_link_is_synced_where_it_lies(checkpoint: Path) -> None:
    link = checkpoint.parent / "link"
    link.symlink_to(checkpoint)

    assert found(link).paths_to_sync(1) == found(checkpoint).paths_to_sync(1)
