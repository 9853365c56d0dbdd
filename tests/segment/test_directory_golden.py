"""Files written by Kafka's own log, written again by our segments: byte for byte."""

import pytest

from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import BatchTable, scan_batches
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn
from tests.support.golden import GOLDEN
from tests.support.segments import DIRECTORY, memory_fs, new_segment, open_segment, read_bytes

KINDS = ("log", "index", "timeindex", "txnindex")
SETTINGS = {
    "internal_segment_bytes": 600,
    "index_interval_bytes": 100,
    "segment_index_bytes": 120,
}


def golden(name: str) -> bytes | None:
    path = GOLDEN / "directory" / name
    return path.read_bytes() if path.exists() else None


def batches_of(base_offset: int) -> list[tuple[bytes, BatchTable]]:
    data = golden(f"{base_offset:020d}.log")
    assert data is not None
    table = scan_batches(data).table
    ends = (table.position + table.size).tolist()
    pieces = [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return [(piece, scan_batches(piece).table) for piece in pieces]


def written(base_offset: int, *, at_once: bool) -> MemoryFileSystem:
    fs = memory_fs()
    segment = new_segment(fs, base_offset, **SETTINGS)
    pieces = batches_of(base_offset)
    if at_once:
        whole = b"".join(piece for piece, _ in pieces)
        pieces = [(whole, scan_batches(whole).table)]
    for piece, table in pieces:
        segment.append(piece, table)
    if base_offset == 0:
        segment.append_aborted(AbortedTxn(42, 6, 9, 10))
    segment.seal()
    segment.close()
    return fs


@pytest.mark.parametrize("base_offset", [0, 10])
@pytest.mark.parametrize("at_once", [False, True])
def test_files_are_kafkas_byte_for_byte(base_offset: int, at_once: bool) -> None:
    fs = written(base_offset, at_once=at_once)
    for kind in KINDS:
        name = f"{base_offset:020d}.{kind}"
        path = f"{DIRECTORY}/{name}"
        found = None if fs.stat(path) is None else read_bytes(fs, path)
        assert found == golden(name), name


@pytest.mark.parametrize("base_offset", [0, 10])
def test_recovery_builds_the_same_indexes(base_offset: int) -> None:
    fs = written(base_offset, at_once=False)
    for kind in ("index", "timeindex"):
        fs.remove(f"{DIRECTORY}/{base_offset:020d}.{kind}")
    segment = open_segment(fs, base_offset, **SETTINGS)
    assert segment.needs_recovery
    segment.recover(durable_offset=None, is_last=base_offset == 10)
    for kind in KINDS[:3]:
        name = f"{base_offset:020d}.{kind}"
        assert read_bytes(fs, f"{DIRECTORY}/{name}") == golden(name), name


def test_kafkas_records_are_found() -> None:
    fs = written(0, at_once=False)
    segment: Segment = open_segment(fs, 0, writable=False, **SETTINGS)
    assert segment.next_offset() == 10
    assert segment.max_timestamp == 1700000000103 and segment.offset_of_max_timestamp == 9
    assert segment.first_batch_timestamp == 1700000000010
    assert segment.aborted_transactions(0, 10).aborted == [AbortedTxn(42, 6, 9, 10)]
    found = segment.offset_for_timestamp(1700000000101, 0)
    assert found is not None and (found.offset, found.leader_epoch) == (7, 0)
