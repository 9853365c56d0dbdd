"""Directories that Kafka 0.8 and 0.10 wrote: messages of v0 and v1, read and gone on with."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.record import CompressionType, Record
from streamlog.root.partition_log import PartitionLog
from tests.support.batches import header_facts, message_set, record_facts
from tests.support.golden import GOLDEN, files_of, json_lines
from tests.support.segments import file_names, read_bytes, write_bytes

NOW = 1_800_000_000_000
CASES = sorted((GOLDEN / "B-legacy").glob("*-log-dir*/old*"))
CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]


def loaded(case: Path, *, without: str = "none") -> tuple[MemoryFileSystem, str]:
    """Return a copy of a golden directory in memory, but for the files of one kind."""
    fs = MemoryFileSystem()
    path = f"/logs/{case.name}"
    fs.make_directory("/logs")
    fs.make_directory(path)
    for name, data in files_of(case):
        if not name.endswith(without):
            write_bytes(fs, f"{path}/{name}", data)
    return fs, path


def lines(case: Path, kind: str) -> list[dict[str, Any]]:
    path = next(case.parent.glob("expect.jsonl*"))
    return [line for line in json_lines(str(path.relative_to(GOLDEN))) if line["kind"] == kind]


def wanted_records(case: Path) -> list[dict[str, Any]]:
    return [
        {key: line[key] for key in line if key not in ("kind", "batch", "sequence")}
        for line in lines(case, "record")
    ]


def all_records(reader: LogReader | PartitionLog, max_bytes: int) -> list[Record]:
    found: list[Record] = []
    at = reader.log_start_offset
    while at < reader.log_end_offset:
        info = reader.read(at, max_bytes)
        found += info.records()
        at = info.next_offset
    return found


def facts_of(records: list[Record]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in record_facts(record).items() if key != "sequence"}
        for record in records
    ]


def test_there_are_three_directories() -> None:
    assert len(CASES) == 3


@pytest.mark.parametrize("without", ["none", "index"])
@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_reader_finds_all_records(case: Path, max_bytes: int, without: str) -> None:
    fs, path = loaded(case, without=without)
    before = file_names(fs, path)
    with LogReader.open(path, fs=fs) as reader:
        assert facts_of(all_records(reader, max_bytes)) == wanted_records(case)
    assert file_names(fs, path) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_reader_starts_at_any_offset_and_ends_at_any(case: Path) -> None:
    fs, path = loaded(case)
    offsets = [record["offset"] for record in wanted_records(case)]
    with LogReader.open(path, fs=fs) as reader:
        for offset in offsets:
            first = next(reader.read(offset, 1).records())
            assert first.offset == offset
        for end in offsets[1:]:
            info = reader.read(offsets[0], 1 << 20, end_offset=end)
            found = [record.offset for record in info.records()]
            assert found == [offset for offset in offsets if offset < end][: len(found)]
            assert info.next_offset >= end or info.next_offset == found[-1] + 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batches_are_shown_as_kafka_shows_them(case: Path) -> None:
    fs, path = loaded(case)
    found = []
    with LogReader.open(path, fs=fs) as reader:
        at = reader.log_start_offset
        while at < reader.log_end_offset:
            info = reader.read(at, 1)
            (batch,) = info.batches()
            found.append(
                {"file": info.path.rpartition("/")[2], **header_facts(batch, info.position)}
            )
            at = info.next_offset
    own = ("kind", "crcSigned", "messageSize", "records")
    assert found == [
        {key: line[key] for key in line if key not in own} for line in lines(case, "batch")
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_offsets_are_found_by_time_as_a_scan_finds_them(case: Path) -> None:
    fs, path = loaded(case)
    records = wanted_records(case)
    times = sorted({record["timestamp"] for record in records})
    with LogReader.open(path, fs=fs) as reader:
        for time in [0, *times, *(time + 1 for time in times)]:
            found = reader.offset_for_timestamp(time)
            first = next((r["offset"] for r in records if r["timestamp"] >= time), None)
            assert (found and found.offset) == first


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_writer_goes_on_behind_old_messages(case: Path) -> None:
    fs, path = loaded(case)
    wanted = wanted_records(case)
    new = Record(b"new", b"record", (), NOW)
    with PartitionLog.open(path, fs=fs, clock=ManualClock(NOW), random=Random(1)) as log:
        assert log.log_end_offset == wanted[-1]["offset"] + 1
        info = log.append([new], compression="gzip")
        assert facts_of(all_records(log, 1 << 20)[:-1]) == wanted
    with LogReader.open(path, fs=fs) as reader:
        last = all_records(reader, 1000)[-1]
        assert (last.offset, last.key) == (info.base_offset, b"new")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recovery_keeps_old_messages_and_makes_the_indexes_anew(case: Path) -> None:
    fs, path = loaded(case, without="index")
    sizes = {name: len(read_bytes(fs, f"{path}/{name}")) for name in file_names(fs, path)}
    with PartitionLog.open(path, fs=fs, clock=ManualClock(NOW), random=Random(1)) as log:
        log.append([Record(b"new", b"record", (), NOW)])
    for name, size in list(sizes.items())[:-1]:
        assert len(read_bytes(fs, f"{path}/{name}")) == size
    with LogReader.open(path, fs=fs) as reader:
        assert facts_of(all_records(reader, 1 << 20)[:-1]) == wanted_records(case)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_appended_messages_become_v2(magic: int, codec: CompressionType) -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    records = [Record(b"a", b"1", (), NOW), Record(None, None, (), NOW)]
    with PartitionLog.open("/logs/t-0", fs=fs, clock=ManualClock(NOW), random=Random(1)) as log:
        for base in (0, 2):
            info = log.append_as_leader(message_set(magic, records, compression=codec))
            assert (info.base_offset, info.last_offset) == (base, base + 1)
        assert [batch.magic for batch in log.read(0).batches()] == [2, 2]
        assert [record.key for record in log.read(0).records()] == [b"a", None] * 2


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_follower_keeps_the_format(magic: int, codec: CompressionType) -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    records = [Record(b"a", b"1", (), NOW), Record(None, None, (), NOW)]
    messages = message_set(magic, records, base_offset=0, compression=codec)
    with PartitionLog.open("/logs/t-0", fs=fs, clock=ManualClock(NOW), random=Random(1)) as log:
        info = log.append_as_follower(messages)
        assert info.last_offset == 1
        log.append(records)
        assert log.log_end_offset == 4
        assert [record.offset for record in log.read(0).records()] == [0, 1, 2, 3]
    assert read_bytes(fs, "/logs/t-0/00000000000000000000.log").startswith(messages)
