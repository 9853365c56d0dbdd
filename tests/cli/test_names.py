"""Names that would deceive: passed over in a root, refused with a reason where they are named.

Each is tried by the command line, by Arrow and by Spark's reader; nothing blocks.
"""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog import read_table
from streamlog.errors import InvalidRequestError, StorageError, StreamLogError
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.segment.filenames import log_file_name
from streamlog.spark.reader import StreamLogStreamReader
from tests.support.cli import streamlog

OUTSIDE = "elsewhere/outside-0"
NO_PARTITIONS = [
    "orders-1.0123456789abcdef0123456789abcdef-delete",
    "orders-1.0123456789abcdef0123456789abcdef-future",
    "orders-1.0123456789abcdef0123456789abcdef-stray",
    "orders-1.deleted",
    "orders-00",
    "orders-01",
    "orders-+1",
    "orders-٣",
    "orders-²",
    "ordérs-1",
    "orders-1\n",
    "orders-2147483648",
    "orders",
    "-1",
    "..-1",
    f"{'a' * 250}-1",
]
NO_TOPICS = ["", "orders\x00", "orders\ttwo", "a" * 250, "ordérs", "orders:1", "orders-٣"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A broker's disk, as far as names go: one partition, and one outside of it."""
    for path in (tmp_path / "disk" / "orders-0", tmp_path / OUTSIDE):
        with PartitionLog.open(path) as log:
            log.append([Record(b"k", b"v", (), 1_700_000_000_000)])
    disk = tmp_path / "disk"
    shutil.rmtree(disk / ".streamlog")
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        (disk / name).unlink()
    return disk


def topics_seen(root: Path) -> list[str]:
    """Return the topics that all three ways of reading a root find."""
    rows = streamlog("cat", f"{root}/", "--format", "ndjson").rows
    by_command = sorted(row["topic"] for row in rows)
    assert sorted(read_table(root)["topic"].to_pylist()) == by_command
    assert sorted(read_by_spark(root, subscribepattern=".*")) == by_command
    return by_command


def read_by_spark(path: Path, **options: str) -> list[str]:
    """Do what Spark does with a reader, and return the topic of each row."""
    given = {"path": str(path), "startingoffsets": "earliest", **options}
    reader = StreamLogStreamReader(given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return [
        topic
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for topic in batch["topic"].to_pylist()
    ]


@pytest.mark.parametrize("name", NO_PARTITIONS, ids=ascii)
def test_other_directories_of_a_root_are_skipped(root: Path, name: str) -> None:
    shutil.copytree(root / "orders-0", root / name)
    assert topics_seen(root) == ["orders"]


@pytest.mark.parametrize("name", NO_PARTITIONS, ids=ascii)
def test_a_named_non_partition_is_refused_with_a_reason(root: Path, name: str) -> None:
    shutil.copytree(root / "orders-0", root / name)
    with pytest.raises(StreamLogError, match="must be named after its partition"):
        read_table(root / name)
    with pytest.raises(StreamLogError):  # options lose the blanks around them
        read_by_spark(root / name, subscribe="orders")
    ran = streamlog("cat", f"{root / name}/")
    assert (ran.code, ran.out) == (2, b"")
    assert "expected TOPIC-PARTITION" in ran.error


@pytest.mark.parametrize("name", NO_TOPICS, ids=ascii)
def test_an_invalid_topic_name_is_refused_with_a_reason(root: Path, name: str) -> None:
    with pytest.raises(StreamLogError, match="topic"):
        read_table(root, name)
    with pytest.raises(StreamLogError, match="topic"):
        read_by_spark(root, subscribe=name)
    ran = streamlog("--path", root, "cat", name)
    assert (ran.code, ran.out) == (2, b"")
    assert "topic" in ran.error


@pytest.mark.parametrize("topic", ["archive.deleted", "to-delete", "x.swap", "a.b", "a_b", "o-"])
def test_a_brokers_topic_with_a_strange_name_is_read(root: Path, topic: str) -> None:
    """Kafka makes such topics; the disk of one that has them is a disk all the same."""
    shutil.copytree(root / "orders-0", root / f"{topic}-0")
    assert topics_seen(root) == sorted(["orders", topic])
    assert read_by_spark(root, subscribe=topic) == [topic]
    assert read_table(root, topic).num_rows == 1
    assert streamlog("--path", root, "cat", topic).code == 0


def test_topics_that_differ_in_dots_and_underscores_are_two(root: Path) -> None:
    for topic in ("a.b", "a_b"):
        shutil.copytree(root / "orders-0", root / f"{topic}-0")
    assert topics_seen(root) == ["a.b", "a_b", "orders"]


@pytest.mark.parametrize("name", ["clicks-0", "clicks-1"])
def test_a_link_to_a_partition_is_one_wherever_it_is_read(root: Path, name: str) -> None:
    (root / name).symlink_to(root.parent / OUTSIDE)
    assert topics_seen(root) == ["clicks", "orders"]
    assert read_table(root / name).num_rows == 1
    assert streamlog("cat", f"{root / name}").code == 0


# ---- what is called like a segment and is none ---------------------------------------------------
def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(here)


def link(path: Path) -> None:
    path.symlink_to(path.parents[2] / OUTSIDE / log_file_name(0))


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere.log")


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("base_offset", [0, 5], ids=["the only one", "behind a real one"])
@pytest.mark.parametrize("make", [pipe, bound_socket, link, dangling_link, directory])
def test_only_regular_files_are_segments(
    root: Path, make: Callable[[Path], None], base_offset: int
) -> None:
    path = root / "orders-0" / log_file_name(base_offset)
    path.unlink(missing_ok=True)
    make(path)
    for read in (
        lambda: read_table(root / "orders-0"),
        lambda: read_by_spark(root, subscribe="orders"),
    ):
        with pytest.raises(StorageError, match=path.name):
            read()
    with pytest.raises(InvalidRequestError, match=path.name):
        read_table(path)
    for verb in ("cat", "offsets", "verify"):
        ran = streamlog(verb, root / "orders-0")
        assert ran.code == 1, verb
        assert path.name in ran.error + ran.out.decode(), verb
    ran = streamlog("dump", path)
    assert ran.code == 2
    assert "not a regular file" in ran.error
