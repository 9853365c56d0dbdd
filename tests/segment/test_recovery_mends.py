"""Holes before sound batches whose batches are also stored elsewhere, as decided commits are."""

from collections.abc import Iterator

import pytest

from streamlog.errors import CorruptRecordError
from streamlog.segment.recovery import Restore
from tests.support.recovery import (
    BASE,
    LOG,
    NEXT,
    SETTINGS,
    STARTS,
    WHOLE,
    changed,
    flip,
    log_with,
    recover,
    refused,
)
from tests.support.segments import DIRECTORY, file_names, open_segment, read_bytes

ZEROS = changed(WHOLE, STARTS[5], bytes(STARTS[7] - STARTS[5]))


def keeper(first: int, stop: int) -> Restore:
    """Return a `Restore` with batches `first` to `stop` - 1 of the segment, each as one piece."""

    def restore(offset: int, size: int) -> Iterator[bytes]:
        for batch in range(first, stop):
            piece = WHOLE[STARTS[batch] : STARTS[batch + 1]]
            if offset == BASE + 3 * batch and len(piece) <= size:
                yield piece
                offset, size = offset + 3, size - len(piece)

    return restore


@pytest.mark.parametrize("lost_power", [False, True])
@pytest.mark.parametrize("durable", [BASE, NEXT], ids=["above the mark", "below it"])
@pytest.mark.parametrize("data", [flip(5, 70)(WHOLE), ZEROS], ids=["q bad batch", "r hole"])
def test_batches_kept_elsewhere_are_rewritten_and_later_ones_stay(
    data: bytes, durable: int, lost_power: bool
) -> None:
    fs = log_with(data)
    report = recover(fs, durable=durable, lost_power=lost_power, restore=keeper(5, 7))
    assert read_bytes(fs, LOG) == WHOLE
    assert (report.case, report.next_offset, report.batch_count) == ("@A", NEXT, 12)
    assert (report.restored_size, report.cut_size) == (STARTS[7] - STARTS[5], 0)
    aside = [name for name in file_names(fs) if "torn" in name]
    assert [read_bytes(fs, f"{DIRECTORY}/{name}") for name in aside] == [data[STARTS[5] :]]
    assert not open_segment(fs, BASE, **SETTINGS).needs_recovery


def test_several_holes_are_filled_in_turn() -> None:
    fs = log_with(flip(2, 70)(ZEROS))
    report = recover(fs, durable=BASE, restore=keeper(0, 12))
    assert read_bytes(fs, LOG) == WHOLE and report.batch_count == 12


def test_a_hole_in_a_middle_segment_is_filled_up_to_its_end() -> None:
    fs = log_with(changed(WHOLE, STARTS[11], bytes(30)))
    report = recover(fs, durable=BASE, is_last=False, restore=keeper(11, 12))
    assert read_bytes(fs, LOG) == WHOLE and report.next_offset == NEXT


def test_a_torn_end_is_truncated_and_left_to_its_source() -> None:
    fs = log_with(flip(11, 70)(WHOLE))
    report = recover(fs, durable=BASE, restore=keeper(0, 12))
    assert (report.case, report.restored_size) == ("@M", 0)
    assert read_bytes(fs, LOG) == WHOLE[: STARTS[11]]


def test_a_sound_batch_is_never_overwritten() -> None:
    fs = log_with(WHOLE[: STARTS[5]] + WHOLE[STARTS[3] :])
    assert refused(fs, durable=None, restore=keeper(0, 12)) == "@H"


def test_a_partly_kept_hole_is_filled_and_the_rest_refused() -> None:
    fs = log_with(ZEROS)
    with pytest.raises(CorruptRecordError, match="case @O"):
        recover(fs, durable=BASE, restore=keeper(5, 6))
    assert read_bytes(fs, LOG)[: STARTS[6]] == WHOLE[: STARTS[6]]


def test_a_source_of_bad_batches_is_not_tried_again() -> None:
    fs = log_with(ZEROS)
    bad = flip(5, 70)(WHOLE)[STARTS[5] : STARTS[6]]
    with pytest.raises(CorruptRecordError, match="case @L"):
        recover(fs, durable=BASE, restore=lambda _offset, _size: [bad])
