"""Index entries beside batches that come piece by piece."""

import numpy as np
import pytest

from streamlog.health.findings import Finding
from streamlog.health.index_files import OffsetIndexCheck, TimeIndexCheck
from streamlog.health.log_file import LogEnd, Run
from streamlog.records.batch import scan_batches
from streamlog.segment.index_entries import OffsetEntries, TimeEntries
from tests.support.segments import BatchPlan, make_batches

BATCHES = make_batches(BatchPlan(offset, 2, size=100) for offset in range(0, 20, 2))


def check(entries: list[tuple[int, int]], *, batches_a_run: int) -> list[Finding]:
    """Hold entries of offset and position against ten batches, so many at a time."""
    found: list[Finding] = []
    offsets, positions = (np.array(each, np.int64) for each in zip(*entries, strict=True))
    checked = OffsetIndexCheck("0.index", OffsetEntries(offsets, positions, 0), 0, found.append)
    feed(checked, BATCHES, batches_a_run, largest=0)
    return found


def feed(
    checked: OffsetIndexCheck | TimeIndexCheck, batches: bytes, batches_a_run: int, *, largest: int
) -> None:
    """Let a check see ten batches of 100 bytes, so many at a time."""
    step = batches_a_run * 100
    for start in range(0, len(batches), step):
        piece = np.frombuffer(batches[start : start + step], np.uint8)
        checked.feed(Run("0.log", start, piece, scan_batches(piece).table))
    checked.finish(LogEnd(19, 0, largest, len(batches), len(batches), is_sound=True))


@pytest.mark.parametrize("batches_a_run", [1, 2, 3, 10])
@pytest.mark.parametrize(
    "entries",
    [
        [(3, 100), (9, 400), (19, 900)],  # the last offset of the batch
        [(7, 100), (17, 400), (19, 900)],  # of the whole append
        [(9, 100), (11, 500), (19, 600)],
        [(2, 100), (8, 400)],  # the first one
    ],
)
def test_entries_by_the_rules_of_any_version_are_sound(
    entries: list[tuple[int, int]], batches_a_run: int
) -> None:
    assert check(entries, batches_a_run=batches_a_run) == []


@pytest.mark.parametrize("batches_a_run", [1, 2, 3, 10])
@pytest.mark.parametrize(
    ("entries", "wrong", "what"),
    [
        ([(3, 100), (8, 300)], 8, "different offsets"),  # ends no batch
        ([(3, 100), (5, 400)], 5, "different offsets"),  # lies before the batch
        ([(3, 100), (29, 400)], 29, "different offsets"),  # lies behind the end
        ([(3, 100), (9, 401)], 400 + 1, "middle of a batch"),
        ([(3, 100), (25, 1000)], 25, "after the last batch"),
        ([(3, 100), (3, 400)], 3, "not ascending"),
        ([(3, 100), (-1, 400)], -1, "before the segment"),
    ],
)
def test_entries_that_promise_something_else_are_found(
    entries: list[tuple[int, int]], wrong: int, what: str, batches_a_run: int
) -> None:
    found = check(entries, batches_a_run=batches_a_run)
    assert what in found[0].what
    assert str(wrong) in str(found[0].got)
    assert found[0].position == 8


# Batches of two records each; those of offsets 4 and 10 have the largest timestamps so far.
TIMES = [1000, 1000, 2000, 1500, 1500, 3000, 3000, 2500, 2500, 2500]
TIMED = make_batches(
    BatchPlan(2 * at, 2, max_timestamp=timestamp) for at, timestamp in enumerate(TIMES)
)


def check_times(entries: list[tuple[int, int]], *, batches_a_run: int) -> list[Finding]:
    found: list[Finding] = []
    timestamps, offsets = (np.array(each, np.int64) for each in zip(*entries, strict=True))
    held = TimeEntries(timestamps, offsets, 0)
    checked = TimeIndexCheck("0.timeindex", held, 0, found.append, is_sealed=True)
    feed(checked, TIMED, batches_a_run, largest=3000)
    return found


@pytest.mark.parametrize("batches_a_run", [1, 2, 3, 10])
@pytest.mark.parametrize(
    "entries",
    [
        [(1000, 1), (2000, 5), (3000, 11)],  # the last offset of the batch
        [(1000, 0), (2000, 4), (3000, 10)],  # the record's own, as Kafka 3.6 writes it
    ],
)
def test_time_entries_by_the_rules_of_any_version_are_sound(
    entries: list[tuple[int, int]], batches_a_run: int
) -> None:
    assert check_times(entries, batches_a_run=batches_a_run) == []


@pytest.mark.parametrize("batches_a_run", [1, 2, 3, 10])
@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([(1000, 1), (2000, 6), (3000, 11)], "different timestamps"),  # the batch after it
        ([(1000, 1), (2000, 3), (3000, 11)], "different timestamps"),  # the batch before it
        ([(1000, 1), (1500, 7), (3000, 11)], "an earlier batch has a larger timestamp"),
        ([(1000, 1), (2000, 5)], "largest timestamp of the segment is missing"),
    ],
)
def test_time_entries_that_promise_something_else_are_found(
    entries: list[tuple[int, int]], what: str, batches_a_run: int
) -> None:
    assert what in check_times(entries, batches_a_run=batches_a_run)[0].what
