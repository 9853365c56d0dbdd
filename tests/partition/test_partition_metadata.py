"""`partition.metadata` and topic ids."""

import random
import uuid

import pytest

from streamlog.errors import CorruptCheckpointError, CorruptDataError
from streamlog.fs.api import OpenMode
from streamlog.fs.files import read_file
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.partition_metadata import (
    new_topic_id,
    parse_topic_id,
    read_topic_id,
    topic_id_hex,
    write_topic_id,
)

DIRECTORY = "/orders-0"
PATH = f"{DIRECTORY}/partition.metadata"
# UUID 00000000-0000-0001-0000-000000000002, written by Kafka's PartitionMetadataFile
GOLDEN_ID = "AAAAAAAAAAEAAAAAAAAAAg"
GOLDEN = bytes.fromhex(
    "76657273696f6e3a20300a746f7069635f69643a2041414141414141414141454141414141414141414167"
)


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory(DIRECTORY)
    return made


def write(fs: MemoryFileSystem, text: bytes) -> None:
    with fs.open(PATH, OpenMode.CREATE) as file:
        file.pwrite(text, 0)


def test_file_is_kafkas_to_the_byte(fs: MemoryFileSystem) -> None:
    write_topic_id(fs, DIRECTORY, GOLDEN_ID)
    assert read_file(fs, PATH, max_size=100) == GOLDEN
    assert read_topic_id(fs, DIRECTORY) == GOLDEN_ID
    assert topic_id_hex(GOLDEN_ID) == "00000000000000010000000000000002"


def test_missing_file_has_no_id(fs: MemoryFileSystem) -> None:
    assert read_topic_id(fs, DIRECTORY) is None


@pytest.mark.parametrize(
    "text",
    [
        GOLDEN + b"\n",
        GOLDEN.replace(b"\n", b"\r\n"),
        GOLDEN.replace(b": ", b":"),
        GOLDEN.replace(b"0", b"7"),
    ],
)
def test_what_kafka_reads_is_read(fs: MemoryFileSystem, text: bytes) -> None:
    write(fs, text)
    assert read_topic_id(fs, DIRECTORY) == GOLDEN_ID


@pytest.mark.parametrize(
    "text",
    [b"", b"version: 0", b"topic_id: AAAAAAAAAAEAAAAAAAAAAg", GOLDEN.replace(b"0\n", b"-1\n"),
     GOLDEN.replace(b"E", b"A").replace(b"g", b"A").replace(b"Ag", b"AA"), GOLDEN[:-1],
     GOLDEN + b"A", GOLDEN + b"\nversion: 0", GOLDEN.replace(b"AAg", b"AA!"), b"\x00" * 43,
     GOLDEN.replace(b"g", b"h"), GOLDEN.replace(b"version", b"\xff"), b"x" * 5000],
)  # fmt: skip
def test_malformed_file_is_refused_by_name(fs: MemoryFileSystem, text: bytes) -> None:
    write(fs, text)
    with pytest.raises(CorruptDataError, match=r"partition\.metadata"):
        read_topic_id(fs, DIRECTORY)


def test_all_zero_id_is_refused() -> None:
    with pytest.raises(CorruptCheckpointError):
        parse_topic_id("A" * 22)


def test_fresh_ids_are_version_4_and_never_start_with_a_dash() -> None:
    source = random.Random(1)
    fresh = [new_topic_id(source) for _ in range(500)]
    assert len(set(fresh)) == 500
    assert not any(each.startswith("-") for each in fresh)
    assert all(parse_topic_id(each) == each for each in fresh)
    assert {uuid.UUID(topic_id_hex(each)).version for each in fresh} == {4}
