"""Kafka's TransactionIndexTest, cases 87 to 95 by number, then damage and disks."""

import struct
from errno import ENOSPC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptIndexError, DiskFullError, InvalidRequestError
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment
from streamlog.fs.memory import MemoryFileSystem
from streamlog.segment.txn_index import AbortedTxn, TxnIndex, TxnSearch
from tests.support.segments import DIRECTORY, memory_fs, read_bytes, write_bytes

PATH = f"{DIRECTORY}/00000000000000000000.txnindex"
ENTRIES = [
    AbortedTxn(0, 0, 10, 11),
    AbortedTxn(1, 5, 15, 13),
    AbortedTxn(2, 18, 35, 25),
    AbortedTxn(3, 32, 50, 40),
]


def filled(fs: MemoryFileSystem | None = None) -> TxnIndex:
    index = TxnIndex(fs or memory_fs(), PATH, 0)
    for entry in ENTRIES:
        index.append(entry)
    return index


def loaded(fs: MemoryFileSystem, base_offset: int = 0) -> TxnIndex:
    index = TxnIndex(fs, PATH, base_offset)
    index.load(log_size=1 << 20)
    return index


def packed(*entries: AbortedTxn, version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


# ---- Kafka's cases ------------------------------------------------------------------------------
def test_087_collect_all_is_not_complete() -> None:
    assert filled().collect(0, 100) == TxnSearch(ENTRIES, is_complete=False)


@pytest.mark.parametrize("start", [0, 10])
def test_089_an_entry_stable_beyond_the_end_completes(start: int) -> None:
    assert filled().collect(start, 35) == TxnSearch(ENTRIES, is_complete=True)


def test_090_entries_that_ended_before_the_start_are_omitted() -> None:
    assert filled().collect(11, 35) == TxnSearch(ENTRIES[1:], is_complete=True)


def test_091_last_entries_only() -> None:
    assert filled().collect(20, 41) == TxnSearch(ENTRIES[2:], is_complete=False)


def test_092_append_out_of_order_is_refused() -> None:
    index = filled()
    with pytest.raises(InvalidRequestError, match="must end after"):
        index.append(AbortedTxn(4, 0, 50, 60))
    assert index.entries == ENTRIES


def test_093_truncate_and_reset() -> None:
    fs = memory_fs()
    index = filled(fs)
    index.truncate_to(51)
    assert index.entries == ENTRIES
    index.truncate_to(50)
    assert index.entries == ENTRIES[:3]
    assert read_bytes(fs, PATH) == packed(*ENTRIES[:3])
    index.reset()
    assert index.entries == [] and fs.stat(PATH) is None


@pytest.mark.parametrize(
    ("data", "base_offset", "what"),
    [
        (packed(*ENTRIES), 100, "out of order"),
        (packed(ENTRIES[0], version=1), 0, "version"),
        (packed(*reversed(ENTRIES)), 0, "out of order"),
        (packed(AbortedTxn(1, 20, 10, 30)), 0, "out of order"),
        (packed(*ENTRIES)[:-1], 0, "length"),
    ],
)
def test_094_impossible_entries_are_refused(data: bytes, base_offset: int, what: str) -> None:
    fs = memory_fs()
    write_bytes(fs, PATH, data)
    with pytest.raises(CorruptIndexError, match=what):
        loaded(fs, base_offset)


def test_095_missing_file_is_empty_and_rename_keeps_the_entries() -> None:
    fs = memory_fs()
    assert loaded(fs).entries == []
    assert fs.stat(PATH) is None
    index = filled(fs)
    index.file.rename(PATH + ".deleted")
    index.append(AbortedTxn(4, 60, 70, 71))
    assert read_bytes(fs, PATH + ".deleted") == packed(*ENTRIES, AbortedTxn(4, 60, 70, 71))
    index.file.remove()
    index.file.remove()
    assert fs.stat(PATH + ".deleted") is None


# ---- more ---------------------------------------------------------------------------------------
def test_appended_entries_are_loaded_again() -> None:
    fs = memory_fs()
    filled(fs)
    again = loaded(fs)
    assert again.entries == ENTRIES
    again.append(AbortedTxn(4, 60, 70, 71))
    assert read_bytes(fs, PATH) == packed(*ENTRIES, AbortedTxn(4, 60, 70, 71))


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.TORN])
def test_an_entry_the_disk_refuses_is_not_recorded_and_may_be_repeated(moment: Moment) -> None:
    inner = memory_fs()
    filled(inner)
    fs = FaultyFileSystem(inner, Fault(operation="pwrite", moment=moment, errno=ENOSPC))
    index = TxnIndex(fs, PATH, 0)
    index.load(log_size=1 << 20)
    new = AbortedTxn(4, 60, 70, 71)
    with pytest.raises(DiskFullError):
        index.append(new)
    assert index.entries == ENTRIES == loaded(inner).entries
    index.append(new)
    assert loaded(inner).entries == [*ENTRIES, new]


@given(st.binary(max_size=140))
def test_any_bytes_are_loaded_or_refused(data: bytes) -> None:
    fs = memory_fs()
    write_bytes(fs, PATH, data)
    try:
        index = loaded(fs)
    except CorruptIndexError:
        return
    assert packed(*index.entries) == data
