"""What to do where a scan of a segment meets bytes that are not the next batch: a table.

A batch is *sound* when it is whole, its checksum is right, and its offsets follow. At the first
place that is not sound, three facts decide:

    synced    the durable mark (recovery point) lies above it: these bytes were acknowledged
    followed  a whole batch with a right checksum and later offsets stands further on in the file
    last      no other segment follows

Bytes that were synced, and bytes that something sound follows, were not torn by the crash: they
are damage, and damage is refused, never cut. What is left is a torn tail. Source of the idea:
LogSegment.recover; of the difference: Alagappan et al., Protocol-Aware Recovery, FAST '18.
"""

from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from streamlog.records.batch import BatchScan, check_crc, scan_batches
from streamlog.records.layout import HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MIN_BATCH_LENGTH

__all__ = ["CASES", "Case", "Facts", "RecoveryReport", "Verdict", "decide", "find_later_batch"]


class Verdict(Enum):
    """What to do with the bytes from the first unsound place on."""

    KEEP = "keep"  # nothing is unsound
    CUT = "cut"  # a torn tail: nothing behind it was acknowledged
    REFUSE = "refuse"  # damage: acknowledged bytes are not what they were


class Facts(NamedTuple):
    """What is known at the place where the scan stopped."""

    at_end: bool
    synced: bool
    followed: bool
    last: bool


class Case(NamedTuple):
    """A row of the table; None matches both."""

    name: str
    facts: tuple[bool | None, bool | None, bool | None, bool | None]
    verdict: Verdict


_, Y, N = None, True, False
CASES: Final = (
    # fmt: off
    #            at_end synced followed last
    Case("@A", (Y,      _,     _,       _), Verdict.KEEP),    # every batch is sound
    Case("@B", (N,      Y,     _,       _), Verdict.REFUSE),  # below the durable mark
    Case("@C", (N,      N,     Y,       _), Verdict.REFUSE),  # a hole: sound batches behind it
    Case("@D", (N,      N,     N,       N), Verdict.REFUSE),  # a segment was begun behind it
    Case("@E", (N,      N,     N,       Y), Verdict.CUT),     # torn by a crash
    # fmt: on
)


class RecoveryReport(NamedTuple):
    """What recovering one segment did.

    Attributes:
        batches: Sound batches found.
        next_offset: The offset behind the last of them.
        cut_size: Bytes of a torn tail that were cut.
        kept_path: Where they are kept, empty where nothing was cut.
    """

    batches: int
    next_offset: int
    cut_size: int
    kept_path: str


def matches(case: Case, facts: Facts) -> bool:
    """Tell whether a row of the table fits."""
    return all(want is None or want == have for want, have in zip(case.facts, facts, strict=True))


def decide(facts: Facts) -> Case:
    """Return the one case that fits."""
    (case,) = [case for case in CASES if matches(case, facts)]
    return case


_CANDIDATES_MAX: Final = 4096  # ours: bounds the search in hostile bytes


def find_later_batch(tail: bytes, next_offset: int) -> int | None:
    """Return where in `tail` a sound later batch starts, None where none does.

    Args:
        tail: The bytes from the first unsound place on.
        next_offset: The offset that should have come there; older offsets are recycled blocks.

    Returns:
        A position above 0, or None. At most 4,096 candidates are looked at.
    """
    array = np.frombuffer(tail, np.uint8)
    if array.size < LOG_OVERHEAD + MIN_BATCH_LENGTH:
        return None
    magic_at = HEADER_SIZE_UP_TO_MAGIC - 1
    starts = np.flatnonzero(array[magic_at + 1 :] == 2) + 1
    starts = starts[starts <= array.size - LOG_OVERHEAD - MIN_BATCH_LENGTH]
    lengths = _big_endian(array, starts + 8, 4)
    offsets = _big_endian(array, starts, 8)
    plausible = (
        (lengths >= MIN_BATCH_LENGTH)
        & (lengths <= array.size - starts - LOG_OVERHEAD)
        & (offsets >= next_offset)
    )
    for start in starts[plausible][:_CANDIDATES_MAX].tolist():
        scan: BatchScan = scan_batches(tail[start : start + LOG_OVERHEAD + _length(tail, start)])
        if len(scan.table) == 1 and check_crc(tail[start:], scan.table) == 1:
            return int(start)
    return None


def _length(tail: bytes, start: int) -> int:
    return int.from_bytes(tail[start + 8 : start + 12], "big", signed=True)


def _big_endian(
    array: "np.ndarray[tuple[int], np.dtype[np.uint8]]",
    starts: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    width: int,
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the signed big-endian integers at `starts`."""
    value = np.zeros(starts.size, np.int64)
    for byte in range(width):
        value = (value << 8) | array[starts + byte].astype(np.int64)
    return value if width == 8 else np.where(value >= 1 << 31, value - (1 << 32), value)
