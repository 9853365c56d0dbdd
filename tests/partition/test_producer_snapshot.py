"""Producer snapshots."""

import logging
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptSnapshotError
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.producer_snapshot import (
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    read_snapshot,
    remove_snapshots_above,
    remove_stale_snapshots,
)
from streamlog.partition.producer_state import BatchMetadata, ProducerState

DIRECTORY = "/orders-0"
T0 = 1_700_000_000_000

# Written by Kafka's ProducerStateManager at the close of a real log, with its next segment's.
GOLDEN_10 = bytes.fromhex(
    "0001e466541700000002000000000000002a0003000000010000000000000007000000010000018bcfe568670000"
    "0009ffffffffffffffff000000000000002b0000000000000000000000000008000000000000018bcfe56866ffff"
    "ffffffffffffffffffff"
)
GOLDEN_11 = bytes.fromhex(
    "000134a58df000000002000000000000002a000300000002000000000000000a000000000000018bcfe568c80000"
    "0009000000000000000a000000000000002b0000000000000000000000000008000000000000018bcfe56866ffff"
    "ffffffffffffffffffff"
)


def facts(state: ProducerState) -> tuple[object, ...]:
    return (
        state.producer_id, state.producer_epoch, state.batches[-1:], state.last_timestamp,
        state.coordinator_epoch, state.current_txn_first_offset,
    )  # fmt: skip


def test_golden_snapshots_are_read_and_written_to_the_byte() -> None:
    first, second = decode_snapshot(GOLDEN_10)
    assert facts(first) == (42, 3, (BatchMetadata(1, 7, 1, T0 + 103),), T0 + 103, 9, None)
    assert facts(second) == (43, 0, (BatchMetadata(0, 8, 0, T0 + 102),), T0 + 102, -1, None)
    open_txn = decode_snapshot(GOLDEN_11)[0]
    assert facts(open_txn) == (42, 3, (BatchMetadata(2, 10, 0, T0 + 200),), T0 + 200, 9, 10)
    for golden in (GOLDEN_10, GOLDEN_11):
        assert encode_snapshot(decode_snapshot(golden)) == golden


def test_empty_snapshot_has_ten_bytes() -> None:
    data = encode_snapshot([])
    assert len(data) == 10
    assert data[:2] == b"\x00\x01"
    assert decode_snapshot(data) == []


def with_crc(data: bytes) -> bytes:
    return data[:2] + struct.pack(">I", crc32c(data[6:])) + data[6:]


DAMAGED = {
    "truncated": GOLDEN_10[:-1],
    "header only": GOLDEN_10[:9],
    "nothing": b"",
    "flipped bit": GOLDEN_10[:30] + bytes([GOLDEN_10[30] ^ 4]) + GOLDEN_10[31:],
    "unknown version": b"\x00\x02" + GOLDEN_10[2:],
    "extra bytes": GOLDEN_10 + b"\x00",
    "extra bytes, right checksum": with_crc(GOLDEN_10 + b"\x00"),
    "extra entry, right checksum": with_crc(GOLDEN_10 + GOLDEN_10[-46:]),
    "count above entries": with_crc(GOLDEN_10[:6] + b"\x00\x00\x00\x03" + GOLDEN_10[10:]),
    "negative count": with_crc(GOLDEN_10[:6] + b"\xff\xff\xff\xff" + GOLDEN_10[10:]),
    "producer twice": with_crc(
        GOLDEN_10[:6] + b"\x00\x00\x00\x03" + GOLDEN_10[10:] + GOLDEN_10[-46:]
    ),
    "zeros": bytes(102),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_169_damaged_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptSnapshotError, match=r"10\.snapshot"):
        decode_snapshot(data, "10.snapshot")


def test_every_flipped_bit_is_noticed() -> None:
    for bit in range(len(GOLDEN_10) * 8):
        data = bytearray(GOLDEN_10)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(data))


_INT64 = st.integers(0, 2**63 - 1)
_STATES = st.builds(
    lambda producer_id, epoch, batch, coordinator, first: ProducerState(
        producer_id,
        producer_epoch=epoch,
        batches=() if batch is None else (batch,),
        coordinator_epoch=coordinator,
        current_txn_first_offset=first,
        last_timestamp=-1 if batch is None else batch.timestamp,
    ),
    _INT64,
    st.integers(-1, 2**15 - 1),
    st.none()
    | st.builds(BatchMetadata, st.integers(-1, 2**31 - 1), _INT64, st.integers(0, 2**31 - 1),
                st.integers(-1, 2**63 - 1)),
    st.integers(-1, 2**31 - 1),
    st.none() | _INT64,
)  # fmt: skip


@given(st.lists(_STATES, max_size=4, unique_by=lambda state: state.producer_id))
def test_decode_inverts_encode(states: list[ProducerState]) -> None:
    decoded = decode_snapshot(encode_snapshot(states))
    assert [facts(state) for state in decoded] == [facts(state) for state in states]


# ---- files ----------------------------------------------------------------------------------
@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory(DIRECTORY)
    for name, data in {
        "00000000000000000001.snapshot": encode_snapshot([]),
        "00000000000000000002.snapshot": encode_snapshot([]),
        "00000000000000000003.snapshot": encode_snapshot([]),
        "00000000000000000004.snapshot": encode_snapshot([]),
        "00000000000000000004.log": b"",
        "00000000000000000003.snapshot.deleted": b"",
        "3.snapshot": b"",
    }.items():
        with made.open(f"{DIRECTORY}/{name}", OpenMode.CREATE) as file:
            file.pwrite(data, 0)
    return made


def test_snapshots_are_listed_by_offset(fs: MemoryFileSystem) -> None:
    assert list_snapshots(fs, DIRECTORY) == [1, 2, 3, 4]


def test_157_snapshot_at_no_segments_base_is_stale(fs: MemoryFileSystem) -> None:
    remove_stale_snapshots(
        fs, DIRECTORY, base_offsets=[1, 2, 4], log_start_offset=0, log_end_offset=9
    )
    assert list_snapshots(fs, DIRECTORY) == [1, 2, 4]


def test_snapshots_outside_of_the_log_are_stale(fs: MemoryFileSystem) -> None:
    remove_stale_snapshots(
        fs, DIRECTORY, base_offsets=[1, 2, 3, 4], log_start_offset=1, log_end_offset=3
    )
    assert list_snapshots(fs, DIRECTORY) == [2, 3]


def test_newest_snapshot_stays_without_a_segment(fs: MemoryFileSystem) -> None:
    remove_stale_snapshots(fs, DIRECTORY, base_offsets=[1], log_start_offset=0, log_end_offset=9)
    assert list_snapshots(fs, DIRECTORY) == [1, 4]


def test_snapshots_above_a_cut_are_removed(fs: MemoryFileSystem) -> None:
    remove_snapshots_above(fs, DIRECTORY, 2)
    assert list_snapshots(fs, DIRECTORY) == [1, 2]


def test_damaged_or_vanished_snapshot_reads_as_none(
    fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    with fs.open(f"{DIRECTORY}/00000000000000000004.snapshot", OpenMode.WRITE) as file:
        file.pwrite(b"\xff", 3)
    with caplog.at_level(logging.WARNING):
        assert read_snapshot(fs, DIRECTORY, 4) is None
    assert "00000000000000000004.snapshot" in caplog.text
    assert read_snapshot(fs, DIRECTORY, 5) is None
    assert read_snapshot(fs, DIRECTORY, 1) == []
