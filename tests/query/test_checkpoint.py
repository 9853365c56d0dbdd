import json
from pathlib import Path

import pytest

from streamlog.errors import CorruptCheckpointError, LimitExceededError
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import BatchSource, Naming, QueryCheckpoint, local_path

FS = LocalFileSystem()
QUERY_ID = "1cb11013-a49a-4f97-ab90-fee2ddb690a9"
SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1795235304899,"conf":{}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint in the state that Spark 4.2 leaves while batch 1 runs."""
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


def test_sources_with_names_have_the_same_lines(checkpoint: Path) -> None:
    before = found(checkpoint).source_lines(1), source_of(checkpoint, 1)
    for number, line in ((0, 'left:{"orders":{"0":10}}'), (1, 'left:{"orders":{"0":20}}\nright:-')):
        (checkpoint / f"offsets/{number}").write_text(f"v2\n{SETTINGS}\n{line}")
    assert (found(checkpoint).source_lines(1), source_of(checkpoint, 1)) == before
    assert before[1].naming is Naming.BATCH


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


# ---- what a batch is made from -----------------------------------------------------------------
def plan(top: Path, batch_id: int, *lines: str) -> None:
    """Write `offsets/<batch_id>`."""
    (top / f"offsets/{batch_id}").write_text("\n".join(["v1", SETTINGS, *lines]))


def log_files(top: Path, name: str, *entries: tuple[str, int], source: int = 0) -> None:
    """Write a file source's log: paths, each with the number of its entry."""
    lines = [
        json.dumps({"path": path, "timestamp": 1, "batchId": number}, separators=(",", ":"))
        for path, number in entries
    ]
    (top / f"sources/{source}").mkdir(exist_ok=True)
    (top / f"sources/{source}/{name}").write_text("\n".join(["v1", *lines]))


def source_of(top: Path, batch_id: int) -> BatchSource:
    source = found(top).batch_source(batch_id)
    assert source is not None
    assert source.query_id == QUERY_ID
    return source


def test_offsets_identify_a_batch_if_the_one_before_is_known(
    checkpoint: Path,
) -> None:
    assert source_of(checkpoint, 0).naming is Naming.END
    assert source_of(checkpoint, 1).naming is Naming.BATCH
    (checkpoint / "offsets/0").unlink()
    assert source_of(checkpoint, 1).naming is Naming.END
    (checkpoint / "offsets/0").write_text("")
    assert source_of(checkpoint, 1).naming is Naming.END
    assert found(checkpoint).batch_source(2) is None


def test_a_running_number_names_nothing_and_the_weakest_line_counts(checkpoint: Path) -> None:
    plan(checkpoint, 1, '{"orders":{"0":20}}', "12")
    assert source_of(checkpoint, 1) == BatchSource('{"orders":{"0":20}}\n12', QUERY_ID)


@pytest.mark.parametrize("name", ["1", "1.compact"])
def test_the_files_of_a_file_source_name_its_batch(checkpoint: Path, name: str) -> None:
    plan(checkpoint, 0, '{"logOffset":0}')
    plan(checkpoint, 1, '{"logOffset":1}')
    older = [("file:///in/a", 0)] if name.endswith("compact") else []
    log_files(checkpoint, name, *older, ("file:///in/b", 1), ("file:///in/c", 1))

    source = source_of(checkpoint, 1)

    assert source.naming is Naming.BATCH
    assert source.files is not None and source.files.startswith("2, sha256 ")
    assert source_of(checkpoint, 0).naming is Naming.NOTHING, "its entry is gone"
    log_files(checkpoint, name, *older, ("file:///in/b", 1))
    assert source_of(checkpoint, 1).files != source.files


def test_a_batch_of_a_file_source_may_read_several_entries_or_none(checkpoint: Path) -> None:
    plan(checkpoint, 0, "-", '{"orders":{"0":20}}')
    plan(checkpoint, 1, '{"logOffset":1}', '{"orders":{"0":20}}')
    plan(checkpoint, 2, '{"logOffset":1}', '{"orders":{"0":30}}')
    log_files(checkpoint, "0", ("file:///in/a", 0))
    log_files(checkpoint, "1", ("file:///in/b", 1))

    assert (source_of(checkpoint, 1).files or "").startswith("2, ")
    assert (source_of(checkpoint, 2).files or "").startswith("0, ")
    assert source_of(checkpoint, 2).naming is Naming.BATCH


@pytest.mark.parametrize(
    "content", ["", "v1", "v1\nno JSON", 'v1\n{"path":"x","timestamp":1,"batchId":"0"}', "v1\n[0]"]
)
def test_a_log_that_does_not_know_the_entry_names_nothing(checkpoint: Path, content: str) -> None:
    plan(checkpoint, 0, '{"logOffset":0}')
    (checkpoint / "sources/0/0").write_text(content)

    assert source_of(checkpoint, 0) == BatchSource('{"logOffset":0}', QUERY_ID)


def test_an_entry_that_fills_all_that_is_looked_at_names_nothing(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(checkpoint, 0, '{"logOffset":0}')
    log_files(checkpoint, "0", *((f"file:///in/{number}", 0) for number in range(100)))
    assert (source_of(checkpoint, 0).files or "").startswith("100, ")

    monkeypatch.setattr("streamlog.query.checkpoint._LOG_TAIL_SIZE", 1000)

    assert source_of(checkpoint, 0).naming is Naming.NOTHING


# ---- below the session's location --------------------------------------------------------------
def test_a_checkpoint_below_the_sessions_location_is_known_by_the_querys_id(
    checkpoint: Path,
) -> None:
    top = checkpoint.parent
    for name, content in (("other", '{"id":"query-2"}'), ("damaged", ""), ("empty", None)):
        (top / name).mkdir()
        if content is not None:
            (top / name / "metadata").write_text(content)
    (top / "a file").write_text("")

    for name in (None, "check point"):
        for _ in range(2):
            below = QueryCheckpoint.below(FS, str(top), query_name=name, query_id=QUERY_ID)
            assert below is not None
            assert below.path == str(checkpoint)
    assert QueryCheckpoint.below(FS, str(top), query_name="other", query_id="query-3") is None
    assert QueryCheckpoint.below(FS, str(top), query_name=None, query_id="query-3") is None
    assert QueryCheckpoint.below(FS, str(top / "none"), query_name=None, query_id="q") is None
    assert QueryCheckpoint.below(FS, "hdfs://name/cp", query_name=None, query_id="q") is None


def test_a_checkpoint_that_was_found_below_is_looked_for_again_when_it_is_gone(
    checkpoint: Path,
) -> None:
    top = checkpoint.parent
    assert QueryCheckpoint.below(FS, str(top), query_name=None, query_id=QUERY_ID) is not None
    checkpoint.rename(top / "renamed")

    below = QueryCheckpoint.below(FS, str(top), query_name=None, query_id=QUERY_ID)

    assert below is not None and below.path == str(top / "renamed")
