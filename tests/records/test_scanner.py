"""Scanning a buffer that fills up, compared with scanning it in one piece."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.records import batch
from streamlog.records.batch import BatchScanner, CheckedScan, check_crc, scan_batches
from streamlog.records.record import Record
from tests.support.batches import message_set
from tests.support.segments import BatchPlan, make_batches

PLANS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(61, 130)).map(
        lambda values: BatchPlan(*values)
    ),
    max_size=6,
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches and messages of all formats, some with changed or missing bytes."""
    old = [message_set(magic, [Record(b"k", b"v")]) for magic in draw(st.lists(st.integers(0, 1)))]
    parts = [*old, make_batches(draw(PLANS)), *old, make_batches(draw(PLANS))]
    buffer = bytearray(b"".join(parts) + draw(st.binary(max_size=80)))
    for _ in range(draw(st.integers(0, 3))):
        if buffer:
            buffer[draw(st.integers(0, len(buffer) - 1))] = draw(st.integers(0, 255))
    return bytes(buffer[: draw(st.integers(0, len(buffer)) | st.just(len(buffer)))])


def scanned(buffer: bytes, pieces: list[int]) -> CheckedScan:
    """Return the result of a scanner that gets these pieces, and then the rest."""
    target = np.zeros(len(buffer), np.uint8)
    scanner, start = BatchScanner(target), 0
    for size in [*pieces, len(buffer)]:
        end = min(start + size, len(buffer))
        target[start:end] = np.frombuffer(buffer[start:end], np.uint8)
        scanner.go_on(end)
        start = end
    return scanner.finish()


def assert_like_one_piece(found: CheckedScan, buffer: bytes) -> None:
    scan = scan_batches(buffer)
    assert found.scan.table.fields.tolist() == scan.table.fields.tolist()
    assert found.scan[1:] == scan[1:]
    assert found.sound == check_crc(buffer, scan.table)


@given(logs(), st.lists(st.integers(0, 200)))
def test_pieces_give_the_same_as_the_whole(buffer: bytes, pieces: list[int]) -> None:
    assert_like_one_piece(scanned(buffer, pieces), buffer)


@given(logs(), st.lists(st.integers(0, 200)))
def test_pieces_give_the_same_without_numba(buffer: bytes, pieces: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "numba_is_loaded", lambda: False)
        found = scanned(buffer, pieces)
    assert_like_one_piece(found, buffer)


def test_more_batches_than_rows_at_first_are_all_found() -> None:
    buffer = make_batches([BatchPlan(0, 1, 70)] * (3 * batch._ROWS + 5))
    found = scanned(buffer, [len(buffer) // 2])
    assert len(found.scan.table) == found.sound == 3 * batch._ROWS + 5
    assert_like_one_piece(found, buffer)


def test_batches_after_a_wrong_checksum_are_found_but_not_sound() -> None:
    buffer = bytearray(make_batches([BatchPlan(0, 1, 100)] * 6))
    buffer[2 * 100 + 99] ^= 1
    found = scanned(bytes(buffer), [150, 150])
    assert (len(found.scan.table), found.sound) == (6, 2)


@pytest.mark.parametrize("has_numba", [True, False])
@pytest.mark.parametrize(
    ("room", "filled", "goes_on"),
    [(200, 100, True), (200, 150, True), (199, 150, False), (100, 100, True), (110, 110, True)],
)
def test_it_continues_while_the_next_batch_has_room(
    room: int, filled: int, goes_on: bool, has_numba: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "numba_is_loaded", lambda: has_numba)
    target = np.zeros(room, np.uint8)
    target[:filled] = np.frombuffer(make_batches([BatchPlan(0, 1, 100)] * 2), np.uint8)[:filled]
    assert BatchScanner(target).go_on(filled) is goes_on


def test_it_does_not_continue_after_a_non_batch() -> None:
    assert not BatchScanner(np.full(200, 0xFF, np.uint8)).go_on(100)
