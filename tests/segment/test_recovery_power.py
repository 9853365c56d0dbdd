"""A bad place in front of sound batches, after a power cut: lost blocks read as zeros."""

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
from tests.support.segments import read_bytes

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
def test_zeros_that_a_lost_block_leaves_make_what_follows_a_torn_tail(
    data: bytes, batch: int
) -> None:
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
def test_other_damage_in_front_of_sound_batches_is_refused_after_a_power_cut_too(
    data: bytes,
) -> None:
    assert refused(log_with(data), durable=BASE, lost_power=True) == "@L"


def test_below_the_mark_zeros_excuse_nothing() -> None:
    data = zeros(STARTS[4], STARTS[5])
    assert refused(log_with(data), durable=NEXT, lost_power=True) in ("@K", "@N")
