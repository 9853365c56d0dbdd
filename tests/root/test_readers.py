"""The books about who reads a root: queries that write them, queries that know nothing of it."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamlog.errors import CorruptCheckpointError, InvalidOptionError, InvalidRequestError
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.query.offsets import SourceOffset
from streamlog.root.manager import LogManager
from streamlog.root.readers import (
    Reader,
    add_reader,
    forget_reader,
    list_readers,
    write_progress,
)
from streamlog.topic import TopicPartition

NOW = 1_700_000_000_000
FS = LocalFileSystem()
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = tmp_path / "root"
    with LogManager.open(path, create=True) as manager:
        manager.create_topic("orders", 2)
    return str(path)


def checkpoint(path: Path, batches: dict[int, list[str]], *, done: int) -> str:
    """Make a query's checkpoint as Spark does: `batches` planned, those up to `done` finished."""
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text('{"id":"6b1d7f6e-0000-4000-8000-000000000000"}')
    for number, sources in batches.items():
        lines = ["v1", '{"batchWatermarkMs":0}', *sources]
        (path / "offsets" / str(number)).write_text("\n".join(lines))
        if number <= done:
            (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            os.utime(path / "commits" / str(number), (NOW // 1000 + number, NOW // 1000 + number))
    return str(path)


def position(**offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", int(name[1:])): value for name, value in offsets.items()}


def test_a_reader_that_writes_its_own_position_is_read_back(root: str) -> None:
    write_progress(LogRoot.at(root), "billing", {"orders": {"0": 7, "1": 9}}, now_ms=NOW)
    (reader,) = list_readers(LogRoot.at(root, fs=FS))
    assert (reader.name, reader.committed_ms, reader.checkpoint) == ("billing", NOW, None)
    assert reader.position.offsets == position(p0=7, p1=9)


def test_sources_of_one_group_keep_each_others_topics(root: str) -> None:
    """A join of two topics is one query with two sources, and often has one group."""
    minutes = 7 * 24 * 60
    for turn in range(3):
        write_progress(
            LogRoot.at(root), "join", {"orders": {"0": 7 + turn, "1": 9}}, now_ms=NOW + turn
        )
        write_progress(LogRoot.at(root), "join", {"clicks": {"0": turn}}, now_ms=NOW + turn)
        (reader,) = list_readers(LogRoot.at(root, fs=FS))
        clicks = {TopicPartition("clicks", 0): turn}
        assert reader.position.offsets == position(p0=7 + turn, p1=9) | clicks
    write_progress(
        LogRoot.at(root), "join", {"clicks": {"0": 5}}, now_ms=NOW + 2 + minutes * 60_000
    )
    assert list_readers(LogRoot.at(root, fs=FS))[0].position.offsets[ORDERS] == 9
    write_progress(
        LogRoot.at(root), "join", {"clicks": {"0": 5}}, now_ms=NOW + 3 + minutes * 60_000
    )
    assert ORDERS not in list_readers(LogRoot.at(root, fs=FS))[0].position.offsets


def test_sources_of_one_group_that_write_at_once_lose_nothing(root: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for turn in range(20):
            topics = [f"topic{number}" for number in range(4)]
            jobs = [
                pool.submit(
                    write_progress, LogRoot.at(root), "join", {topic: {"0": turn}}, now_ms=NOW
                )
                for topic in topics
            ]
            for job in jobs:
                job.result()
            (reader,) = list_readers(LogRoot.at(root, fs=FS))
            assert reader.position.offsets == {TopicPartition(each, 0): turn for each in topics}


def test_the_progress_of_a_query_is_read_from_its_checkpoint(root: str, tmp_path: Path) -> None:
    batches = {
        0: ['{"orders":{"0":5,"1":6}}'],
        1: ['{"orders":{"0":15,"1":16}}'],
        2: ['{"orders":{"0":25,"1":26}}'],
    }
    directory = checkpoint(tmp_path / "checkpoint", batches, done=1)
    added = add_reader(LogRoot.at(root, fs=FS), "audit", directory, now_ms=NOW)
    assert added.position.offsets == position(p0=15, p1=16)
    checkpoint(tmp_path / "checkpoint", batches, done=2)
    (reader,) = list_readers(LogRoot.at(root, fs=FS))
    assert reader.position.offsets == position(p0=25, p1=26)
    assert (reader.committed_ms, reader.problem) == (NOW + 2000, None)


def test_of_several_sources_the_one_that_is_behind_counts_and_others_do_not(
    root: str, tmp_path: Path
) -> None:
    sources = ['{"logOffset":3}', '{"orders":{"0":15}}', "12", '{"orders":{"0":11,"1":4}}', "-"]
    directory = checkpoint(tmp_path / "checkpoint", {0: sources}, done=0)
    added = add_reader(LogRoot.at(root, fs=FS), "audit", directory, now_ms=NOW)
    assert added.position.offsets == position(p0=11, p1=4)


def test_without_its_checkpoint_a_reader_stands_where_it_was_when_it_was_added(
    root: str, tmp_path: Path
) -> None:
    directory = checkpoint(tmp_path / "checkpoint", {0: ['{"orders":{"0":15}}']}, done=0)
    add_reader(LogRoot.at(root, fs=FS), "audit", directory, now_ms=NOW + 5)
    Path(directory, "metadata").unlink()
    (reader,) = list_readers(LogRoot.at(root, fs=FS))
    assert reader.position.offsets == position(p0=15)
    assert reader.problem == "no checkpoint"
    assert not reader.is_silent(NOW + 5 + 60_000, 1)
    assert reader.is_silent(NOW + 6 + 60_000, 1)


@pytest.mark.parametrize("done", [-1, 0])
def test_a_checkpoint_that_tells_no_position_is_refused(
    root: str, tmp_path: Path, done: int
) -> None:
    directory = checkpoint(tmp_path / "checkpoint", {0: ['{"logOffset":3}']}, done=done)
    with pytest.raises(InvalidRequestError, match="cannot be read from its checkpoint"):
        add_reader(LogRoot.at(root, fs=FS), "audit", directory, now_ms=NOW)
    assert list_readers(LogRoot.at(root, fs=FS)) == []


def test_a_forgotten_reader_is_gone_and_an_unknown_one_is_named(root: str) -> None:
    write_progress(LogRoot.at(root), "billing", {"orders": {"0": 7}}, now_ms=NOW)
    with pytest.raises(InvalidRequestError, match="one of billing"):
        forget_reader(LogRoot.at(root, fs=FS), "audit")
    forget_reader(LogRoot.at(root, fs=FS), "billing")
    assert list_readers(LogRoot.at(root, fs=FS)) == []
    with pytest.raises(InvalidOptionError):
        forget_reader(LogRoot.at(root, fs=FS), "../server")


@pytest.mark.parametrize(
    "document",
    ["", "[]", "{", '{"group":"x"}', '{"offsets":{"orders":3},"committedMs":1}',
     '{"offsets":{},"committedMs":"1"}', '{"offsets":{},"committedMs":1,"checkpoint":5}'],
)  # fmt: skip
def test_an_unreadable_reader_record_stops_deletions(root: str, document: str) -> None:
    Path(LogRoot.at(root).reader("billing")).write_text(document)
    with pytest.raises(CorruptCheckpointError, match=r"billing\.json"):
        list_readers(LogRoot.at(root, fs=FS))


def test_what_a_reader_needs_of_a_partition() -> None:
    reader = Reader(
        name="x",
        committed_ms=NOW,
        position=SourceOffset(offsets=position(p0=7, p2=9), topic_ids={"orders": "A" * 22}),
    )
    needed = [reader.needed_from(TopicPartition("orders", n), "A" * 22) for n in range(5)]
    assert needed == [7, None, 9, 0, 0]
    # created again: to be read from its beginning, should the query go on at all
    assert (reader.needed_from(ORDERS, "B"), reader.goes_on_from(ORDERS, "B")) == (None, 0)
    assert reader.needed_from(TopicPartition("clicks", 0), "A" * 22) is None
    assert json.dumps(reader.position.to_json())
