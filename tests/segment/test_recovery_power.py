"""A bad place before sound batches, after a power cut: lost blocks read as zeros."""

from collections.abc import Iterator

import pytest

from tests.support.recovery import (
    BASE,
    LOG,
    NEXT,
    STARTS,
    WHOLE,
    changed,
    flip,
    log_with,
    recover,
    refused,
)
from tests.support.recovery import kept as kept_aside
from tests.support.segments import NOW_MS, BatchPlan, make_batches, read_bytes

BLOCK = 512
TORN = next(at for at, start in enumerate(STARTS) if start <= BLOCK - 32 < STARTS[at + 1])


def zeros(start: int, end: int) -> bytes:
    return changed(WHOLE, start, bytes(end - start))


@pytest.mark.parametrize(
    ("data", "batch"),
    [
        (zeros(STARTS[4], STARTS[4] + 12), 4),
        (zeros(STARTS[4] + 12, STARTS[5]), 4),
        (zeros(BLOCK - 32, BLOCK), TORN),
        (zeros(BLOCK - 32, BLOCK + 70), TORN),
        (zeros(BLOCK, 2 * BLOCK), TORN + (STARTS[TORN + 1] <= BLOCK)),
    ],
    ids=["where a batch begins", "up to the next one", "up to a block", "and further", "a block"],
)
def test_zeros_of_a_lost_block_make_the_rest_a_torn_tail(data: bytes, batch: int) -> None:
    assert refused(log_with(data), durable=BASE) in ("@L", "@O")
    fs = log_with(data)
    report = recover(fs, durable=BASE, lost_power=True)
    assert read_bytes(fs, LOG) == WHOLE[: STARTS[batch]]
    assert kept_aside(fs, report) == data[STARTS[batch] :].rstrip(b"\0")


@pytest.mark.parametrize(
    "data",
    [flip(4, 70)(WHOLE), zeros(BLOCK - 31, BLOCK), zeros(STARTS[4] + 12, STARTS[4] + 60)],
    ids=["no zeros", "too few", "at no border"],
)
def test_other_damage_before_sound_batches_is_refused_after_a_power_cut_too(
    data: bytes,
) -> None:
    assert refused(log_with(data), durable=BASE, lost_power=True) == "@L"


def test_zeros_below_the_mark_are_damage() -> None:
    data = zeros(STARTS[4], STARTS[5])
    assert refused(log_with(data), durable=NEXT, lost_power=True) in ("@K", "@N")


# ---- the offset of a batch precedes a block boundary, and has no checksum --------------------
def with_border_at(byte: int) -> tuple[bytes, int]:
    """Return three batches and the start of the second, so many bytes before a block boundary."""
    plans = [BatchPlan(BASE + 3 * at, 3, size, NOW_MS) for at, size in enumerate((BLOCK, 90, 90))]
    plans[0] = plans[0]._replace(size=BLOCK - byte)
    return make_batches(plans), plans[0].size


@pytest.mark.parametrize("byte", [8, 9, 11])
def test_an_offset_in_a_lost_block_is_a_torn_tail(byte: int) -> None:
    data, start = with_border_at(byte)
    torn = changed(data, start, bytes(byte))
    fs = log_with(torn)
    report = recover(fs, durable=BASE, lost_power=True)
    assert (read_bytes(fs, LOG), kept_aside(fs, report)) == (data[:start], torn[start:])


def test_a_batch_with_its_offset_in_a_lost_block_is_rewritten() -> None:
    data, start = with_border_at(8)

    def restore(offset: int, size: int) -> Iterator[bytes]:
        if offset == BASE + 3 and size >= 90:
            yield data[start : start + 90]

    fs = log_with(changed(data, start, bytes(8)))
    assert recover(fs, durable=BASE, lost_power=True, restore=restore).restored_size == 90
    assert read_bytes(fs, LOG) == data


def test_an_offset_whose_zeros_end_at_a_border_is_whole() -> None:
    data, _ = with_border_at(7)
    assert recover(log_with(data), durable=BASE, lost_power=True).case == "@A"


@pytest.mark.parametrize(
    ("byte", "durable", "lost_power", "case"),
    [(8, BASE, False, "@H"), (8, BASE + 6, True, "@K"), (12, BASE, True, "@H")],
    ids=["no power cut", "below the mark", "no border"],
)
def test_an_offset_damaged_otherwise_is_damage(
    byte: int, durable: int, lost_power: bool, case: str
) -> None:
    data, start = with_border_at(byte)
    torn = changed(data, start, bytes(8))
    assert refused(log_with(torn), durable=durable, lost_power=lost_power) == case
